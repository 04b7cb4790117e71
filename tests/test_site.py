"""The docs site, as far as it can be checked without Quarto.

nbdev processes the notebooks of a copy of the project, and what comes out is read as Quarto and
pandoc would read it: page names, headings with their anchors, links, images and citations.
"""

import copy
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+(?:\([^()\s]*\))?)(?:\s+\"[^\"]*\")?\)")
ADDRESS = re.compile(r"""<(?:a|img|link|script|source)\b[^>]*?\s(?:href|src)=["']([^"']+)["']""")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
IDENTIFIER = re.compile(r"\{[^{}]*#([\w:.-]+)[^{}]*\}")
CITATION = re.compile(r"(?<![\w/@.\\-])-?@([A-Za-z][\w:-]*\w)")
CROSS_REFERENCES = ("eq-", "fig-", "lst-", "sec-", "tbl-")
NO_QUARTO = "#!/bin/sh\necho 'pages are processed without Quarto' >&2\nexit 1\n"


def anchor(heading):
    """Make the identifier that pandoc gives a heading (its extension auto_identifiers)."""
    text = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", heading)
    text = re.sub(r"[^\w\s.-]", "", text.replace("*", "")).lower()
    return re.sub(r"^[\W\d_]+", "", re.sub(r"\s+", "-", text.strip())) or "section"


@pytest.mark.parametrize(
    "heading, expected",
    [  # the examples of pandoc's manual, and some of ours
        ("Heading identifiers in HTML", "heading-identifiers-in-html"),
        ("Maître d'hôtel", "maître-dhôtel"),
        ("*Dogs*?--in *my* house?", "dogs--in-my-house"),
        ("[HTML], [S5], or [RTF]?", "html-s5-or-rtf"),
        ("3. Applications", "applications"),
        ("33", "section"),
        ("evaluate_pairs", "evaluate_pairs"),
        ("How `f1` is [made](x.ipynb#y)", "how-f1-is-made"),
    ],
)
def test_anchors_are_pandocs(heading, expected):
    assert anchor(heading) == expected


class Page:
    """A processed page: its prose, and what stands in its outputs."""

    def __init__(self, path, folder):
        self.path, self.name = path, path.relative_to(folder).as_posix()
        self.prose, self.html, self.front = [], [], {}
        if path.suffix == ".md":
            self.prose.append(path.read_text("utf-8"))
        else:
            for cell in json.loads(path.read_text("utf-8"))["cells"]:
                self._read(cell)
        self.text = CODE.sub("", FENCE.sub("", "\n\n".join(self.prose)))

    def _read(self, cell):
        source = "".join(cell["source"])
        if cell["cell_type"] == "raw":
            self.front |= next(yaml.safe_load_all(source.strip().removeprefix("---")))
        elif cell["cell_type"] == "markdown":
            self.prose.append(source)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            self.html.append("".join(data.get("text/html", "")))
            self.prose.append("".join(data.get("text/markdown", "")))

    @property
    def output(self):
        """The page that Quarto makes of it."""
        name = self.front.get("output-file", f"{self.path.stem}.html")
        return Path(self.name).with_name(name).as_posix()

    @property
    def anchors(self):
        """Identifiers of headings, and those given by hand or in HTML."""
        headings, found = Counter(), set()
        for heading in HEADING.findall(FENCE.sub("", "\n\n".join(self.prose))):
            given = IDENTIFIER.search(heading)
            name = given[1] if given else anchor(heading)
            found.add(f"{name}-{headings[name]}" if headings[name] else name)
            headings[name] += 1
        found |= set(IDENTIFIER.findall(self.text))
        return found | set(re.findall(r"""\sid=["']([^"']+)["']""", "".join(self.html)))

    @property
    def links(self):
        return [
            *LINK.findall(self.text),
            *ADDRESS.findall(self.text),
            *(address for html in self.html for address in ADDRESS.findall(html)),
        ]


