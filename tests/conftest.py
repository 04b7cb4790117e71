import os
from pathlib import Path

import pytest

# An empty variable means that there is no data; everything below reads it as unset.
if not os.environ.get("SEVAL_EX_DATA", "unset"):
    del os.environ["SEVAL_EX_DATA"]
os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = os.environ.get("SEVAL_EX_DATA")
    if not folder:
        pytest.skip("SEVAL_EX_DATA names no data folder, so this figure can't be measured here")
    return Path(folder)
