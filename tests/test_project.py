"""The repository's own promises: one source of metadata, clean exports, light import."""

import filecmp
import json
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser

import pytest

NOTEBOOK_FOLDERS = ("nbs", "nbs/tables")


def notebooks(root):
    return [path for folder in NOTEBOOK_FOLDERS for path in sorted((root / folder).glob("*.ipynb"))]


def settings(root):
    config = ConfigParser(delimiters=["="])
    config.read(root / "settings.ini", encoding="utf-8")
    return config["DEFAULT"]


def test_metadata_is_written_once(root):
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    ini = settings(root)
    assert project["name"] == ini["lib_name"]
    assert project["description"] == ini["description"]
    assert project["requires-python"] == f">={ini['min_python']}"
    import seval_ex

    assert seval_ex.__version__ == ini["version"]
    assert f"## {ini['version']}" in (root / "CHANGELOG.md").read_text("utf-8")


@pytest.fixture(scope="module")
def rebuilt(root, tmp_path_factory):
    """A copy of the project after nbdev-export and nbdev-clean."""
    copy = tmp_path_factory.mktemp("rebuilt") / "project"
    ignore = shutil.ignore_patterns(
        ".venv", ".git", "runs", "*.egg-info", "__pycache__", ".*_cache"
    )
    shutil.copytree(root, copy, symlinks=True, ignore=ignore)
    for command in (
        "from nbdev.doclinks import nbdev_export; nbdev_export()",
        "from nbdev.clean import nbdev_clean; nbdev_clean()",
    ):
        subprocess.run([sys.executable, "-c", command], cwd=copy, check=True)
    return copy


def test_export_leaves_no_diff(root, rebuilt):
    here = sorted(path.name for path in (root / "seval_ex").glob("*.py"))
    assert here == sorted(path.name for path in (rebuilt / "seval_ex").glob("*.py"))
    _, different, errors = filecmp.cmpfiles(
        root / "seval_ex", rebuilt / "seval_ex", here, shallow=False
    )
    assert not different and not errors, f"run `make export`: {different + errors}"


def test_notebooks_are_clean(root, rebuilt):
    for path in notebooks(root):
        cleaned = (rebuilt / path.relative_to(root)).read_text("utf-8")
        assert path.read_text("utf-8") == cleaned, f"run `make clean-notebooks`: {path.name}"


def test_tables_keep_their_parameters_tag_and_outputs(root):
    tables = sorted((root / "nbs/tables").glob("*.ipynb"))
    assert tables
    for path in tables:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
        assert len(tagged) == 1, path.name
        assert any(cell.get("outputs") for cell in cells), f"{path.name} was never executed"


def test_committed_tables_were_measured_on_the_real_data(root):
    for path in sorted((root / "nbs" / "tables").glob("*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        note = "".join(outputs[0]["text"])
        whole = ("Data: SummEval, 1600 summaries", "Data: XSUM validation articles: 524 summaries")
        assert note.startswith(whole), f"{path.name} was run on other data: {note[:60]}"


def test_notebooks_hold_no_error_and_no_machine_path(root):
    paths = re.compile(r"/(home|root|tmp|work)/\w+/")
    for path in notebooks(root):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                assert output["output_type"] != "error", path.name
                assert not paths.search(json.dumps(output)), path.name


def test_notebooks_begin_with_a_title(root):
    for path in notebooks(root):
        first = json.loads(path.read_text("utf-8"))["cells"][0]
        assert "".join(first["source"]).startswith("# "), path.name


def test_cell_ids_are_unique(root):
    for path in notebooks(root):
        ids = [cell["id"] for cell in json.loads(path.read_text("utf-8"))["cells"]]
        assert len(set(ids)) == len(ids), path.name


def test_readme_is_up_to_date(root):
    subprocess.run([sys.executable, "tools/readme.py", "--check"], cwd=root, check=True)


def test_readme_links_exist(root):
    links = re.findall(r"\]\(([^)#]+)\)", (root / "README.md").read_text("utf-8"))
    assert links
    for link in links:
        if not link.startswith("http"):
            assert (root / link).exists(), link


def test_quarto_configuration_is_the_root_one(root):
    assert (root / "nbs/_quarto.yml").is_symlink()
    assert str((root / "nbs/_quarto.yml").readlink()) == "../_quarto.yml"
    for page in re.findall(r"- ([\w/]+\.ipynb)", (root / "_quarto.yml").read_text("utf-8")):
        assert (root / "nbs" / page).exists(), page


def test_import_is_light():
    heavy = ("numpy", "pandas", "scipy", "seaborn", "matplotlib", "papermill", "datasets", "nbdev")
    code = f"import seval_ex, sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_modules_import_only_from_lower_floors(root):
    """A notebook's tens digit is its floor; a module imports from its left or from below."""
    numbers = {
        path.stem.split("_", 1)[1]: int(path.stem.split("_", 1)[0])
        for path in (root / "nbs").glob("[0-9]*.ipynb")
    }
    for name, number in numbers.items():
        text = (root / "seval_ex" / f"{name}.py").read_text("utf-8")
        for used in re.findall(
            r"^\s*from \.(\w+) import|^\s*from seval_ex\.(\w+) import", text, re.M
        ):
            other = next(filter(None, used))
            assert numbers[other] < number, f"{name} imports {other}"