@pytest.fixture(scope="module")
def processed(root, tmp_path_factory):
    """The folder that nbdev-proc-nbs leaves for Quarto, made where there is no Quarto."""
    folder = tmp_path_factory.mktemp("site")
    project = folder / "project"
    ignore = shutil.ignore_patterns(
        *(".venv", ".git", "_proc", "_docs", "runs", "*.egg-info", "__pycache__", ".*_cache")
    )
    shutil.copytree(root, project, symlinks=True, ignore=ignore)
    # nbdev-proc-nbs looks for Quarto and, where it finds none, installs it with sudo. It never
    # calls it, so a stand-in that only fails shows that no step needs it.
    stand_in = folder / "bin" / "quarto"
    stand_in.parent.mkdir()
    stand_in.write_text(NO_QUARTO)
    stand_in.chmod(0o755)
    path = f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}"
    command = [Path(sys.executable).with_name("nbdev-proc-nbs"), "--n-workers", "1"]
    done = subprocess.run(
        command, cwd=project, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return project / "_proc"


@pytest.fixture(scope="module")
def pages(processed):
    paths = [*processed.rglob("*.ipynb"), *processed.rglob("*.md")]
    return {path.resolve(): Page(path, processed) for path in sorted(paths)}


def test_every_notebook_became_a_page(root, pages):
    made = {page.name for page in pages.values()}
    assert made == {
        path.relative_to(root / "nbs").as_posix()
        for pattern in ("*.ipynb", "*.md", "tables/*.ipynb")
        for path in (root / "nbs").glob(pattern)
    }


def test_page_names_are_unique(pages):
    names = Counter(page.output.lower() for page in pages.values())
    assert not [name for name, times in names.items() if times > 1]


def test_pages_have_a_title_and_modules_a_description(pages):
    for page in pages.values():
        if page.path.suffix == ".ipynb":
            assert page.front.get("title"), page.name
            assert page.front.get("description"), f"{page.name} needs a line '> …' below its title"


def test_the_first_cell_is_title_and_description_alone(root):
    """Nbdev makes the page's metadata of it and drops whatever else it holds."""
    for pattern in ("*.ipynb", "tables/*.ipynb"):
        for path in (root / "nbs").glob(pattern):
            first = json.loads(path.read_text("utf-8"))["cells"][0]
            text = "".join(first["source"])
            assert re.fullmatch(r"# .+\n\n> .+", text), f"{path.name}: begin a second cell"


def test_internal_links_and_images_exist(pages, processed):
    broken, checked = [], 0
    for page in pages.values():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            checked += 1
            file, _, fragment = link.partition("#")
            target = (page.path.parent / file).resolve() if file else page.path.resolve()
            if not target.is_relative_to(processed.resolve()) or not target.exists():
                broken.append(f"{page.name}: {link} (no such file)")
            elif fragment and target in pages and fragment not in pages[target].anchors:
                broken.append(f"{page.name}: {link} (no such heading)")
    assert not broken, "\n".join(broken)
    assert checked > 100


def test_external_links_are_whole(pages):
    for page in pages.values():
        for link in page.links:
            if link.startswith("http"):
                assert re.fullmatch(r"https?://[\w.-]+(:\d+)?(/\S*)?", link), f"{page.name}: {link}"


def test_every_public_name_of_a_module_has_an_entry(pages):
    modules = [page for page in pages.values() if page.name[0].isdigit()]
    assert modules
    for page in modules:
        module = importlib.import_module(f"seval_ex.{Path(page.output).stem}")
        for name in module.__all__:
            thing = getattr(module, name)
            is_here = getattr(thing, "__module__", "") == module.__name__
            if is_here and (inspect.isclass(thing) or inspect.isfunction(thing)):
                assert name.lower() in page.anchors, f"{page.name} has no entry for {name}"


def test_entries_of_the_reference_add_no_headings(pages):
    page = next(page for page in pages.values() if page.name == "07_pipeline.ipynb")
    text = "\n\n".join(page.prose)
    assert "### evaluate_many" in text and "**Returns**" in text
    assert not re.search(r"^\S.*\n(-{3,}|={3,})$", FENCE.sub("", text), re.MULTILINE)


def test_entries_stand_as_in_the_module(pages):
    page = next(page for page in pages.values() if page.name == "07_pipeline.ipynb")
    text = "\n\n".join(page.prose)
    assert text.index("### EngineOptions") < text.index("### Parts")


DOCSTRING = """Count words.

    Uses :math:`a + b` and ``code``.

    Parameters
    ----------
    text : str
        Any text,
        in any language.
    size : int, default 3
        How many.

    Examples
    --------
    >>> count("a")
    1
    """


def test_docstrings_become_markdown_without_headings():
    from seval_ex_tools.reference import markdown

    assert markdown(DOCSTRING) == (
        "Count words.\n\nUses $a + b$ and `code`.\n\n**Parameters**\n\n"
        "- `text` (str): Any text, in any language.\n- `size` (int, default 3): How many.\n\n"
        '**Examples**\n\n```python\n>>> count("a")\n1\n```'
    )


def test_signatures_are_written_as_code():
    from seval_ex_tools.reference import signature

    def sample(text: "pd.DataFrame", *rest: int, size: int | None = None, **other: str) -> bool:  # noqa: F821
        raise NotImplementedError

    written = (
        "def sample(text: DataFrame, *rest: int, size: int | None = None, **other: str) -> bool"
    )
    assert signature(sample, "sample") == written


def cited(page):
    return {name for name in CITATION.findall(page.text) if not name.startswith(CROSS_REFERENCES)}


def test_the_bibliography_is_what_is_cited(root, pages):
    entries = re.findall(r"^@\w+\{([^,]+),", (root / "nbs/references.bib").read_text("utf-8"), re.M)
    assert len(set(entries)) == len(entries)
    assert set(entries) == set().union(*map(cited, pages.values()))


def test_cross_references_are_on_their_page(pages):
    found = 0
    for page in pages.values():
        names = {name for name in CITATION.findall(page.text) if name.startswith(CROSS_REFERENCES)}
        assert names <= page.anchors, page.name
        found += len(names)
    assert found


def test_no_page_has_a_mermaid_diagram(pages):
    for page in pages.values():  # nbdev renders pages to commonmark too, where Quarto fails on them
        assert not re.search(r"^\s*```\s*\{?mermaid", "\n".join(page.prose), re.MULTILINE)


def test_sidebar_and_llms_txt_are_up_to_date(root):
    subprocess.run([sys.executable, "tools/site.py", "--check"], cwd=root, check=True)


def listed(contents):
    for entry in contents:
        if isinstance(entry, str):
            yield entry
        else:
            yield from listed(entry["contents"])


def test_every_page_stands_in_the_sidebar_once(pages, processed):
    sidebar = yaml.safe_load((processed / "sidebar.yml").read_text("utf-8"))["website"]["sidebar"]
    assert sorted(listed(sidebar["contents"])) == sorted(page.name for page in pages.values())
    parts = [entry["section"] for entry in sidebar["contents"] if isinstance(entry, dict)]
    assert parts == ["Start", "Guides", "Tables", "Method", "Reference"]


def test_llms_txt_names_every_page(pages, processed):
    links = LINK.findall((processed / "llms.txt").read_text("utf-8"))
    assert sorted(link.removesuffix(".md") for link in links) == sorted(
        page.output for page in pages.values()
    )


def merged(first, second):
    """Merge configurations as Quarto merges metadata-files."""
    if isinstance(first, dict) and isinstance(second, dict):
        both = {key: merged(first[key], second[key]) for key in first.keys() & second.keys()}
        return {**first, **second, **both}
    return second


@pytest.fixture(scope="module")
def configuration(processed):
    main = yaml.safe_load((processed / "_quarto.yml").read_text("utf-8"))
    for name in main["metadata-files"]:
        main = merged(main, yaml.safe_load((processed / name).read_text("utf-8")))
    return main


@pytest.fixture(scope="module")
def accepted(root):
    """What Quarto 1.9 accepts; tools/quarto_schema.py says where it is from."""
    schema = json.loads((root / "tests/quarto_schema.json").read_text("utf-8"))
    assert "quarto-cli v1.9" in schema["$comment"]
    return Draft202012Validator(schema)


def test_quarto_accepts_the_configuration(configuration, accepted):
    errors = [
        f"{list(error.absolute_path)}: {error.message}"
        for error in accepted.iter_errors(configuration)
    ]
    assert not errors, errors
    assert configuration["website"]["sidebar"]["contents"] and configuration["website"]["title"]


@pytest.mark.parametrize(
    "place, value",
    [
        (("websites",), {}),
        (("website", "serach"), True),
        (("website", "sidebar", "style"), "flying"),
        (("website", "search"), "yes, please"),
        (("format", "html", "code-copi"), True),
        (("format", "html", "toc"), "please"),
        (("execute", "enable"), False),
        (("project", "resource"), ["llms.txt"]),
    ],
)
def test_what_quarto_does_not_accept_is_found(configuration, accepted, place, value):
    wrong = copy.deepcopy(configuration)
    inner = wrong
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert not accepted.is_valid(wrong)


def test_files_that_the_configuration_names_exist(configuration, processed):
    assert (processed / configuration["bibliography"]).is_file()
    for name in configuration["project"]["resources"]:
        assert (processed / name).is_file()
    html = configuration["format"]["html"]
    assert {"light", "dark"} == set(html["theme"]) and html["code-copy"] is True
    assert configuration["website"]["search"] is True


def test_make_docs_says_how_to_get_quarto(root, tmp_path):
    make, shell = shutil.which("make"), shutil.which("sh")
    (tmp_path / "sh").symlink_to(shell)
    done = subprocess.run(
        [make, "docs"], cwd=root, env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode != 0 and "https://quarto.org/docs/get-started" in done.stderr
