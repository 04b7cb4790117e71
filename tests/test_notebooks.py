"""Each notebook is one test, run as nbdev-test runs it."""

import pytest
from nbdev.config import get_config
from nbdev.doclinks import nbglob
from nbdev.test import test_nb as run_notebook

config = get_config()
run_notebook.__test__ = False  # its name would make pytest collect it


@pytest.mark.parametrize(
    "path",
    sorted(nbglob(as_path=True)),
    ids=lambda path: str(path.relative_to(config.nbs_path)),
)
def test_notebook(path):
    passed, _ = run_notebook(
        path.absolute(), skip_flags=config.tst_flags.split(), basepath=config.config_path
    )
    assert passed
