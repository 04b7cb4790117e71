"""Write README.md from nbs/index.ipynb, outputs included, without Quarto.

`python tools/readme.py` writes it; with `--check` it only says whether it is up to date.
"""

import posixpath
import re
import sys
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parent.parent


def _from_root(link: re.Match[str]) -> str:
    """Write a link of the notebook for the root; a page that is a symbolic link is its target."""
    name, mark, fragment = link[1].partition("#")
    path = Path(posixpath.normpath(f"nbs/{name}"))
    if (ROOT / path).is_symlink():
        path = (ROOT / path).resolve().relative_to(ROOT)
    return f"]({path.as_posix()}{mark}{fragment})"


def readme(root: Path = ROOT) -> str:
    """Render the index notebook as the text of README.md."""
    notebook = nbformat.read(root / "nbs" / "index.ipynb", as_version=4)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("text/html", None)
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    text = re.sub(r"\]\((?!https?://|#)([^)]+)\)", _from_root, text)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


def main() -> int:
    """Write or check README.md."""
    path = ROOT / "README.md"
    if "--check" in sys.argv[1:]:
        if path.read_text(encoding="utf-8") == readme():
            return 0
        print("README.md is out of date: run `make readme`", file=sys.stderr)
        return 1
    path.write_text(readme(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
