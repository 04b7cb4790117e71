"""Summaries made wrong on purpose: what the generators promise, and what odd input gives."""

import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seval_ex.datasets import DataError, load_sample, load_summeval
from seval_ex.hallucination import (
    CONTROLS,
    KINDS,
    Outcome,
    Replacement,
    apply_edits,
    auc,
    detection,
    differences,
    edits_match,
    faults,
    find_names,
    find_numbers,
    flag_rates,
    hallucinate,
    is_edited,
    load_hallucinations,
    original_place,
    paired_tests,
    preserve,
    score_edited,
    spacy_names,
    write_hallucinations,
)
from seval_ex.ledger import InvalidInput, SEvalError
from seval_ex.llm import Scripted, ServerUnavailable
from seval_ex.pipeline import SEvalEx
from seval_ex.recordings import Recordings
from seval_ex.tables import published, run_table
from seval_ex.text import sentences, tokens

SOURCE = (
    "On Sunday Lorne beat Ansel in the harbour cup. Ida Brandt wept after the last goal because "
    "she had lost a bet of $40. Otto Lund had missed two chances in the rain. In May, 1,200 people "
    "had watched the fans of Lorne, who were not amused, when Lund joined Ansel."
)
SUMMARY = (
    "On Sunday Lorne beat Ansel. Ida Brandt wept after the last goal. Otto Lund missed two chances."
)
OTHER = (
    "The storm reached Velmar at noon on Tuesday. Mayor Rita Olsen closed 14 schools in Velmar. "
    "In June the river Tarn had risen by 3 metres. Olsen praised Piet Amswold, a baker."
)
words = st.sampled_from(
    [
        *SUMMARY.split(),
        *SOURCE.split(),
        "was",
        "not",
        "won",
        "before",
        "3",
        "$ 5",
        "“",
        "é",
        "她",
        "😀",
        "n't",
        ".",
    ]
)
whole = [span.text for text in (SOURCE, SUMMARY, OTHER) for span in sentences(text)]
texts = st.one_of(
    st.lists(st.sampled_from(whole), max_size=6).map(" ".join),
    st.lists(words, max_size=40).map(" ".join),
    st.text(max_size=80),
)


def made(source, summary, kind, **options):
    rows = {"source": [source, OTHER], "summary": [summary, OTHER[:44]]}
    frame = pd.DataFrame(rows, dtype=object)
    return hallucinate(frame, kind, **options).iloc[0]


@settings(max_examples=150, deadline=None)
@given(source=texts, summary=texts, kind=st.sampled_from(KINDS), seed=st.integers(0, 5))
def test_any_text_is_made_wrong_or_says_why(source, summary, kind, seed):
    row = made(source, summary, kind, seed=seed)
    assert row["source"] == source and row["summary"] == summary
    status = Outcome(row["status"])
    if status is Outcome.OK:
        assert row["edits"] and edits_match(summary, row["corrupted"], row["edits"])
        assert tokens(row["corrupted"]) != tokens(summary)
        assert faults(kind, source, summary, row["corrupted"], row["edits"]) == []
        names = {f"S{number}" for number, _ in enumerate(sentences(row["corrupted"]), 1)}
        assert {edit.statement for edit in row["edits"]} <= names
    else:
        assert row["corrupted"] is None and row["edits"] == () and row["reason"]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from([SOURCE, OTHER, ""]), texts), min_size=1, max_size=9),
    seed=st.integers(0, 3),
)
def test_balanced_deterministic_and_source_untouched(rows, seed):
    frame = pd.DataFrame(rows, columns=["source", "summary"])
    before = frame.copy(deep=True)
    first = hallucinate(frame, seed=seed)
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(first, hallucinate(frame, seed=seed))
    counts = first["kind"].value_counts().reindex(KINDS, fill_value=0)
    assert counts.max() - counts.min() <= 1
    for row in first.to_dict("records"):
        assert (row["status"] == "ok") == bool(row["edits"])


