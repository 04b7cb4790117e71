"""Inputs that broke other tools; the numbers are those of the project's list of edge cases."""

import asyncio
import itertools
import json
import pickle
import re
import threading

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seval_ex import Ledger, SEvalEx, Verdict
from seval_ex.ledger import Counts, bounds, html_page, precision, recall, recall_source, to_html
from seval_ex.pipeline import VARIANTS, mean_scores
from seval_ex.verify import LexicalVerifier

SOURCE = "The mill burned down in May. Nobody was hurt. The owner, Ada Berg, will rebuild it."
SUMMARY = "The mill burned down in May. It cost nine lives."


class Counting:
    """Takes sentences like the lexical engine and counts its calls."""

    def __init__(self):
        self.texts = []

    def extract(self, text):
        self.texts.append(text)
        return [part for part in text.split(". ") if part]


class Supports:
    """Supports whatever is in its list."""

    def __init__(self, *supported):
        self.supported = supported

    def verify(self, statements, against):
        return [
            Verdict(statement=s.id, label="TP" if s.text in self.supported else "FP")
            for s in statements
        ]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("summary", ["", "  \n\t", "\u00a0"])
def test_1_empty_summary_asks_nobody(variant, summary):
    extractor = Counting()
    ledger = SEvalEx(variant, extractor=extractor).evaluate(SOURCE, summary)
    assert ledger.status == "empty_summary" and extractor.texts == []
    assert set(ledger.scores().values()) == {None}
    assert set(ledger.undefined()) == set(ledger.scores())


def test_1_empty_summary_is_counted_beside_the_mean():
    frame = pd.DataFrame({"source": [SOURCE] * 3, "summary": [SOURCE, "", None]})
    means = mean_scores(SEvalEx().evaluate_many(frame, progress=False)).set_index("score")
    assert means.loc["precision", ["mean", "n", "undefined"]].tolist() == [1, 1, 2]


@pytest.mark.parametrize("variant", ["base", "3-chunk"])
def test_3_source_without_statements(variant):
    class SummaryOnly:
        def extract(self, text):
            return ["One thing.", "Another."] if text == SUMMARY else []

    ledger = SEvalEx(variant, extractor=SummaryOnly()).evaluate(SOURCE, SUMMARY)
    assert ledger.status == "no_statements" and ledger.recall is None
    assert "source" in ledger.undefined()["recall"]
    assert ledger.counts() == Counts(unjudged=2)
    assert recall(Counts(tp=2)) is None


def test_18_twice_the_same():
    evaluator = SEvalEx("base")
    first, second = (evaluator.evaluate(SOURCE, SUMMARY) for _ in range(2))
    assert first == second and first.to_json() == second.to_json()
    assert first.scores() == second.scores() and first.precision is not None


@pytest.mark.parametrize("variant", VARIANTS)
def test_19_documents_do_not_mix(variant):
    other = "The harbour froze in March. Ships waited for six weeks."
    pairs = [(SOURCE, SUMMARY), (other, "The harbour froze in March.")]
    alone = [SEvalEx(variant).evaluate(*pair) for pair in pairs]
    evaluator = SEvalEx(variant)
    assert [evaluator.evaluate(*pair) for pair in pairs] == alone
    assert [evaluator.evaluate(*pair) for pair in reversed(pairs)] == alone[::-1]


@pytest.mark.parametrize("variant", ["base", "3-chunk"])
def test_19_a_source_is_taken_apart_once(variant):
    extractor = Counting()
    evaluator = SEvalEx(variant, extractor=extractor)
    frame = pd.DataFrame({"source": [SOURCE] * 3, "summary": ["One.", "Two.", "Three."]})
    evaluator.evaluate_many(frame, progress=False, workers=3)
    assert sum(text[:5] == SOURCE[:5] for text in extractor.texts) == 1


def test_20_inside_a_running_loop():
    evaluator = SEvalEx()

    async def twice():
        return [evaluator.evaluate(SOURCE, SUMMARY).precision for _ in range(2)]

    assert asyncio.run(twice()) == asyncio.run(twice()) == [0.5, 0.5]


@pytest.mark.parametrize("text", [SOURCE, "一句。二句！三句？", "no full stop at all"])
def test_21_summary_equal_to_source(text):
    for options in ({"variant": "base"}, {"variant": "3-chunk"}, {"missed": "sentences"}):
        ledger = SEvalEx(**options).evaluate(text, text)
        assert ledger.precision == ledger.recall == ledger.f1 == ledger.support == 1
    assert SEvalEx().evaluate(text, text).f1 == 1


def test_22_duplicates_count_once():
    summary = "It burned. it  BURNED! It burned. It sank."
    ledger = SEvalEx(verifier=Supports("It burned.")).evaluate(SOURCE, summary)
    assert ledger.precision == 1 / 2 and ledger.scores()["precision_raw"] == 3 / 4
    assert len(ledger.statements) == 4 and ledger.counts(duplicates=True).tp == 3
    assert [s.duplicate_of for s in ledger.statements] == [None, "S1", "S1", None]


