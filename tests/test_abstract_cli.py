"""`seval-ex abstract` and the abstractiveness tables, as a user runs them."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from seval_ex.datasets import DataError, find_xsum, load_xsum_predictions, read_table, write_table
from seval_ex.tables import abstraction_data, by_set, list_tables, run_table

SOURCE = "The mill burned down in May. Nobody was hurt."
SUMMARY = "The mill burned down."
REFERENCE = "A fire destroyed the mill."
TABLES = [
    "table4_reference_abstraction",
    "table5_summary_abstraction",
    "table6_abstraction_ratio",
    "table7_ar_risk",
    "table8_rouge_vs_ar",
]


def command(*arguments, stdin=None):
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from seval_ex.cli import main; main()",
            "abstract",
            *map(str, arguments),
        ],
        input=stdin,
        capture_output=True,
    )


@pytest.fixture
def files(tmp_path):
    given = []
    for name, text in {"source": SOURCE, "summary": SUMMARY, "reference": REFERENCE}.items():
        (tmp_path / name).write_text(text)
        given += [f"--{name}", tmp_path / name]
    return given


def test_one_triple(files):
    done = command(*files)
    assert done.returncode == 0 and done.stderr == b""
    assert "F1 (4 words, source 0): The mill burned down" in done.stdout.decode()
    content = json.loads(command(*files, "--json").stdout)
    assert content["cS1"] == 1 and content["risk2"] == "extractive" and content["flags"] == []
    alone = json.loads(command(*files[:4], "--json").stdout)
    assert "AR1" not in alone and alone["density"] == 4
    piped = command(*files[:3], "-", "--json", stdin=b"")
    assert json.loads(piped.stdout)["flags"] == ["empty_summary"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_files_of_every_format(ending, tmp_path):
    pairs = pd.DataFrame(
        {
            "article": [SOURCE, SOURCE, ""],
            "text": [SUMMARY, "", "Two\nlines."],
            "human": [REFERENCE, REFERENCE, REFERENCE],
        }
    )
    write_table(pairs, tmp_path / f"in.{ending}")
    columns = ["--source-column", "article", "--summary-column", "text"]
    places = [tmp_path / f"in.{ending}", tmp_path / f"out.{ending}"]
    done = command(*places, *columns, "--reference-column", "human", "--companions")
    assert done.returncode == 0, done.stderr
    found = read_table(
        tmp_path / f"out.{ending}", source="article", summary="text", reference="human"
    )
    assert found["summary"].tolist() == pairs["text"].tolist()
    assert found["flags"].tolist() == ["", "empty_summary", "empty_source"]
    assert found["SA1"].tolist()[:2] == [0, 0] and found["AR1"].isna().tolist()[1:] == [True] * 2
    assert "mint" in found and b"3 rows" in done.stdout
    without = command(*places, *columns, "--reference-column", "", "--prefix", "x_")
    assert without.returncode == 0, without.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "either"),
        (["in.csv"], "IN and OUT"),
        (["in.csv", "out.csv", "--source", "x"], "either"),
        (["--source", "x"], "--summary"),
        (["--source", "-", "--summary", "-"], "standard input"),
        (["nowhere.csv", "out.csv"], "nowhere.csv"),
        (["nowhere.parquet", "out.parquet"], "nowhere.parquet"),
    ],
)
def test_wrong_use(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command(*arguments)
    text = done.stderr.decode()
    assert done.returncode in (1, 2) and says in text and "Traceback" not in text


@pytest.mark.parametrize("option", [["--eps", "-1"], ["--exponent", "0"], ["--tokens", "bytes"]])
def test_wrong_options(files, option):
    done = command(*files, *option)
    assert done.returncode == 2 and option[0].strip("-") in done.stderr.decode()


@pytest.mark.parametrize("name", TABLES)
def test_table_runs_on_the_sample_and_says_so(name, tmp_path):
    assert name in list_tables()
    run = run_table(name, {"data": "sample", "resamples": 50}, out=tmp_path, progress=False)
    record = json.loads((tmp_path / name / f"{name}.json").read_text("utf-8"))
    assert "NOT XSUM" in record["parameters"]["note"] and len(record["results"]) > 0
    assert sorted(path.suffix for path in run.outputs) == [".csv", ".json"]
    cells = json.loads(run.notebook.read_text("utf-8"))["cells"]
    first = next(cell for cell in cells if cell.get("outputs"))
    assert "".join(first["outputs"][0]["text"]).startswith("Data: the sample")


def test_a_table_runs_on_own_files(tmp_path):
    rows = [
        {"doc": SOURCE, "made": text, "human": REFERENCE, "model": model}
        for model, text in (("A", SUMMARY), ("B", "It was in flames."), ("C", ""))
    ]
    write_table(pd.DataFrame(rows), tmp_path / "own.csv")
    given = {"source": "doc", "summary": "made", "reference": "human", "system": "model"}
    given |= {"data": str(tmp_path / "own.csv"), "resamples": 0}
    run = run_table("table7_ar_risk", given, out=tmp_path, progress=False)
    results = pd.read_csv(run.outputs[0])
    assert results["system"].tolist() == ["A", "B", "C"]
    assert results["undefined"].tolist() == [0, 0, 1]
    frame, note = abstraction_data(str(tmp_path / "own.csv"), columns=given)
    assert "your own: 3 summaries of 1 documents" in note and len(by_set(frame)) == 3
    with pytest.raises(DataError, match="modell"):
        abstraction_data(str(tmp_path / "own.csv"), columns={**given, "system": "modell"})


def test_committed_tables_were_measured_on_xsum_and_summeval(root):
    for name in TABLES:
        text = (root / f"nbs/tables/{name}.ipynb").read_text("utf-8")
        assert "524 summaries of 150 documents by 4 systems" in text, name
        assert "1600 summaries of 100 documents by 16 systems" in text, name


def test_no_text_of_others_in_the_notebooks(root, shared_data):
    frame, _ = abstraction_data("auto")
    texts = {text for name in ("source", "summary", "reference") for text in frame[name]}
    pieces = {text[start : start + 40] for text in texts for start in range(0, len(text) - 40, 40)}
    for path in [*root.glob("nbs/10_*.ipynb"), *root.glob("nbs/tables/table[4-8]*.ipynb")]:
        held = json.dumps(json.loads(path.read_text("utf-8")), ensure_ascii=False)
        windows = {held[start : start + 40] for start in range(len(held))}
        assert not windows & pieces, path.name


def test_xsum_files(shared_data):
    frame = load_xsum_predictions(find_xsum())
    counts = frame.groupby("system").size().to_dict()
    assert counts == {"bart": 131, "distilbart": 131, "huggingface": 150, "pegasus": 112}
    assert frame["id"].nunique() == 150 and not frame.duplicated(["id", "system"]).any()
    assert frame.groupby("id")["reference"].nunique().max() == 1
    sets = by_set(abstraction_data("xsum")[0]).groupby(["set", "system"]).size()
    assert set(sets["XSUM first 50"]) == {50} and set(sets["XSUM common"]) == {112}
