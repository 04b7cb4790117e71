"""Likelihoods by a real, small model, and by a tiny one made here."""

import importlib.util
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from seval_ex import SEvalEx
from seval_ex.ledger import InvalidInput, Statement
from seval_ex.likelihood import (
    BEFORE_A_SUMMARY,
    ContextOverflow,
    LanguageModel,
    LikelihoodVerifier,
    ModelNotFound,
    _reader,
    summary_likelihoods,
)
from seval_ex.llm import find_gguf
from seval_ex.tables import run_table

for library in ("torch", "transformers", "accelerate", "gguf"):
    pytest.importorskip(library, reason="pip install 'seval_ex[models]'")
try:
    find_gguf("smollm2")
except InvalidInput as error:
    pytest.skip(str(error), allow_module_level=True)

OSLO = "The mill in Oslo burned down in April. Nobody was hurt. It had stood there since 1802."
BERN = "A bear escaped from the zoo of Bern on Sunday and was caught in a bakery an hour later."
SUMMARIES = [
    "The mill burned down.",
    "A bear was caught in a bakery in Bern, an hour after it had escaped from the zoo.",
    "No.",
]


@pytest.fixture(scope="module")
def model():
    return LanguageModel("smollm2")


def numbers(readings):
    return [value for each in readings for value in (*each.given, *each.alone)]


def near(first, second, tolerance=1e-3):
    pairs = zip(numbers(first), numbers(second), strict=True)
    return max(abs(a - b) for a, b in pairs) < tolerance


def test_together_as_one_by_one(model):
    together = model.likelihoods(OSLO, SUMMARIES)
    assert near(together, [model.likelihoods(OSLO, [each])[0] for each in SUMMARIES])
    assert near(together, model.likelihoods(OSLO, SUMMARIES[::-1])[::-1])
    assert numbers(together) == numbers(model.likelihoods(OSLO, SUMMARIES))


def test_as_the_plain_model_without_memory_or_batch(model):
    reader = model._reader
    for summary, reading in zip(SUMMARIES, model.likelihoods(OSLO, SUMMARIES), strict=True):
        tokens = reader.encode(f" {summary}")[0]
        before = reader.encode(OSLO + BEFORE_A_SUMMARY)[0]
        for start, values in ((before, reading.given), ([reader.start], reading.alone)):
            whole = reader.torch.tensor([[*start, *tokens]])
            with reader.torch.inference_mode():
                logits = reader.model(whole, use_cache=False).logits[0].log_softmax(-1)
            plain = [
                float(logits[len(start) + place - 1, token]) for place, token in enumerate(tokens)
            ]
            assert plain == pytest.approx(values, abs=1e-3)


def test_the_right_source_explains_more(model):
    shares = [[r.explained for r in model.likelihoods(s, SUMMARIES[:2])] for s in (OSLO, BERN)]
    assert shares[0][0] > shares[1][0] + 0.2 and shares[1][1] > shares[0][1] + 0.2


@pytest.mark.parametrize(
    "text",
    [
        "港口周二关闭。没有人受伤。",
        "👍🏽 Fire 🔥! 👩‍👩‍👧",
        "  Spaces \n\n and\ttabs  ",
        "<|im_end|><|im_start|>system",
        "a\u0301 \ud800 \x00 b",
        "Straße naïve ﬁre ½",
    ],
)
def test_every_visible_character_has_its_token(model, text):
    [reading] = model.likelihoods(OSLO, [text])
    covered = {place for start, end in reading.spans for place in range(start, end)}
    assert {place for place, letter in enumerate(text) if not letter.isspace()} <= covered
    assert all(0 <= start <= end <= len(text) for start, end in reading.spans)
    assert all(value <= 0 for value in (*reading.given, *reading.alone))
    whole = reading.within(0, len(text))
    assert 0 < len(whole.given) <= len(reading.given)


def test_markers_of_the_model_are_plain_text(model):
    assert len(model._reader.encode("<|im_end|>")[0]) > 1


def test_what_does_not_fit_is_refused_and_the_rest_read(model):
    short, long = model.likelihoods(OSLO, ["Short.", "many words " * 5000])
    assert short.explained is not None
    assert isinstance(long, ContextOverflow) and "8192" in str(long)
    for source in ("word " * 8200, "word " * 2_000_000, "字" * 300_000):
        [refused] = model.likelihoods(source, ["Short."])
        assert isinstance(refused, ContextOverflow) and "8192" in str(refused)
    ledger = SEvalEx(engine="likelihood:smollm2").evaluate("It rained. " * 4000, "It rained.")
    assert ledger.status == "context_overflow" and "8192" in ledger.reason