def test_23_two_kinds_of_recall():
    class Both:
        def extract(self, text):
            return ["a", "b", "c", "d"] if text == SUMMARY else ["x", "y", "z"]

    ledger = SEvalEx("base", extractor=Both(), verifier=Supports(*"abcxy")).evaluate(
        SOURCE, SUMMARY
    )
    assert ledger.precision == 3 / 4 and ledger.recall == 3 / 4
    assert ledger.scores()["recall_source"] == recall_source(ledger.counts()) == 2 / 3


def test_24_every_sentence_is_a_statement():
    text = "met Dr. Lee at 5 p.m. in the U.S. Later, e.g. no. 5. “First.” Next. ? I see. He died."
    ledger = SEvalEx().evaluate(text, text)
    assert "He died." in [statement.text for statement in ledger.statements]
    assert {verdict.label for verdict in ledger.verdicts} == {"TP"}


def test_25_a_run_with_a_failure_and_an_undefined_pair(tmp_path):
    class FailsOnce:
        failures = 1

        def verify(self, statements, against):
            if "pair 7 " in statements[0].text and self.failures:
                self.failures -= 1
                raise TimeoutError("no answer")
            return LexicalVerifier().verify(statements, against)

    summaries = [f"Pair. This is pair {n} of fifty." for n in range(50)]
    summaries[7] = "This is pair 7 of fifty."
    summaries[20] = ""
    frame = pd.DataFrame({"source": ["This is a pair of fifty."] * 50, "summary": summaries})
    evaluator = SEvalEx(verifier=FailsOnce())
    run = evaluator.evaluate_many(frame, progress=False, ledgers=True)
    assert run["status"].value_counts().to_dict() == {"ok": 48, "error": 1, "empty_summary": 1}
    assert run["reason"][7] == "TimeoutError: no answer"
    saved = [ledger.to_json() for ledger in run["ledger"]]
    loaded = [Ledger.from_json(text) for text in saved]
    assert loaded == list(run["ledger"]) and loaded[20].precision is None
    assert mean_scores(run).set_index("score").loc["support", "n"] == 48
    again = evaluator.evaluate_many(frame[run["status"] == "error"], progress=False)
    assert again["status"].tolist() == ["ok"] and again.index.tolist() == [7]


def test_4_missing_verdicts_bound_the_score():
    class Three:
        def verify(self, statements, against):
            labels = dict(zip(("S1", "S2", "S4"), ("TP", "FP", "TP"), strict=True))
            return [Verdict(statement=name, label=label) for name, label in labels.items()]

    ledger = SEvalEx(verifier=Three()).evaluate(SOURCE, "One. Two. Three. Four. Five.")
    values = ledger.scores()
    assert values["precision"] is None and values["judged"] == 3 / 5
    assert (values["precision_low"], values["precision_high"]) == (2 / 5, 4 / 5)
    assert "2 of 5" in ledger.undefined()["precision"]


@pytest.mark.parametrize("answer", [["S1", "S1"], ["S9"]])
def test_verdicts_out_of_turn_fail_the_pair(answer):
    class Wrong:
        def verify(self, statements, against):
            return [Verdict(statement=name, label="TP") for name in answer]

    ledger = SEvalEx(verifier=Wrong()).evaluate(SOURCE, SUMMARY)
    assert ledger.status == "error" and ledger.precision is None and "Wrong" in ledger.reason


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "text",
    [
        "{summary} {0} { lone",
        "<script>alert(1)</script>",
        "a\x00b \x1b[31m c",
        "lone \ud800 surrogate.",
        "😀👩‍👩‍👧 مرحبا بالعالم. हिन्दी में।",
        "?!… ---",
        "\ufeffBOM. End.",
    ],
)
def test_odd_texts_on_both_sides(variant, text):
    for source, summary in itertools.product([text, SOURCE], [text, SUMMARY]):
        ledger = SEvalEx(variant).evaluate(source, summary)
        assert Ledger.from_json(ledger.to_json()) == ledger
        assert "<script" not in html_page([ledger]) and to_html(ledger)
        assert ledger.to_frame() is not None and str(ledger)
        json.dumps(ledger.scores(), allow_nan=False)


