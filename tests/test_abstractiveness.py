"""Abstractiveness on texts that nobody chose, against rouge-score and slow direct counts."""

import math
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from seval_ex import abstractiveness
from seval_ex.abstractiveness import (
    Abstractiveness,
    abstraction_ratio,
    aggregate,
    count_overlaps,
    extraction,
    mint,
    novel_ngrams,
    overlap,
    reference_abstraction,
    risk,
    score_frame,
    score_parquet,
    to_html,
    words,
)
from seval_ex.ledger import InvalidInput, SEvalError

ORACLE = RougeScorer(["rouge1", "rouge2", "rougeL"])
NAMES = ("rouge1", "rouge2", "rougeL")

letters = st.sampled_from(
    [*"abcX09", "the", "mill", "été", "e\u0301", "👩‍👩‍👧", "😀", "\u212a", "İ"]
)
listed = st.lists(letters, max_size=60).map(" ".join)
repeated = st.tuples(st.sampled_from("xyz"), st.integers(0, 150)).map(
    lambda pair: " ".join([pair[0]] * pair[1])
)
texts = st.text(max_size=200) | listed | repeated


def precision(text, source):
    found = ORACLE.score(source, text)
    return [found[name].precision for name in NAMES]


@settings(max_examples=300, deadline=None)
@given(texts, texts)
def test_shares_are_rouge_precision_against_the_source(text, source):
    found = overlap(text, source)
    size = len(words(text))
    for share, expected, total in zip(
        found, precision(text, source), (size, size - 1, size), strict=False
    ):
        assert (share is None) == (total <= 0)
        assert share is None or share == expected
        assert share is None or 0 <= share <= 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8), st.integers(0, 7))
def test_both_engines_count_the_same(pairs, shared):
    pairs += [(text, pairs[shared % len(pairs)][1]) for text, _ in pairs]
    columns = [text for text, _ in pairs], [source for _, source in pairs]
    compiled = count_overlaps(*columns, engine="compiled")
    assert (compiled == count_overlaps(*columns, engine="plain")).all()
    assert (compiled[:, :3] >= 0).all() and (compiled[:, 0] <= compiled[:, 3]).all()


@pytest.mark.parametrize("seed", range(3))
def test_long_words_and_many_blocks(seed):
    generator = random.Random(seed)
    vocabulary = ["w" * size for size in range(1, 40)] + [f"{'a' * 16}{n}" for n in range(30)]
    pairs = [
        [" ".join(generator.choices(vocabulary, k=generator.randint(0, 400))) for _ in range(2)]
        for _ in range(40)
    ]
    columns = [text for text, _ in pairs], [source for _, source in pairs]
    compiled = count_overlaps(*columns, engine="compiled")
    assert (compiled == count_overlaps(*columns, engine="plain")).all()


@pytest.mark.parametrize("kind", ["random", "equal", "distinct"])
def test_a_hundred_thousand_words(kind):
    generator = random.Random(1)
    size = 100_000
    made = {
        "random": lambda: [f"w{generator.randint(0, 5000)}" for _ in range(size)],
        "equal": lambda: ["x"] * size,
        "distinct": lambda: [f"w{n}" for n in range(size)],
    }
    text, source = made[kind](), made[kind]()
    [counts] = count_overlaps([" ".join(text)], [" ".join(source)], engine="compiled")
    assert counts[0] == (Counter(text) & Counter(source)).total()
    assert counts[1] == (Counter(pairwise(text)) & Counter(pairwise(source))).total()
    assert 0 < counts[2] <= counts[0] and counts[3] == counts[4] == size
    if kind != "random":
        assert counts[2] == size
    found = extraction(" ".join(text), " ".join(source))
    assert 0 < found.coverage <= 1 and found.density <= size


def test_more_different_words_than_characters_below_the_surrogates():
    text = " ".join(f"w{n}" for n in range(0xD800 - 10, 0xE000 + 10))
    assert overlap(text, text)[:3] == (1, 1, 1)


def slow_fragments(text, source):
    found, start = [], 0
    while start < len(text):
        best = 0
        for at in range(len(source)):
            length = 0
            while (
                text[start + length : start + length + 1]
                == source[at + length : at + length + 1]
                != []
            ):
                length += 1
            best = max(best, length)
        found += [best] if best else []
        start += max(best, 1)
    return found


