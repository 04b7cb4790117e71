"""Table notebooks through papermill, as a user runs them."""

import json

import pandas as pd
import pytest

from seval_ex.ledger import InvalidInput, SEvalError
from seval_ex.tables import list_tables, run_table, table_data

NAME = "table1_pipeline_variants"


def test_table1_runs_on_the_sample(tmp_path):
    run = run_table(
        NAME, {"data": "sample", "limit": 8, "resamples": 50}, out=tmp_path, progress=False
    )
    results = pd.read_csv(tmp_path / NAME / f"{NAME}.csv")
    record = json.loads((tmp_path / NAME / f"{NAME}.json").read_text("utf-8"))
    assert record["parameters"]["limit"] == 8 and "NOT SummEval" in record["parameters"]["note"]
    assert run.note == record["parameters"]["note"]
    assert set(results["variant"]) == {"base", "3-chunk", "stsum_text", "stsum_text + FN"}
    cells = json.loads(run.notebook.read_text("utf-8"))["cells"]
    first = next(cell for cell in cells if cell.get("outputs"))
    assert "".join(first["outputs"][0]["text"]).startswith("Data: the sample")
    assert sorted(path.name for path in run.outputs) == [f"{NAME}.csv", f"{NAME}.json"]
    leftovers = [p.name for p in run.notebook.parent.iterdir() if p.name.startswith(".")]
    assert leftovers == []


def test_one_variant_without_intervals(tmp_path):
    given = {"data": "sample", "limit": 4, "resamples": 0, "variants": ["base"]}
    run = run_table(NAME, given, out=tmp_path, progress=False)
    assert len(run.outputs) == 2


def test_a_failing_cell_is_named_and_its_notebook_kept(tmp_path):
    with pytest.raises(SEvalError, match="no engine 'oracle'") as caught:
        run_table(NAME, {"data": "sample", "engine": "oracle"}, out=tmp_path, progress=False)
    assert str(tmp_path) in str(caught.value)
    assert "oracle" in (tmp_path / NAME / f"{NAME}.ipynb").read_text("utf-8")


def test_every_table_is_listed():
    assert NAME in list_tables()


def test_auto_takes_the_sample_without_summeval(monkeypatch):
    monkeypatch.delenv("SEVAL_EX_DATA", raising=False)
    frame, note = table_data("auto")
    assert len(frame) == 112 and note.startswith("Data: the sample")


def test_auto_takes_summeval_when_at_hand(shared_data):
    frame, note = table_data("auto")
    assert len(frame) == 1600 and note.startswith("Data: SummEval")


@pytest.mark.parametrize("language_model", ["", "smollm2"])
def test_table2_runs_on_the_sample(tmp_path, language_model):
    if language_model:
        pytest.importorskip("torch", reason="pip install 'seval_ex[models]'")
    name = "table2_baseline_correlations"
    given = {"data": "sample", "limit": 3, "resamples": 20, "language_model": language_model}
    given["scores"] = str(tmp_path / "scores.db")
    run = run_table(name, given, out=tmp_path, progress=False)
    results = pd.read_csv(tmp_path / name / f"{name}.csv")
    measured = results[results["part"] == "measured"]
    assert {"ROUGE-1", "length", "SEval-Ex support (lexical)"} <= set(measured["metric"])
    assert ("GPTScore (smollm2)" in set(measured["metric"])) == bool(language_model)
    assert set(measured["rating"]) == {"consistency"}
    assert "published" not in set(results["part"])  # SummEval's figures have no place here
    text = run.notebook.read_text("utf-8")
    assert "NOT SummEval" in text and "Nothing can be concluded here" in text


def test_table2_says_what_it_leaves_out_without_the_libraries(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['transformers'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    name = "table2_baseline_correlations"
    given = {"data": "sample", "limit": 2, "resamples": 0, "metrics": ["length"]}
    run = run_table(name, given, out=tmp_path, progress=False)
    assert "left out:" in run.notebook.read_text("utf-8")
    assert "seval_ex[models]" in run.notebook.read_text("utf-8")
    with pytest.raises(SEvalError, match=r"seval_ex\[models\]"):
        run_table(name, {**given, "language_model": "mine.gguf"}, out=tmp_path, progress=False)


def test_table2_asks_a_model_where_one_is_named(tmp_path):
    pytest.importorskip(
        "xllamacpp", reason="pip install 'seval_ex[llamacpp]'", exc_type=ImportError
    )
    name = "table2_baseline_correlations"
    given = {"data": "sample", "limit": 1, "resamples": 0, "language_model": ""}
    given |= {"metrics": ["length"], "geval": "llamacpp:smollm2"}
    given["recordings"] = str(tmp_path / "recordings.db")
    run_table(name, given, out=tmp_path, progress=False)
    results = pd.read_csv(tmp_path / name / f"{name}.csv")
    rated = results[results["metric"] == "G-Eval (llamacpp:smollm2)"]
    assert rated["n"].tolist()[0] == 4


def test_grounding_runs_on_the_sample_with_made_up_raters(tmp_path):
    given = {"data": "sample", "limit": 12, "splits": 20, "resamples": 20, "step": 0.25}
    run = run_table("grounding", given, out=tmp_path, progress=False)
    results = pd.read_csv(tmp_path / "grounding" / "grounding.csv")
    assert set(results["part"]) == {"curve", "fixed", "own", "left out"}
    assert set(results["rater"].dropna()) == {"made up, noise 0.3", "made up, noise 0.6"}
    assert "MADE UP" in run.notebook.read_text("utf-8")


@pytest.mark.parametrize("name", ["grounding", "figure3_hallucination_ttests"])
def test_one_document_is_enough(tmp_path, name):
    given = {"data": "sample", "limit": 1, "resamples": 20}
    assert len(run_table(name, given, out=tmp_path, progress=False).outputs) == 2


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="nothing can be written there"):
        run_table(NAME, out=tmp_path / "file", progress=False)


@pytest.mark.parametrize("given", [{"rating": "zz"}, {"step": 0.0}, {"step": 0.3}])
def test_the_grounding_study_names_a_bad_parameter(tmp_path, given):
    [name] = given
    with pytest.raises(SEvalError, match=f"InvalidInput: {name}="):
        run_table("grounding", {"data": "sample", **given}, out=tmp_path, progress=False)
