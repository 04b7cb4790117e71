"""How the public names of a module look on its page of the reference.

nbdev finds `ShowDocs` and `AddLinks` through `doc_procs` in pyproject.toml, in place of two of its
own. Those run cells of the notebook, take the sections of numpydoc docstrings for headings of the
page, evaluate annotations, which fails where they name a library that is imported late, and link to
absolute addresses, of the first function of a name.
"""

import enum
import inspect
import re
from importlib import import_module
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from nbdev.config import get_config
from nbdev.process import Processor

from seval_ex._modidx import d as index

WIDTH = 96
SECTION = re.compile(r"^([A-Z][A-Za-z ]+)\n-{3,}[ \t]*$", re.MULTILINE)
LISTED = ("Parameters", "Attributes", "Returns", "Yields", "Raises")
MODULE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")
FORWARD = re.compile(r"ForwardRef\('(\w+)'[^)]*\)")
BACKTICKS = re.compile(r"(?<![\[`\w])`([\w.]+)(?:\(\))?`(?![\]`])")
SHOWN = re.compile(r"^show_doc\((\w+)\)", re.MULTILINE)
ROLE = re.compile(r":math:`([^`]+)`")


class Section(NamedTuple):
    """A part of a docstring; the first has no title."""

    title: str
    text: str


def sections(docstring: str) -> list[Section]:
    """Take a numpydoc docstring apart."""
    first, *rest = SECTION.split(inspect.cleandoc(docstring))
    parts = [Section("", first.strip())]
    return parts + [Section(a, b.strip()) for a, b in zip(rest[::2], rest[1::2], strict=True)]


def _prose(text: str) -> str:
    text = ROLE.sub(lambda found: "$" + " ".join(found[1].split()) + "$", text)
    return text.replace("``", "`")


def _items(text: str) -> str:
    """Make a list of the entries of a section: a line each, with its meaning indented below."""
    entries: list[list[str]] = []
    for line in text.splitlines():
        if line and not line[0].isspace():
            entries.append([line])
        elif entries:
            entries[-1].append(line.strip())
    return "\n".join(_item(head, " ".join(filter(None, body))) for head, *body in entries)


def _item(head: str, meaning: str) -> str:
    name, colon, kind = head.partition(" : ")
    shown = f"`{name}`" + (f" ({kind})" if colon else "")
    return f"- {shown}: {_prose(meaning)}" if meaning else f"- {shown}"


def _examples(text: str) -> str:
    return f"```python\n{text}\n```"


def markdown(docstring: str) -> str:
    """Write a numpydoc docstring as Markdown without headings."""
    made = []
    for title, text in sections(docstring):
        body = _prose(text)
        if title in LISTED:
            body = _items(text)
        elif title == "Examples":
            body = _examples(text)
        made.append(f"**{title}**\n\n{body}" if title else body)
    return "\n\n".join(filter(None, made))


def _annotation(annotation: Any) -> str:
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return MODULE.sub("", FORWARD.sub(r"\1", shown))