@settings(max_examples=200, deadline=None)
@given(listed | repeated, listed | repeated)
def test_fragments_are_the_slow_ones(text, source):
    mine, theirs = words(text), words(source)
    expected = slow_fragments(mine, theirs)
    found = extraction(text, source)
    assert [fragment.length for fragment in found.fragments] == expected
    for fragment in found.fragments:
        there = theirs[fragment.source_start : fragment.source_start + fragment.length]
        assert mine[fragment.start : fragment.start + fragment.length] == there
    if mine:
        assert found.coverage == sum(expected) / len(mine)
        assert found.density == sum(length**2 for length in expected) / len(mine)
        assert found.compression == len(theirs) / len(mine)


@settings(max_examples=100, deadline=None)
@given(texts, texts, st.integers(1, 4))
def test_companions_stay_in_range(text, source, n):
    for share in novel_ngrams(text, source, n):
        assert share is None or 0 <= share <= 1
    value = mint(text, source)
    assert (value is None) == (len(words(text)) < 4)
    assert value is None or value <= 1


@settings(max_examples=150, deadline=None)
@given(texts, texts, texts, st.sampled_from(["ascii", "unicode"]))
def test_one_triple_is_one_row(source, summary, reference, tokens):
    one = Abstractiveness(source, summary, reference, tokens=tokens)
    frame = pd.DataFrame({"source": [source], "summary": [summary], "reference": [reference]})
    row = score_frame(frame, tokens=tokens, companions=True).iloc[0]
    for name, value in one.values.items():
        assert value == row[name] or (value is None and row[name] is pd.NA)
        assert not (isinstance(value, float) and math.isnan(value))
    for kind in "12L":
        ratio = one[f"AR{kind}"]
        assert ratio is None or 0 <= ratio <= 1 / one.eps * (1 + 1e-9)
        assert (ratio is None) == (one[f"risk{kind}"] is None)
    html = to_html(one)
    assert "<script" not in html.replace("&lt;script", "")
    for piece in one.copied:
        assert summary[piece.summary.start : piece.summary.end] == piece.summary.text
        assert source[piece.source.start : piece.source.end] == piece.source.text
        assert (
            words(piece.summary.text, tokens) == words(piece.source.text, tokens)
            or tokens == "ascii"
        )


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 500), st.integers(1, 500))
def test_formulas_between_0_and_1(mine, theirs, length, source_length):
    value = reference_abstraction(mine, length, source_length)
    assert 0 <= value <= 2 * min(length, source_length)
    ratio = abstraction_ratio(mine, theirs)
    assert 0 <= ratio <= 1e6 * (1 + 1e-9) and risk(ratio) is not None
    if mine == theirs < 0.9:
        assert abs(ratio - 1) < 1e-2


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_missing_cells_are_undefined_and_say_so(missing):
    source, text, other = "A lamp burned.", "A fire took the mill.", "A blaze."
    rows = [
        (missing, text, other),
        (source, missing, other),
        (source, text, missing),
        (source, text, other),
    ]
    frame = pd.DataFrame(
        rows, columns=["source", "summary", "reference"], index=[3, 1, 2, 1], dtype=object
    )
    found = score_frame(frame, companions=True)
    assert found.index.tolist() == [3, 1, 2, 1]
    flags = found["flags"].tolist()
    assert flags == ["missing_source", "missing_summary", "missing_reference", ""]
    assert found["AR1"].isna().tolist() == [True, True, True, False]
    assert found["SA1"].isna().tolist() == [True, True, False, False]
    assert found["risk1"].isna().tolist() == [True, True, True, False]
    assert found["mint"].isna().tolist() == [True, True, False, False]
    assert str(found["AR1"].dtype) == "Float64"


def test_what_a_frame_must_not_hold():
    frame = pd.DataFrame({"source": ["a"], "summary": [3], "reference": ["b"]})
    with pytest.raises(InvalidInput, match="row 1, column 'summary': 3 is not text"):
        score_frame(frame)
    with pytest.raises(InvalidInput, match="no column 'article'"):
        score_frame(frame, source="article")
    frame = pd.DataFrame({"source": ["a"], "summary": ["a"], "cS1": [0]})
    with pytest.raises(InvalidInput, match="pass a prefix"):
        score_frame(frame, reference=None)
    assert score_frame(frame, reference=None, prefix="new_")["new_cS1"].tolist() == [1]
    assert "AR1" not in score_frame(frame[["source", "summary"]], reference=None)


