"""Write nbs/sidebar.yml and nbs/llms.txt from the notebooks there are.

`python tools/site.py` writes them; with `--check` it only says whether they are up to date. A page
belongs to the part of the site that its name says: start_*, guide_*, tables/*, a number for a
module. So a new notebook needs no entry anywhere.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
# Pages named here come first, in this order; all others follow by name.
FIRST = (
    *("start_first_evaluation", "start_reading_evidence"),
    *("guide_ollama", "guide_openai", "guide_your_data", "guide_your_metric", "guide_papermill"),
    *("guide_over_abstraction", "guide_long_documents", "guide_replay"),
    *("method", "benchmarks"),
)
FLOORS = ("The framework", "Abstractiveness", "Studies", "Delivery")
NOTE = "# Written by tools/site.py from the notebooks there are: run `make site`."


def _order(path: Path) -> tuple[int, str, int, str]:
    """Sort pages: those named first, then by kind, number and name."""
    place = FIRST.index(path.stem) if path.stem in FIRST else len(FIRST)
    found = re.match(r"(table|figure)(\d+)", path.stem)
    kind, number = (found[1], int(found[2])) if found else ("z", 0)
    return place, {"table": "a", "figure": "b"}.get(kind, kind), number, path.stem


def _part(path: Path) -> str:
    """Name the part of the site that a page belongs to."""
    if path.parent.name == "tables":
        return "Tables"
    if path.stem[0].isdigit():
        return "Reference"
    prefixes = {"start": "Start", "guide": "Guides", "index": "", "changelog": "Changelog"}
    return prefixes.get(path.stem.split("_")[0], "Method")


def parts(root: Path = ROOT) -> dict[str, list[Path]]:
    """List the pages of each part of the site, home first under no name."""
    names = ("", "Start", "Guides", "Tables", "Method", "Reference", "Changelog")
    found: dict[str, list[Path]] = {name: [] for name in names}
    folder = root / "nbs"
    pages = [*folder.glob("*.ipynb"), *folder.glob("tables/*.ipynb"), *folder.glob("*.md")]
    for path in sorted(pages, key=_order):
        found[_part(path)].append(path.relative_to(folder))
    return {name: pages for name, pages in found.items() if pages}


def _section(title: str, pages: list[Path], indent: str) -> list[str]:
    lines = [f"{indent}- section: {title}", f"{indent}  contents:"]
    return [*lines, *(f"{indent}    - {page.as_posix()}" for page in pages)]


def sidebar(root: Path = ROOT) -> str:
    """Write the sidebar: a section a part, the reference by floors of the house."""
    lines = [NOTE, "website:", "  sidebar:", "    contents:"]
    for name, pages in parts(root).items():
        if name in ("", "Changelog"):
            lines += [f"      - {page.as_posix()}" for page in pages]
        elif name == "Reference":
            lines += ["      - section: Reference", "        contents:"]
            for floor, title in enumerate(FLOORS):
                there = [page for page in pages if page.name[0] == str(floor)]
                lines += _section(title, there, " " * 10) if there else []
        else:
            lines += _section(name, pages, " " * 6)
    return "\n".join(lines) + "\n"


def opening(path: Path) -> tuple[str, str]:
    """Read a page's title and the sentence below it."""
    if path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
    else:
        text = nbformat.read(path, as_version=4).cells[0].source
    title, *rest = (line.strip() for line in text.splitlines() if line.strip())
    described = rest[0].removeprefix("> ") if rest and rest[0].startswith("> ") else ""
    return title.removeprefix("# "), described


def page_name(page: Path) -> str:
    """Name the page that Quarto makes of a notebook: nbdev drops the number."""
    return page.with_name(re.sub(r"^\d+[a-z]?_", "", page.stem) + ".html").as_posix()


def _listed(root: Path, pages: list[Path]) -> Iterator[str]:
    for page in pages:
        title, described = opening(root / "nbs" / page)
        address = page_name(page) + (".md" if page.suffix == ".ipynb" else "")
        yield f"- [{title}]({address})" + (f": {described}" if described else "")


def llms(root: Path = ROOT) -> str:
    """Write llms.txt: what the project is, and each page with a sentence, for language models."""
    title, described = opening(root / "nbs/index.ipynb")
    home = nbformat.read(root / "nbs/index.ipynb", as_version=4).cells[1].source
    about = home.split("\n\n")[0].replace("\n", " ")
    lines = [f"# {title}", "", f"> {described}", "", about]
    for name, pages in parts(root).items():
        lines += ["", f"## {name or 'Home'}", "", *_listed(root, pages)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check both files."""
    made = {ROOT / "nbs/sidebar.yml": sidebar(), ROOT / "nbs/llms.txt": llms()}
    if "--check" not in sys.argv[1:]:
        for path, text in made.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [
        path.name
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if stale:
        print(f"{' and '.join(stale)} out of date: run `make site`", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
