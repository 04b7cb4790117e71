"""Every public function has a live example in its notebook, and no notebook is a wall of code."""

import ast
import enum
import importlib
import inspect
import json
from pathlib import Path

import pytest
from pydantic import BaseModel

NOTEBOOKS = Path(__file__).resolve().parent.parent / "nbs"
MODULES = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
# Classes that are only read or caught need no example of how they are called.
NOT_CALLED = (BaseException, BaseModel, enum.Enum, tuple)
WORDS_A_CODE_CELL = 7.5


def read(path):
    return json.loads(path.read_text("utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def names_in(code):
    """List the names that a cell uses; the commands of a command line are strings."""
    lines = [line for line in code.splitlines() if not line.startswith(("%", "!"))]
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def called(module):
    """List the public functions and classes that a user calls."""
    for name in module.__all__:
        thing = getattr(module, name)
        if getattr(thing, "__module__", "") != module.__name__:
            continue
        is_class = inspect.isclass(thing)
        if inspect.isfunction(thing) or (
            is_class
            and not issubclass(thing, NOT_CALLED)
            and not thing.__dict__.get("_is_protocol")
        ):
            yield name


def bases(module, names):
    """Add the classes whose subclasses are used: an example of one is an example of both."""
    for name in names:
        thing = getattr(module, name, None)
        yield from (base.__name__ for base in thing.__mro__) if inspect.isclass(thing) else [name]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_public_function_has_an_example_that_shows_something(path):
    module = importlib.import_module(f"seval_ex.{path.stem.partition('_')[2]}")
    shown = {
        name
        for cell in read(path)
        if cell["cell_type"] == "code" and cell["outputs"] and "# | export" not in source(cell)
        for name in names_in(source(cell))
    }
    missing = set(called(module)) - set(bases(module, shown))
    assert not missing, f"{path.name} shows no example of {', '.join(sorted(missing))}"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.rglob("*.ipynb")), ids=lambda path: path.stem)
def test_no_notebook_is_a_wall_of_code(path):
    cells = [cell for cell in read(path) if source(cell).strip()]
    words = sum(len(source(cell).split()) for cell in cells if cell["cell_type"] == "markdown")
    code = sum(cell["cell_type"] == "code" for cell in cells)
    assert words >= WORDS_A_CODE_CELL * code, f"{words} words of prose for {code} cells of code"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("[sgm]*.ipynb")), ids=lambda path: path.stem)
def test_guides_are_short_and_show_results(path):
    cells = read(path)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(len(source(cell).splitlines()) <= 40 for cell in code)
    for cell in code:
        lines = ast.parse(source(cell)).body
        is_check = any(isinstance(line, ast.Assert) for line in lines)
        if isinstance(lines[-1], ast.Expr) and not is_check:
            assert cell["outputs"], f"execute {path.name}: {source(cell)[-60:]}"
    assert sum(len(source(cell).split()) for cell in cells) < 2500
