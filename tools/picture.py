"""Take the README's picture of the evidence view, from the shipped sample.

Needs Chromium or Chrome; everything else about the page is the package's own.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from seval_ex import SEvalEx
from seval_ex.datasets import load_sample
from seval_ex.ledger import html_page

ROOT = Path(__file__).resolve().parent.parent
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def main() -> int:
    """Write nbs/images/evidence.png."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        print(f"no browser: install one of {', '.join(names)}", file=sys.stderr)
        return 1
    row = load_sample().query("id == 'news-01' and system == 'wrong_fact'").iloc[0]
    ledger = SEvalEx().evaluate(row["source"], row["summary"], f"{row['id']}, {row['system']}")
    target = ROOT / "nbs" / "images" / "evidence.png"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "evidence.html"
        page.write_text(html_page([ledger], "seval_ex"), encoding="utf-8")
        options = [f"--user-data-dir={folder}/profile", "--window-size=1240,800"]
        subprocess.run(
            [browser, *QUIET, *options, f"--screenshot={target}", page.as_uri()],
            check=True,
            capture_output=True,
        )
    print(target.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