def test_a_table_with_odd_rows(model):
    frame = pd.DataFrame(
        {
            "source": [OSLO, BERN, OSLO, None, OSLO, OSLO, "word " * 9000, OSLO],
            "summary": ["The mill burned down.", SUMMARIES[1], "", "x", pd.NA, 7, "x", "🔥"],
        },
        index=[3, 1, 4, 1, 5, 9, 2, 6],
    )
    found = summary_likelihoods(frame, model, progress=False)
    assert found.index.tolist() == frame.index.tolist()
    assert found["status"].tolist() == [
        *("ok", "ok", "empty_summary", "empty_source", "empty_summary"),
        *("invalid_input", "context_overflow", "ok"),
    ]
    is_ok = found["status"] == "ok"
    figures = found.drop(columns=["status", "reason"])
    assert figures[~is_ok].isna().all(axis=None)
    assert (
        figures[is_ok]
        .drop(columns=["explained by statement", "least explained statement"])[:2]
        .notna()
        .all(axis=None)
    )
    assert (found["reason"] != "").tolist() == (~is_ok).tolist()
    assert found["tokens"].iloc[0] == 5
    first = found.iloc[0]
    assert first["explained"] == pytest.approx(1 - first["log p(S|D)"] / first["log p(S)"])
    assert first["mean log-likelihood"] == pytest.approx(first["log p(S|D)"] / 5)
    shuffled = summary_likelihoods(frame.iloc[::-1], model, progress=False).iloc[::-1]
    pd.testing.assert_frame_equal(
        found.drop(columns="seconds"), shuffled.drop(columns="seconds"), atol=1e-3
    )
    assert summary_likelihoods(frame.head(0), model, progress=False).empty


def test_a_failing_document_does_not_stop_the_run(model, monkeypatch):
    read = LanguageModel.likelihoods

    def fragile(self, source, texts):
        if source == BERN:
            raise RuntimeError("out of memory")
        return read(self, source, texts)

    monkeypatch.setattr(LanguageModel, "likelihoods", fragile)
    frame = pd.DataFrame({"source": [OSLO, BERN], "summary": SUMMARIES[:2]})
    found = summary_likelihoods(frame, model, progress=False)
    assert found["status"].tolist() == ["ok", "error"]
    assert found["reason"][1] == "RuntimeError: out of memory"


def test_the_engine_with_one_thread_or_two():
    frame = pd.DataFrame(
        {
            "source": [OSLO, BERN] * 3,
            "summary": [
                *("The mill burned down. The mill burned down.", "A bear sang in Rome."),
                *("It burned. Many were hurt.", "It was caught.", "...", ""),
            ],
        }
    )
    evaluator = SEvalEx(engine="likelihood:smollm2")
    runs = [
        evaluator.evaluate_many(frame, progress=False, workers=workers, ledgers=True)
        for workers in (1, 2)
    ]
    assert runs[0]["status"].tolist() == ["ok"] * 5 + ["empty_summary"]
    for one, two in zip(runs[0]["ledger"], runs[1]["ledger"], strict=True):
        assert [v.label for v in one.verdicts] == [v.label for v in two.verdicts]
        supports = [[v.support for v in ledger.verdicts] for ledger in (one, two)]
        assert supports[0] == pytest.approx(supports[1], abs=1e-3)
    told, duplicate = runs[0]["ledger"][0].verdicts
    assert told.support == duplicate.support > 0.4 and "bits" in told.explanation
    assert told.evidence and told.evidence[0].start == 0
    assert pickle.loads(pickle.dumps(evaluator)) == evaluator


@pytest.mark.parametrize("variant", ["base", "3-chunk"])
def test_both_directions(variant):
    ledger = SEvalEx(variant, engine="likelihood:smollm2").evaluate(OSLO, "Nobody was hurt.")
    assert ledger.status == "ok", ledger.reason
    missed = {v.statement: v.support for v in ledger.verdicts if v.statement.startswith("D")}
    assert max(missed, key=missed.get) == "D2"


def test_threads_at_the_same_time(model):
    work = [(OSLO, SUMMARIES), (BERN, SUMMARIES[::-1])] * 4
    with ThreadPoolExecutor(2) as executor:
        found = list(executor.map(lambda item: model.likelihoods(*item), work))
    assert all(near(found[place], found[place % 2]) for place in range(len(work)))
    assert near(found[0], model.likelihoods(OSLO, SUMMARIES))


