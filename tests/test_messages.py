"""What the public functions say when something is wrong, what is possible, and what to do."""

import re

import pandas as pd
import pytest

from seval_ex import SEvalEx
from seval_ex.abstractiveness import risk, score_frame, score_parquet
from seval_ex.ledger import InvalidInput, SEvalError
from seval_ex.llm import Scripted
from seval_ex.pipeline import ENGINES, estimate, evaluate_many, evaluate_pairs, mean_scores
from seval_ex.recordings import Recordings, Replay, import_recordings, make_model
from seval_ex.tables import published

OTHER = pd.DataFrame({"text": ["It rained."], "gist": ["It rained."]})
PAIR = pd.DataFrame({"source": ["It rained."], "summary": ["It rained."]})


def message(call, kind=InvalidInput):
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


@pytest.mark.parametrize(
    ("engine", "hint"),
    [
        ("lexcal", "did you mean 'lexical'?"),
        ("Ollama:qwen2.5:72b", "did you mean 'ollama:qwen2.5:72b'?"),
        ("qwen2.5:72b", "for a model of Ollama write 'ollama:qwen2.5:72b'"),
        ("oracle", "no engine 'oracle': choose"),
    ],
)
def test_a_wrong_engine_is_told_what_was_meant(engine, hint):
    text = message(lambda: SEvalEx(engine=engine))
    assert hint in text and f"choose from {', '.join(ENGINES)}" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": None}, "engine=None: pass a name, such as 'lexical'"),
        ({"engine": "ollama"}, "names no model: write ollama:MODEL"),
        ({"engine": "grounded"}, "'grounded' names no judge: write grounded:ollama:"),
        ({"engine": "replay:none.db"}, "no recordings 'none.db': name the file"),
        ({"engine": "lexical:x"}, "write engine='lexical'"),
        ({"variant": "Base"}, "variant='Base': choose from base, 3-chunk, stsum_text"),
        ({"threshold": 75}, "threshold=75: pass a number above 0 and up to 1"),
        ({"threshold": "0.5"}, "threshold='0.5': pass a number"),
        ({"language": "english"}, "language='english': pass an ISO 639 code such as 'en'"),
        ({"missed": "all"}, "choose 'none' or 'sentences'"),
        ({"chunk_size": 0}, "pass a number of sentences from 1 up, and an overlap"),
        ({"chunk_overlap": 3}, "an overlap from 0 up and below it"),
        ({"recordings": 3}, "recordings=3: pass a path, or None"),
        ({"prompts": 3}, "prompts=3: pass a path, or None"),
        ({"llm": [1]}, "pass a mapping, such as {'num_ctx': 16384}"),
        ({"verifier": 3}, "pass an object with a method 'verify'"),
    ],
)
def test_wrong_options_of_an_evaluator(options, words):
    assert words in message(lambda: SEvalEx(**options))


@pytest.mark.parametrize(
    "make",
    [
        lambda llm: SEvalEx(engine=Scripted(["x"]), recordings=None, llm=llm),
        lambda llm: make_model(Scripted(["x"]), llm=llm),
    ],
    ids=["evaluator", "model"],
)
def test_wrong_settings_of_a_model(make):
    text = message(lambda: make({"num_cxt": 1}))
    assert text.startswith("llm has no setting 'num_cxt': choose from ") and "num_ctx, " in text
    text = message(lambda: make({"num_ctx": "big"}))
    assert text.startswith("llm: num_ctx='big': ") and "integer" in text
    assert "messages" in message(lambda: make({"messages": ()}))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (OTHER, "no column 'source'; the table has: text, gist; name yours with source=…"),
        (None, "the table is a NoneType: pass a pandas DataFrame"),
        ("in.csv", "the table is a str: pass a pandas DataFrame, .*read_table reads a file"),
        ({"source": ["a"], "summary": ["b"]}, "the table is a dict: pass a pandas DataFrame"),
        ([("a", "b")], r"row 0 of the table is a tuple: .* \(source, summary\) to evaluate_pairs"),
        ([{"source": "a", "summary": "b"}, "c"], "row 1 of the table is a str"),
    ],
)
def test_wrong_tables(table, words):
    assert re.search(words, message(lambda: evaluate_many(SEvalEx(), table)))


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (PAIR, "pairs is a DataFrame: give it to evaluate_many"),
        ("ab", "pairs is a str: pass a list of (source, summary)"),
        (None, "pairs is a NoneType: pass a list"),
        ({"source": "a", "summary": "b"}, "pairs is a dict: pass a list"),
    ],
)
def test_wrong_pairs(pairs, words):
    assert words in message(lambda: list(evaluate_pairs(SEvalEx(), pairs)))


def test_one_wrong_pair_is_a_row_that_says_what_it_wants():
    pairs = [("It rained.", "It rained."), "ab", ("It rained.", 3)]
    fine, no_pair, no_text = evaluate_pairs(SEvalEx(), pairs, progress=False)
    assert fine.status == "ok"
    assert no_pair.reason == (
        "a str stands where a pair should: pass (source, summary) or a mapping with both"
    )
    assert no_text.reason == "the summary is int, not a string: pass the text itself"


def test_functions_on_tables_name_the_column_that_is_missing():
    assert "no column 'precision'; the table has: text" in message(lambda: mean_scores(OTHER))
    assert "name yours with source=…" in message(lambda: estimate(SEvalEx(), OTHER))
    assert "pass a pandas DataFrame" in message(lambda: estimate(SEvalEx(), None))
    text = message(lambda: score_frame(PAIR))
    assert "no column 'reference'" in text and "pass reference=None" in text
    assert "pass a pandas DataFrame" in message(lambda: score_frame([1]))


def test_missing_files_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no.jsonl" in message(lambda: import_recordings(Recordings(":memory:"), "no.jsonl"))
    assert "name the file of a run" in message(lambda: Replay("no.db"))
    pytest.importorskip("pyarrow")
    text = message(lambda: score_parquet("no.parquet", "out.parquet"), SEvalError)
    assert text == "no.parquet: there is no such file; check the path"


def test_wrong_names_and_numbers():
    assert "table1, table2, " in message(lambda: published("table9"))
    for wrong in ("a", -1, float("nan")):
        assert "an abstraction ratio is 0 or above" in message(lambda wrong=wrong: risk(wrong))