def _parameter(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    shown = star + parameter.name
    typed = parameter.annotation is not parameter.empty
    if typed:
        shown += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = parameter.default
        value = getattr(default, "__name__", None) or re.sub(r" at 0x\w+", "", repr(default))
        shown += f" = {value}" if typed else f"={value}"
    return shown


def _parameters(signature: inspect.Signature) -> list[str]:
    """List parameters as they are written, with the bare star before those that need a name."""
    shown, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        shown.append(_parameter(parameter))
    return shown


def signature(thing: Any, name: str) -> str:
    """Write the line that defines a class or function, or as many lines as it needs."""
    word = "class" if inspect.isclass(thing) else "def"
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        return "\n".join(
            [f"class {name}", *(f"    {each.name} = {each.value!r}" for each in thing)]
        )
    if isinstance(thing, type) and issubclass(thing, Exception):
        return f"class {name}({', '.join(base.__name__ for base in thing.__bases__)})"
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"{word} {name}"
    returns = ""
    if word == "def" and found.return_annotation is not found.empty:
        returns = f" -> {_annotation(found.return_annotation)}"
    parameters = _parameters(found)
    line = f"{word} {name}({', '.join(parameters)}){returns}"
    if len(line) <= WIDTH:
        return line
    body = "".join(f"    {each},\n" for each in parameters)
    return f"{word} {name}(\n{body}){returns}"


def _methods(thing: type) -> str:
    """List a class's own public methods and properties, each with its first line."""
    lines = []
    for name, member in vars(thing).items():
        function = getattr(member, "func", None) or getattr(member, "fget", None) or member
        function = getattr(function, "__func__", function)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        call = "" if function is not member and not isinstance(member, classmethod) else "()"
        first = inspect.cleandoc(function.__doc__).split("\n\n")[0]
        lines.append(f"- `{name}{call}`: {_prose(' '.join(first.split()))}")
    return "**Methods and properties**\n\n" + "\n".join(lines) if lines else ""


def entry(symbol: Any, name: str, link: str = "") -> str:
    """Write a public name's entry: heading, link to its code, signature, docstring."""
    parts = [
        "---",
        f"### {name}",
        f'[source]({link}){{style="float:right; font-size:smaller"}}' if link else "",
        f"```python\n{signature(symbol, name)}\n```",
        markdown(symbol.__doc__ or ""),
        _methods(symbol) if isinstance(symbol, type) else "",
    ]
    return "\n\n".join(filter(None, parts))


def page_module(path: str | Path) -> str:
    """Name the module that a notebook exports, from the notebook's name."""
    number, _, name = Path(path).stem.partition("_")
    return f"seval_ex.{name}" if number.isdigit() else ""


def pages() -> dict[str, str]:
    """List the notebook of each module."""
    return {page_module(path): path.name for path in get_config().nbs_path.glob("[0-9]*.ipynb")}


def places() -> dict[str, list[str]]:
    """List the modules that define each public name; methods stand under their class."""
    found: dict[str, list[str]] = {}
    for module, names in index["syms"].items():
        for full in names:
            name = full.removeprefix(f"{module}.")
            if not any(part.startswith("_") for part in name.split(".")):
                found.setdefault(name, []).append(module)
    return found


class Linker:
    """Link names in backticks to their entries.

    A name of the page's own module comes first. The functions of the command line, whose names are
    common words, are linked from their own page alone.
    """

    def __init__(self, page: Path) -> None:
        self.module = page_module(page)
        self.up = "../" * (len(page.parent.resolve().relative_to(get_config().nbs_path).parts))
        self.places, self.pages = places(), pages()

    def _address(self, name: str) -> str | None:
        if name in self.pages and name != self.module:
            return self.up + self.pages[name]
        module, _, last = name.rpartition(".")
        if module in self.pages:
            modules = [module] if module in self.places.get(last, []) else []
        else:
            modules, last = self.places.get(name, []), name.split(".")[0]
        if self.module not in modules:
            modules = [each for each in modules if each != "seval_ex.cli"]
        chosen = self.module if self.module in modules else modules[0] if len(modules) == 1 else ""
        if not chosen:
            return None
        page = "" if chosen == self.module else self.up + self.pages[chosen]
        return f"{page}#{last.lower()}"

    def _linked(self, found: re.Match[str]) -> str:
        address = self._address(found[1])
        return f"[{found[0]}]({address})" if address else found[0]

    def link(self, text: str) -> str:
        """Link the names of a Markdown text, but for its headings and blocks of code."""
        lines, fenced = text.splitlines(), False
        for number, line in enumerate(lines):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith(("#", "    ")):
                lines[number] = BACKTICKS.sub(self._linked, line)
        return "\n".join(lines)


class ShowDocs(Processor):
    """Give nbdev's `show_doc` cells their output, taken from the exported module.

    nbdev puts the cells of one exported cell in reverse; here they stand as in the module.
    """

    def begin(self) -> None:
        """Note whose page it is, and sort entries that follow one another."""
        self.path = Path(self.nb.path_)
        self.linker = Linker(self.path)
        cells = self.nb.cells
        if any(map(_name_shown, cells)):
            runs = groupby(cells, key=lambda cell: bool(_name_shown(cell)))
            parts = [sorted(run, key=self._line) if named else list(run) for named, run in runs]
            cells[:] = list(chain.from_iterable(parts))

    def _symbol(self, cell: Any) -> Any:
        return getattr(import_module(page_module(self.path)), _name_shown(cell))

    def _line(self, cell: Any) -> int:
        return inspect.getsourcelines(self._symbol(cell))[1]

    def _source(self, cell: Any) -> str:
        """Write the address of a name's code."""
        config = get_config()
        file = self._symbol(cell).__module__.replace(".", "/") + ".py"
        return f"{config.git_url}/blob/{config.branch}/{file}#L{self._line(cell)}"

    def cell(self, cell: Any) -> None:
        """Fill one cell, if it shows a name."""
        name = _name_shown(cell)
        if name:
            text = self.linker.link(entry(self._symbol(cell), name, self._source(cell)))
            data = {"text/markdown": text.splitlines(keepends=True)}
            cell.outputs = [{"output_type": "display_data", "data": data, "metadata": {}}]


def _name_shown(cell: Any) -> str:
    found = SHOWN.search(cell.source) if cell.cell_type == "code" else None
    return found[1] if found else ""


class AddLinks(Processor):
    """Link the names in a page's prose to their entries, by relative addresses."""

    def begin(self) -> None:
        """Note whose page it is."""
        self.linker = Linker(Path(self.nb.path_))

    def cell(self, cell: Any) -> None:
        """Link the names of one cell."""
        if cell.cell_type == "markdown":
            cell.source = self.linker.link(cell.source)