def test_threads_agree_with_one_another():
    evaluator, found = SEvalEx("base"), []

    def work():
        found.append([evaluator.evaluate(SOURCE, SUMMARY) for _ in range(20)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(each == found[0] for each in found)


def test_a_long_statement_without_punctuation_does_not_hang():
    words = [f"w{n % 997}" for n in range(20_000)]
    ledger = SEvalEx().evaluate(" ".join(words), " ".join(words[5_000:15_000]))
    assert ledger.support == 1


counts = st.builds(Counts, *[st.integers(0, 6)] * 6)


@given(counts)
def test_scores_stay_in_range_and_inside_their_bounds(numbers):
    for name in ("precision", "recall", "f1", "recall_source", "f1_source"):
        low, high = bounds(name, numbers)
        values = []
        for tp in range(numbers.unjudged + 1):
            for covered in range(numbers.source_unjudged + 1):
                resolved = Counts(
                    numbers.tp + tp,
                    numbers.fp + numbers.unjudged - tp,
                    0,
                    numbers.fn + numbers.source_unjudged - covered,
                    numbers.covered + covered,
                )
                values.append(bounds(name, resolved)[0])
        known = [value for value in values if value is not None]
        assert all(0 <= value <= 1 for value in known)
        if low is not None and high is not None:
            assert all(low - 1e-12 <= value <= high + 1e-12 for value in known)


@given(counts)
def test_precision_is_undefined_rather_than_guessed(numbers):
    value = precision(numbers)
    assert (value is None) == (numbers.unjudged > 0 or numbers.tp + numbers.fp == 0)


VOCABULARY = ("the", "a", "mill", "burned", "May", "nobody", "5", "7", "Ada")
words = st.lists(st.sampled_from([*VOCABULARY, ".", "!", "?", "“", "”"]), max_size=30)


@settings(max_examples=60)
@given(words.map(" ".join), words.map(" ".join), st.sampled_from(VARIANTS))
def test_any_pair_gives_a_consistent_ledger(source, summary, variant):
    ledger = SEvalEx(variant).evaluate(source, summary)
    assert Ledger.from_json(ledger.to_json()) == ledger
    for statement in ledger.statements:
        text = ledger.text(statement.side)
        assert text[statement.start : statement.end] == statement.text
    if ledger.status == "ok":
        assert len(ledger.verdicts) == len(ledger.statements)


class Yields:
    """A verifier that is a generator, as extractors may be."""

    def verify(self, statements, against):
        yield from (Verdict(statement=s.id, label="TP", support=1) for s in statements)


def test_a_verifier_may_be_a_generator():
    assert SEvalEx(verifier=Yields()).evaluate(SOURCE, SUMMARY).precision == 1


def test_a_copy_is_supported_though_the_source_repeats_itself():
    source = "He said yes. It rained today. It is late. It rained today. Nobody came."
    assert SEvalEx().evaluate(source, "It is late; it rained today.").support == 1


def test_missed_sentences_share_the_verdict_of_their_duplicates():
    source = "It rained today. It is late. It rained today."
    ledger = SEvalEx(missed="sentences").evaluate(source, "It rained today.")
    assert [v.label for v in ledger.verdicts] == ["TP", "covered", "FN", "covered"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [None],
        [Verdict(statement="S1", label="FN")],
        [Verdict(statement="S1", label="TP", evidence=[{"start": 0, "end": 10_000}])],
    ],
)
def test_garbage_from_a_verifier_is_a_status(answer):
    class Garbage:
        def verify(self, statements, against):
            return answer

    frame = [{"source": SOURCE, "summary": SUMMARY}]
    run = SEvalEx(verifier=Garbage()).evaluate_many(frame, progress=False)
    assert run["status"].tolist() == ["error"] and "\n" not in run["reason"][0]


def test_lone_surrogates_of_user_parts_do_not_lose_the_run():
    class Odd:
        def extract(self, text):
            return ["fine \ud800"]

        def verify(self, statements, against):
            raise ValueError("b\ud800")

    run = SEvalEx(extractor=Odd(), verifier=Odd()).evaluate_many(
        [{"source": SOURCE, "summary": SUMMARY}], progress=False, ledgers=True
    )
    assert run["status"].tolist() == ["error"] and run["ledger"][0].to_json()


def test_evaluators_and_ledgers_travel_between_processes():
    evaluator = pickle.loads(pickle.dumps(SEvalEx("base", threshold=0.9)))
    ledger = evaluator.evaluate(SOURCE, SUMMARY)
    assert ledger == SEvalEx("base", threshold=0.9).evaluate(SOURCE, SUMMARY)
    assert pickle.loads(pickle.dumps(ledger)) == ledger and len({ledger, ledger}) == 1


def test_links_of_the_evidence_view_lead_somewhere():
    source = "The quick brown fox jumps over the lazy dog."
    ledger = SEvalEx().evaluate(source, "The quick brown fox. The lazy dog. Fox jumps over.")
    page = html_page([ledger, ledger])
    anchors = re.findall(r'id="(.*?)"', page)
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r'href="#(.*?)"', page)) <= set(anchors)


def test_an_own_verifier_keeps_its_own_threshold():
    own = SEvalEx(threshold=0.99, verifier=LexicalVerifier(threshold=0.1))
    assert own.evaluate(SOURCE, SUMMARY).settings["threshold"] == 0.1