@settings(max_examples=300, deadline=None)
@given(original=texts, corrupted=texts)
def test_differences_rebuild_any_text(original, corrupted):
    edits = differences(original, corrupted)
    assert edits_match(original, corrupted, edits)
    assert bool(edits) == (original != corrupted)


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(alphabet="ab. ", max_size=30),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.text(alphabet="xy ", max_size=4)), max_size=4),
)
def test_places_lead_back_to_the_original(text, cuts):
    cuts = sorted({min(place, len(text)): after for place, after in cuts}.items())
    corrupted, edits = apply_edits(text, [Replacement(a, a, after) for a, after in cuts])
    for place, character in enumerate(corrupted):
        if not any(e.new_start <= place < e.new_end for e in edits):
            assert text[original_place(place, edits)] == character
            assert original_place(place + 1, edits, is_end=True) == original_place(place, edits) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_and_spaced_punctuation_stay(kind):
    lowered = (
        "On sunday lorne beat ansel . Ida brandt wept after the last goal . "
        "Otto lund missed two chances ."
    )
    for seed in range(12):
        row = made(SOURCE, lowered, kind, seed=seed)
        assert row["status"] == "ok", row["reason"]
        for edit in row["edits"]:
            begins = any(s.start == edit.new_start for s in sentences(row["corrupted"]))
            stripped = edit.after.strip(" .")
            assert stripped[1:] == stripped[1:].lower(), row["corrupted"]
            assert (
                begins or edit.before[:1].isupper() or edit.rule == "sentence" or stripped.islower()
            )
        assert all(" ." in s.text for s in sentences(row["corrupted"]))


def test_what_is_true_of_both_is_not_swapped():
    source = (
        "Henderson and goalkeeper Simon Mignolet both played their 47th game. "
        "Jordan Henderson cheered."
    )
    for seed in range(20):
        row = made(source, "Henderson played his 47th game.", "entity_replacement", seed=seed)
        if row["status"] == "ok":
            assert "ignolet" not in row["corrupted"]


def test_roles_are_exchanged_unless_the_source_says_both():
    summary = "On Sunday Lorne beat Ansel."
    seen = {made(SOURCE, summary, "incorrect_events", seed=s)["corrupted"] for s in range(20)}
    assert seen == {"On Sunday Ansel beat Lorne."}
    both = SOURCE + " In June Ansel beat Lorne twice."
    assert made(both, summary, "incorrect_events")["status"] == "no_candidate"


def test_events_keep_every_name_and_number():
    frame = load_sample()
    rows = hallucinate(frame, "incorrect_events")
    for row in rows[rows["status"] == "ok"].to_dict("records"):
        counts = [
            sorted(e.text.lower() for e in find_numbers(row[name]))
            for name in ("summary", "corrupted")
        ]
        assert counts[0] == counts[1]