def test_an_empty_frame_and_odd_tokenisers():
    empty = pd.DataFrame({"source": [], "summary": [], "reference": []})
    assert len(score_frame(empty)) == 0
    pair = pd.DataFrame({"source": ["a-b c"], "summary": ["a-b"], "reference": ["c"]})
    found = score_frame(pair, tokens=str.split)
    assert found["cS1"].tolist() == [1] and found["flags"].str.contains("one_word").all()
    with pytest.raises(InvalidInput, match="tokens='ascii'"):
        score_frame(pair, tokens="unicode", engine="compiled")
    with pytest.raises(InvalidInput, match="engine='gpu'"):
        score_frame(pair, engine="gpu")


def test_without_numba_the_plain_engine_counts(monkeypatch):
    monkeypatch.setattr(abstractiveness, "find_spec", lambda name: None)
    sources = [f"a b c {n}" for n in range(5001)]
    assert count_overlaps(sources, sources)[:, 0].tolist() == [4] * 5001
    with pytest.raises(SEvalError, match="needs numba"):
        count_overlaps(["a"], ["a"], engine="compiled")


def test_many_pairs_take_the_kernel_and_agree():
    generator = random.Random(5)
    made = [" ".join(generator.choices("abcdefgh é", k=30)) for _ in range(6000)]
    columns = made, made[1:] + made[:1]
    assert (count_overlaps(*columns) == count_overlaps(*columns, engine="plain")).all()


def test_parquet_in_pieces_is_the_frame(tmp_path):
    generator = random.Random(6)
    rows = {
        name: [" ".join(generator.choices("abcd", k=generator.randint(0, 9))) for _ in range(700)]
        for name in ("source", "summary", "reference")
    }
    frame = pd.DataFrame(rows)
    frame.loc[::50, "reference"] = None
    frame.to_parquet(tmp_path / "in.parquet")
    assert score_parquet(tmp_path / "in.parquet", tmp_path / "out.parquet", rows=64) == 700
    back, whole = pd.read_parquet(tmp_path / "out.parquet"), score_frame(frame)
    assert back["flags"].tolist() == whole["flags"].tolist()
    for name in ("cS1", "RA2", "ARL"):
        assert np.array_equal(
            back[name].to_numpy(float, na_value=np.nan),
            whole[name].to_numpy(float, na_value=np.nan),
            equal_nan=True,
        )
    frame.iloc[:0].to_parquet(tmp_path / "none.parquet")
    with pytest.raises(SEvalError, match="no rows"):
        score_parquet(tmp_path / "none.parquet", tmp_path / "out.parquet")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "in.parquet",
        "none.parquet",
        "out.parquet",
    ]


def test_every_pair_of_the_data_is_rouge_precision(shared_data):
    from seval_ex.tables import abstraction_data

    frame, _ = abstraction_data("auto")
    pairs = frame.drop_duplicates(["source", "summary"]).iloc[::7]
    counts = count_overlaps(pairs["summary"].tolist(), pairs["source"].tolist(), engine="compiled")
    for (summary, source), row in zip(pairs[["summary", "source"]].to_numpy(), counts, strict=True):
        total = (row[3], row[3] - 1, row[3])
        ours = [part / whole if whole else 0 for part, whole in zip(row, total, strict=False)]
        assert ours == precision(summary, source)


def test_the_figures_of_the_design(shared_data):
    from seval_ex.tables import abstraction_data, by_set

    frame, _ = abstraction_data("xsum")
    scored = by_set(score_frame(frame))
    medians = scored.groupby(["set", "system"])["AR2"].median()
    assert round(medians["XSUM first 50", "pegasus"], 3) == 0.924
    references = frame[frame["system"] == "huggingface"]
    for size, share in ((50, 0.6145), (100, 0.6275)):
        told = aggregate(score_frame(references.head(size))).set_index("measure")
        assert round(told.loc["cR1", "mean"], 4) == share
    first = aggregate(score_frame(references.head(50))).set_index("measure")
    assert round(first.loc["RA1", "mean"], 3) == 3.547