def test_a_statement_in_its_context(model):
    """A pronoun is no news once its name was said, with the source or without."""
    verifier = LikelihoodVerifier(model)
    against = [Statement(id="D1", side="source", text=OSLO)]
    first = Statement(id="S1", side="summary", text="The mill in Oslo burned down.")
    second = Statement(id="S2", side="summary", text="The mill was old.")
    alone, together = (verifier.verify(each, against) for each in ([second], [first, second]))
    assert [v.statement for v in together] == ["S1", "S2"]
    assert alone[0].explanation != together[1].explanation


def test_missing_libraries_are_named(monkeypatch):
    find = importlib.util.find_spec
    for missing, named in (("transformers", "transformers"), ("gguf", "gguf"), ("torch", "torch")):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, m=missing: None if name == m else find(name)
        )
        with pytest.raises(InvalidInput, match=rf"{named}.*pip install 'seval_ex\[models\]'"):
            LanguageModel("smollm2")
    assert SEvalEx().evaluate(OSLO, "Nobody was hurt.").status == "ok"


@pytest.fixture(scope="module")
def tiny(model, tmp_path_factory):
    """A model of a few thousand weights, in a folder of the hub's form, with a window of 64."""
    from transformers import LlamaConfig, LlamaForCausalLM

    reader, folder = model._reader, tmp_path_factory.mktemp("tiny")
    reader.torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    vocabulary = {"vocab_size": len(reader.tokeniser), "bos_token_id": 1, "eos_token_id": 2}
    LlamaForCausalLM(LlamaConfig(**sizes, **heads, **vocabulary)).save_pretrained(folder)
    reader.tokeniser.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_a_folder(tiny, dtype, tolerance):
    made = LanguageModel(tiny, dtype=dtype)
    assert made.window == 64 and made.identity["digest"] is None
    together = made.likelihoods(OSLO, SUMMARIES[:2])
    assert near(together, [made.likelihoods(OSLO, [s])[0] for s in SUMMARIES[:2]], tolerance)
    needed = 64 - len(made._reader.prefix(OSLO + BEFORE_A_SUMMARY))
    full, over = made.likelihoods(OSLO, [" ".join("a" * needed), " ".join("a" * (needed + 1))])
    assert len(full.given) == needed
    assert isinstance(over, ContextOverflow) and "65" in str(over) and "64" in str(over)
    _reader.cache_clear()


def test_what_is_no_model(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 40)
    for name in (str(broken), str(tmp_path)):
        with pytest.raises(ModelNotFound, match="cannot load"):
            summary_likelihoods(
                pd.DataFrame({"source": [OSLO], "summary": ["x"]}), name, progress=False
            )
    for name in ("", "nowhere.gguf", "/nowhere/at/all", "a/b/c"):
        with pytest.raises(InvalidInput):
            LanguageModel(name)


def test_loading_is_quiet_and_importing_light():
    code = (
        "import json, sys, seval_ex\n"
        "light = sorted({'torch', 'transformers', 'pandas'} & set(sys.modules))\n"
        "[found] = seval_ex.LanguageModel().likelihoods('It rained.', ['It rained.'])\n"
        "print(json.dumps([light, found.explained]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    light, share = json.loads(done.stdout)
    assert light == [] and 0 < share < 1 and done.stderr == ""


def test_the_study_runs_on_the_sample(tmp_path):
    given = {"data": "sample", "limit": 2, "resamples": 0, "store": ""}
    run_table("likelihood", given, out=tmp_path, progress=False)
    record = json.loads((tmp_path / "likelihood" / "likelihood.json").read_text("utf-8"))
    assert record["parameters"]["summaries_read"] == 8
    measured = [row for row in record["results"] if row["part"] == "agreement"]
    assert {row["metric"] for row in measured} >= {"explained", "mean log-likelihood"}
    assert all(row["n"] == 8 for row in measured)


@pytest.mark.parametrize(
    ("source", "texts", "message"),
    [(OSLO, "No.", "pass a list"), (None, ["No."], "None is no text"), (OSLO, [3], "3 is no text")],
)
def test_what_is_no_list_of_texts_is_refused(model, source, texts, message):
    with pytest.raises(InvalidInput, match=message):
        model.likelihoods(source, texts)
