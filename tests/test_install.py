"""Wheel and sdist, each installed into an environment that has nothing else."""

import json
import subprocess
import sys
import venv

import pytest

CHECK = """
import json, importlib.resources as resources
import seval_ex
from seval_ex.datasets import load_sample
from seval_ex.tables import list_tables
print(json.dumps({
    "version": seval_ex.__version__,
    "file": seval_ex.__file__,
    "prompts": resources.files("seval_ex.prompts").is_dir(),
    "sample": len(load_sample()),
    "tables": list_tables(),
}))
"""


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(root)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_a_clean_environment(built, pattern, tmp_path):
    [package] = built.glob(pattern)
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(package)], check=True, cwd=tmp_path)
    done = subprocess.run([python, "-c", CHECK], cwd=tmp_path, capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert str(environment) in found["file"] and found["prompts"]
    assert found["sample"] == 112 and "table1_pipeline_variants" in found["tables"]

    (tmp_path / "source.txt").write_text("The mill burned down in May.")
    (tmp_path / "summary.txt").write_text("The mill burned down in June.")
    script = environment / "bin" / "seval-ex"
    arguments = ["score", "--source", "source.txt", "--summary", "summary.txt"]
    scored = subprocess.run([script, *arguments], cwd=tmp_path, capture_output=True, check=True)
    assert "“June”" in scored.stdout.decode()
    tables = subprocess.run([script, "tables"], cwd=tmp_path, capture_output=True)
    assert tables.returncode == 1 and b"seval_ex[tables]" in tables.stderr