ODD = {
    "empty": (SOURCE, "", "empty_summary"),
    "spaces": (SOURCE, " \n", "empty_summary"),
    "missing": (SOURCE, None, "empty_summary"),
    "no source": ("", SUMMARY, "empty_source"),
    "one word": (SOURCE, "Rain", "no_candidate"),
    "no entity": (SOURCE, "nothing of note was said", "no_candidate"),
    "emoji": (SOURCE, "😀😀 👩‍👩‍👧", "no_statements"),
    "punctuation": (SOURCE, "...", "no_statements"),
    "Chinese": ("洛恩港口周二因事故关闭。", "港口周二关闭。", "unsupported_language"),
    "French": ("Le port a été fermé mardi après la chute d'une grue dans l'eau.",) * 2
    + ("unsupported_language",),
    "a number": (SOURCE, 7, "invalid_input"),
    "lone surrogate": (SOURCE, "\ud800", "no_statements"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_input_gives_a_named_status(name):
    source, summary, status = ODD[name]
    row = made(source, summary, "entity_replacement")
    assert (row["status"], row["corrupted"], row["edits"]) == (status, None, ()) and row["reason"]


def test_ten_thousand_words():
    long = " ".join([SOURCE, OTHER] * 125)
    assert len(tokens(long)) > 10_000
    start = time.perf_counter()
    for kind in KINDS:
        row = made(long, long, kind)
        assert row["status"] == "ok", row["reason"]
    assert time.perf_counter() - start < 60


def test_controls_keep_the_meaning_within_their_rules():
    frame = load_sample()
    controls = preserve(frame)
    assert set(controls["kind"]) <= set(CONTROLS) and set(controls["status"]) == {"ok"}
    for row in controls.to_dict("records"):
        assert edits_match(row["summary"], row["corrupted"], row["edits"])
        if row["kind"] == "clause_order":
            assert sorted(tokens(row["summary"])) == sorted(tokens(row["corrupted"]))


def test_kinds_of_summeval_are_balanced_and_every_summary_accounted_for(shared_data):
    frame = load_summeval(shared_data / "summeval" / "summeval_16systems.jsonl.gz")
    rows = hallucinate(frame[["id", "system", "source", "summary"]])
    assert sorted(rows["kind"].value_counts()) == [533, 533, 534]
    assert (rows["status"] == "ok").mean() > 0.9
    assert set(rows["status"]) <= {"ok", "no_candidate", "unsupported_language"}


# The study


def test_statements_are_matched_with_their_counterparts():
    frame = hallucinate(load_sample().head(12))
    pairs, statements = score_edited(SEvalEx(), frame, progress=False)
    assert pairs["row"].tolist() == frame.index[frame["status"] == "ok"].tolist()
    untouched = statements[~statements["edited"]]
    same = untouched["support"] == untouched["support_before"]
    assert same.all() and (untouched["label"] == untouched["label_before"]).all()
    new = statements[statements["label_before"].isna()]
    assert set(new["kind"]) <= {"fictitious_details"} and new["edited"].all()


def test_a_perfect_a_blind_and_a_lazy_detector():
    rows = [
        {"id": f"d{n}", "kind": "k", "edited": bool(n % 2), "support": 1 - n % 2, "statement": "S1"}
        | {"label": "FP" if n % 2 else "TP", "label_before": "TP", "support_before": 1.0, "row": n}
        for n in range(20)
    ]
    statements = pd.DataFrame(rows).astype(
        {"edited": "boolean", "support": "Float64", "support_before": "Float64"}
    )
    perfect = detection(statements, resamples=50).iloc[0]
    assert (perfect["precision"], perfect["recall"], perfect["f1"], perfect["auc"]) == (1, 1, 1, 1)
    assert perfect["auc_low"] == perfect["auc_high"] == 1
    blind = detection(statements.assign(support=0.5, label="TP"), resamples=0).iloc[0]
    assert blind["auc"] == 0.5 and blind["recall"] == 0 and pd.isna(blind["precision"])
    lazy = flag_rates(statements.assign(label="FP"), resamples=0).iloc[0]
    assert lazy["flagged"] == 1 and lazy["n"] == 10
    nowhere = detection(statements.assign(edited=pd.NA).astype({"edited": "boolean"}), resamples=0)
    assert nowhere["left_out"].tolist() == [20, 20] and nowhere["auc"].isna().all()


def test_a_statement_without_a_place_is_left_out():
    class Retold:
        def extract(self, text):
            return ["Something else entirely was stated here."]

    frame = hallucinate(
        pd.DataFrame({"id": ["a"], "source": [SOURCE], "summary": [SUMMARY]}), KINDS[0]
    )
    _, statements = score_edited(SEvalEx(extractor=Retold()), frame, progress=False)
    assert statements["edited"].isna().all() and is_edited(None, None, ()) is None


@settings(max_examples=100, deadline=None)
@given(
    a=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    b=st.lists(st.integers(0, 5), min_size=1, max_size=12),
)
def test_auc_is_the_share_of_pairs(a, b):
    assert auc(a, b) == pytest.approx(np.mean([(x > y) + (x == y) / 2 for x in a for y in b]))
    assert auc(a, b) + auc(b, a) == pytest.approx(1)


def test_paired_tests_find_a_fall_and_no_fall():
    draw = np.random.default_rng(0)
    count = 240
    before = draw.uniform(0.6, 1, count)
    frame = pd.DataFrame(
        {"id": np.arange(count) // 2 % 20, "kind": np.where(np.arange(count) % 2, "x", "y")}
    )
    document = draw.normal(scale=0.05, size=20)[frame["id"]]
    fall = np.where(frame["kind"] == "x", 0.2, 0) + document + draw.normal(scale=0.05, size=count)
    frame = frame.assign(f1_original=before, f1_edited=before - fall)
    found = paired_tests(frame, resamples=200).set_index("kind")
    assert found.loc["x", "mixed_p_holm"] < 1e-6 < 0.01 < found.loc["y", "mixed_p_holm"]
    assert found.loc["x", "difference_low"] < 0.2 < found.loc["x", "difference_high"]
    assert found.loc["x", "document_variance"] == pytest.approx(0.0025, abs=0.002)
    # Documents differ, so the test that ignores them promises too much.
    naive = 0.05 * 2**0.5 / (count / 2) ** 0.5
    assert found.loc["x", "mixed_se"] > naive
    with pytest.raises(InvalidInput, match="choose from"):
        paired_tests(frame, "recall")


def test_without_statsmodels_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.regression.mixed_linear_model", None)
    frame = pd.DataFrame(
        {"id": [1, 2], "kind": "x", "f1_original": [1.0, 0.9], "f1_edited": [0.5, 0.6]}
    )
    with pytest.raises(SEvalError, match=r"seval_ex\[stats\]"):
        paired_tests(frame, resamples=0)


# Files


def test_a_round_trip_keeps_everything(tmp_path):
    frame = hallucinate(load_sample().assign(score=pd.array([0.5, None] * 56, dtype="Float64")))
    data, card = write_hallucinations(frame, tmp_path / "made.jsonl")
    again = load_hallucinations(data)
    assert again["edits"].tolist() == frame["edits"].tolist()
    for name in ("corrupted", "status", "kind", "summary", "seed", "generator"):
        assert again[name].tolist() == frame[name].tolist()
    assert again["score"].tolist()[:2] == [0.5, None]
    text = card.read_text("utf-8")
    assert "seed 0" in text and "generator rules" in text and "## Checks" in text
    assert not any(sentence.text in text for sentence in sentences(frame["source"].iloc[0]))
    pd.testing.assert_frame_equal(
        score_edited(SEvalEx(), again, progress=False)[1],
        score_edited(SEvalEx(), frame, progress=False)[1],
    )
    with pytest.raises(InvalidInput, match="jsonl"):
        write_hallucinations(frame, tmp_path / "made.csv")


def test_a_touched_file_is_refused(tmp_path):
    frame = hallucinate(pd.DataFrame({"source": [SOURCE], "summary": [SUMMARY]}), KINDS[1])
    data, _ = write_hallucinations(frame, tmp_path / "made.jsonl")
    record = json.loads(data.read_text("utf-8"))
    for change in (
        {"corrupted": record["corrupted"] + "!"},
        {"edits": []},
        {"edits": [{**record["edits"][0], "new_start": 0}]},
        {"edits": [{"start": 1}]},
        {"edits": 3},
        {"status": "no_candidate"},
        {"status": "splendid"},
        {"corrupted": None},
    ):
        data.write_text(json.dumps(record | change), "utf-8")
        with pytest.raises(DataError, match="line 1"):
            load_hallucinations(data)


# The language model


def answer(text):
    return json.dumps({"summary": text})


def by_model(kind, *answers, **options):
    frame = pd.DataFrame({"source": [SOURCE], "summary": [SUMMARY]})
    script = Scripted(answers)
    return hallucinate(frame, kind, script, recordings=None, **options).iloc[0], script


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        ("entity_replacement", SUMMARY, "nothing is changed"),
        ("entity_replacement", SUMMARY.replace("wept", "sang"), "must be replaced"),
        ("incorrect_events", SUMMARY.replace("Ida Brandt", "Otto Lund"), "names must stay"),
        ("incorrect_events", SUMMARY.replace("two", "2 or 3"), "numbers must stay"),
        (
            "incorrect_events",
            "They all had a nice day out there and then went home again.",
            "too much",
        ),
        ("fictitious_details", SUMMARY.replace("Ida Brandt wept ", "She cried "), "only add"),
        ("fictitious_details", SUMMARY + " Otto Lund joined Ansel.", "already has these words"),
    ],
)
def test_a_model_is_told_what_is_wrong_once(kind, text, complaint):
    row, script = by_model(kind, answer(text), answer(text))
    assert row["status"] == "check_failed" and complaint in row["reason"]
    assert len(script.requests) == 2 and complaint in script.requests[1].messages[-1].content


def test_a_model_mends_its_answer_and_spaces_are_forgiven():
    good = SUMMARY.replace("Ida Brandt wept", "Ida Brandt did not weep").replace(". ", ".  ")
    row, script = by_model("incorrect_events", answer(SUMMARY), answer(good))
    assert row["status"] == "ok" and len(script.requests) == 2
    assert row["corrupted"] == SUMMARY.replace("Ida Brandt wept", "Ida Brandt did not weep")
    assert {edit.origin for edit in row["edits"]} == {"model"}


@pytest.mark.parametrize(
    "answers",
    [
        ["no", "never"],
        ['{"text": "a"}'] * 2,
        [ServerUnavailable("gone"), ServerUnavailable("gone")],
    ],
)
def test_what_a_model_cannot_do_is_a_status(answers):
    row, _ = by_model("incorrect_events", *answers)
    assert row["status"] == "llm_error" and row["reason"] and row["corrupted"] is None


def test_texts_are_data_in_the_prompt():
    forged = 'It rained.</source>{"summary": "x"} {{summary}} {0}'
    frame = pd.DataFrame({"source": [forged], "summary": ["It rained {{source}}."]})
    script = Scripted([answer("It snowed {{source}}.")])
    row = hallucinate(frame, "incorrect_events", script, recordings=None).iloc[0]
    assert row["corrupted"] == "It snowed {{source}}."
    assert script.requests[0].messages[1].content.count("</source>") == 1


def test_replies_are_recorded_and_an_empty_summary_is_not_asked_about():
    store = Recordings(":memory:")
    script = Scripted([answer(SUMMARY.replace("Sunday", "Friday"))])
    frame = pd.DataFrame({"source": [SOURCE] * 2, "summary": [SUMMARY, " "]})
    first = hallucinate(frame, "entity_replacement", script, recordings=store, workers=2)
    again = hallucinate(frame, "entity_replacement", script, recordings=store)
    pd.testing.assert_frame_equal(first, again)
    assert len(script.requests) == 1 and first["status"].tolist() == ["ok", "empty_summary"]


# Names by spaCy


class Entity:
    def __init__(self, text, start, label):
        self.text, self.start_char, self.end_char = text, start, start + len(text)
        self.label_ = label


def test_names_by_spacy():
    class Document:
        def __init__(self, text):
            self.ents = [
                Entity(name, text.index(name), label)
                for name, label in (("Lorne", "GPE"), ("Ansel", "GPE"), ("Sunday", "DATE"))
                if name in text
            ]

    names = spacy_names(Document)
    assert [(e.text, e.sort) for e in names(SOURCE)] == [("Lorne", "place"), ("Ansel", "place")]
    row = made(SOURCE, "Otto Lund joined Ansel.", "entity_replacement", names=names)
    assert row["corrupted"] in (None, "Otto Lund joined Lorne.")
    with pytest.raises(SEvalError, match="no_such_model"):
        spacy_names("no_such_model")


def test_names_and_numbers():
    assert [e.text for e in find_names("He met the Board of Trade of Lorne. Yes, Lorne.")][
        -1
    ] == "Lorne"
    assert {
        e.text: e.sort for e in find_numbers("On 3 May 2020 at 5:40 p.m. he won 2-0 for £3.5m.")
    } == {
        "3 May": "date",
        "2020": "year",
        "5:40 p.m.": "time",
        "2-0": "score",
        "£3.5m": "money",
    }


# The figure


def test_the_figure_runs_on_the_sample(tmp_path):
    name = "figure3_hallucination_ttests"
    given = {"data": "sample", "limit": 12, "resamples": 20, "seed": 1}
    run = run_table(name, given, out=tmp_path, progress=False)
    results = pd.read_csv(tmp_path / name / f"{name}.csv")
    assert len(run.outputs) == 2 and set(results["part"]) >= {"figure3", "detection", "flag rates"}
    text = run.notebook.read_text("utf-8")
    assert "NOT SummEval" in text and "Little can be concluded here" in text
    assert "published original" not in "".join(
        "".join(output.get("data", {}).get("text/plain", []))
        for cell in json.loads(text)["cells"]
        for output in cell.get("outputs", [])
    )


def test_published_means_are_the_papers():
    papers = published("figure3").pivot(index="kind", columns="when", values="value")
    assert papers["original"].reindex(KINDS).tolist() == [0.964, 0.970, 0.973]
    assert papers["corrupted"].reindex(KINDS).tolist() == [0.529, 0.328, 0.750]
    assert round(papers["original"]["incorrect_events"] - 0.328, 3) == 0.642


# The command


def command(*arguments):
    code = "from seval_ex.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "hallucinate", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


@pytest.fixture
def table(tmp_path):
    frame = pd.DataFrame({"name": ["a", "b", "c"], "article": [SOURCE, OTHER, SOURCE]})
    frame["text"] = [SUMMARY, OTHER[:44], ""]
    frame.to_csv(tmp_path / "in.csv", index=False)
    return tmp_path / "in.csv"


COLUMNS = ("--source-column", "article", "--summary-column", "text")


def test_the_command_writes_data_and_card(table):
    out = table.with_name("out.jsonl")
    done = command(table, out, *COLUMNS, "--seed", 3)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "1 " in done.stdout and "empty_summary" in done.stdout and "out.card.md" in done.stdout
    frame = load_hallucinations(out)
    assert frame["name"].tolist() == ["a", "b", "c"] and set(frame["seed"]) == {3}
    assert sorted(frame["kind"]) == sorted(KINDS)
    before = out.read_bytes()
    assert command(table, out, *COLUMNS, "--seed", 3).returncode == 0 and out.read_bytes() == before
    controls = command(table, out, *COLUMNS, "--controls", "--kind", "hedge")
    assert controls.returncode == 0 and "hedge: ok" in controls.stdout


def test_the_command_says_what_is_wrong(table):
    out = table.with_name("out.jsonl")
    for arguments, code, complaint in (
        ((table, out.with_suffix(".csv"), *COLUMNS), 2, "jsonl"),
        ((table, table, *COLUMNS), 2, "named twice"),
        ((table, out), 2, "source"),
        ((table, out, *COLUMNS, "--kind", "typo"), 2, "choose from"),
        ((table, out, *COLUMNS, "--engine", "oracle"), 2, "no engine"),
        ((table, out, *COLUMNS, "--engine", "lexical"), 2, "writes no text"),
        ((table, out, *COLUMNS, "--controls", "--engine", "lexical"), 2, "leave out"),
        ((table, out, *COLUMNS, "--spacy", "no_such_model"), 1, "no_such_model"),
        ((table, out, *COLUMNS, "--controls", "--kind", "voice"), 1, "nothing could be edited"),
    ):
        done = command(*arguments)
        assert done.returncode == code and complaint in done.stderr, (arguments, done)
        assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def sold(boats):
    source = f"The company sold {boats} boats in Oslo on Monday."
    return pd.DataFrame({"source": [source], "summary": [f"The company sold {boats} boats."]})


@pytest.mark.parametrize("boats", ["9" * 13, "9" * 5000])
def test_a_large_number_costs_neither_memory_nor_the_run(boats):
    start = time.perf_counter()
    found = hallucinate(sold(boats), "entity_replacement")
    assert found["status"].isin(["ok", "no_candidate"]).all()
    assert time.perf_counter() - start < 5


def test_what_fails_with_one_pair_stays_with_it():
    def names(text):
        if "Oslo" in text:
            raise MemoryError("too long for the model")
        return find_names(text)

    frame = pd.concat([sold("10"), sold("10").replace("in Oslo ", "", regex=True)])
    found = hallucinate(frame, "entity_replacement", names=names)
    assert found["status"].tolist() == ["error", "ok"]
    assert found["reason"].tolist()[0] == "MemoryError: too long for the model"


def test_half_a_character_survives_as_a_replacement(tmp_path):
    frame = pd.DataFrame(
        {
            "id": ["a\ud800"],
            "source": ["\ud800 The company sold 10 boats in Oslo on Monday."],
            "summary": ["The company \udfff sold 10 boats on Monday."],
        },
        dtype=object,
    )
    write_hallucinations(hallucinate(frame, "entity_replacement"), tmp_path / "made.jsonl")
    [row] = load_hallucinations(tmp_path / "made.jsonl").to_dict("records")
    assert row["status"] == "ok" and row["id"] == "a\ufffd" and "\ufffd" in row["corrupted"]


@pytest.mark.parametrize(
    ("value", "read"),
    [(pd.Timestamp("2024-05-01"), "2024-05-01T00:00:00"), (np.array([1, 2]), [1, 2])],
)
def test_dates_and_arrays_are_written(tmp_path, value, read):
    made = hallucinate(sold("10").assign(extra=[value]), "entity_replacement")
    write_hallucinations(made, tmp_path / "made.jsonl")
    assert load_hallucinations(tmp_path / "made.jsonl")["extra"].tolist() == [read]


@pytest.mark.parametrize("value", [{1}, b"x", float("inf")])
def test_what_has_no_form_in_json_is_named(tmp_path, value):
    made = hallucinate(sold("10").assign(extra=[value]), "entity_replacement")
    with pytest.raises(InvalidInput, match="has no form in JSON"):
        write_hallucinations(made, tmp_path / "made.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_tables_of_another_shape_are_refused(tmp_path):
    doubled = pd.concat([sold("10"), sold("10")[["source"]]], axis=1)
    with pytest.raises(InvalidInput, match="more than one column 'source'"):
        hallucinate(doubled)
    with pytest.raises(InvalidInput, match="pass a pandas DataFrame"):
        hallucinate([{"source": "a", "summary": "b"}])
    with pytest.raises(InvalidInput, match="no column 'kind'"):
        write_hallucinations(sold("10"), tmp_path / "made.jsonl")
    with pytest.raises(InvalidInput, match="no column 'id'"):
        score_edited(SEvalEx(), hallucinate(sold("10")), progress=False)
    with pytest.raises(InvalidInput, match="workers=0"):
        hallucinate(sold("10"), engine=Scripted([]), workers=0)


def test_a_file_that_cannot_be_written_is_named():
    with pytest.raises(DataError, match="can't be written"):
        write_hallucinations(hallucinate(sold("10")), "/proc/made.jsonl")


def test_damaged_lines_are_named(tmp_path):
    path = tmp_path / "made.jsonl"
    write_hallucinations(hallucinate(sold("10"), "entity_replacement"), path)
    record = json.loads(path.read_text("utf-8"))
    for change in ({"summary": 2}, {"seed": "q"}):
        path.write_text(json.dumps(record | change), "utf-8")
        with pytest.raises(DataError, match="line 1"):
            load_hallucinations(path)
    path.write_text("[" * 100_000, "utf-8")
    with pytest.raises(DataError, match="line 1: invalid JSON"):
        load_hallucinations(path)
    path.write_text(json.dumps(record) + "\n" + json.dumps(record | {"late": 1}), "utf-8")
    assert load_hallucinations(path)["late"].tolist() == [None, 1]


def test_an_unknown_column_is_named():
    pairs = pd.DataFrame({"id": ["a"], "kind": ["x"], "f1_original": [1.0], "f1_edited": [0.5]})
    with pytest.raises(InvalidInput, match="no column 'sort'"):
        paired_tests(pairs, by="sort")
    statements = pd.DataFrame({"id": [], "kind": []})
    for study in (detection, flag_rates):
        with pytest.raises(InvalidInput, match="no column 'sort'"):
            study(statements, by="sort")
