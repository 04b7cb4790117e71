"""Agreement with humans: against scipy on written-out samples, and where there is no answer."""

import doctest
import gzip
import json
import os
import subprocess
import sys
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import seval_ex.correlation
from seval_ex.correlation import (
    COEFFICIENTS,
    LEVELS,
    _draws,
    _Study,
    agreement,
    ceiling,
    compare,
    document_coefficients,
    holm,
    williams,
)
from seval_ex.ledger import InvalidInput, SEvalError

FUNCTIONS = {
    "spearman": stats.spearmanr,
    "kendall": stats.kendalltau,
    "pearson": stats.pearsonr,
}
# Eighths add up exactly, so that the slow means below have no rounding errors either.
scores = st.one_of(st.none(), st.integers(-8, 8).map(lambda number: number / 8))


@st.composite
def studies(draw, columns=("metric", "other", "rating")):
    documents, systems = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    frame = pd.DataFrame(
        [(d, s) for d in range(documents) for s in range(systems)], columns=["id", "system"]
    )
    frame = frame[draw(st.lists(st.booleans(), min_size=len(frame), max_size=len(frame)))]
    if frame.empty:
        frame = pd.DataFrame({"id": [0], "system": [0]})
    for name in columns:
        frame[name] = draw(st.lists(scores, min_size=len(frame), max_size=len(frame)))
    return frame.astype(dict.fromkeys(columns, "float64"))


def noisy(documents=12, systems=5, seed=0, gaps=0.0):
    """A study with ties, a document effect and, if asked for, gaps."""
    generator = np.random.default_rng(seed)
    size = documents * systems
    frame = pd.DataFrame(
        {
            "id": np.repeat([f"d{number}" for number in range(documents)], systems),
            "system": [f"s{number}" for number in range(systems)] * documents,
        }
    )
    quality = np.tile(np.arange(systems) / 2, documents) + generator.normal(size=size)
    effect = np.repeat(generator.normal(size=documents), systems)
    frame["metric"] = np.round(4 * (quality + generator.normal(size=size))) / 4
    frame["other"] = np.round(4 * (quality + 3 * generator.normal(size=size))) / 4
    frame["rating"] = np.round(4 * (quality + effect)) / 4
    for name in ("metric", "other", "rating"):
        frame.loc[generator.random(size) < gaps, name] = np.nan
    return frame


def slow_coefficient(rows, coefficient, metric="metric"):
    if len(rows) < 2 or rows[metric].nunique() < 2 or rows["rating"].nunique() < 2:
        return np.nan
    return FUNCTIONS[coefficient](rows[metric], rows["rating"]).statistic


def slow(frame, level, coefficient, metric="metric"):
    """The definition of each level, in pandas and scipy; NaN where it is undefined."""
    rows = frame.dropna(subset=[metric, "rating"])
    if level == "summary":
        parts = [slow_coefficient(each, coefficient, metric) for _, each in rows.groupby("copy")]
        return np.mean([part for part in parts if not np.isnan(part)] or [np.nan])
    if level == "system":
        rows = rows.groupby("system")[[metric, "rating"]].mean().round(12)
    return slow_coefficient(rows, coefficient, metric)


def written_out(frame, counts, documents):
    """The resample that holds each document as often as `counts` says."""
    copies = [
        frame[frame["id"] == document].assign(copy=f"{document}/{copy}")
        for document, count in zip(documents, counts, strict=True)
        for copy in range(int(count))
    ]
    return pd.concat(copies)


def near(value, expected):
    return value is pd.NA if np.isnan(expected) else value == pytest.approx(expected, abs=1e-9)


@given(studies())
@settings(max_examples=60, deadline=None)
def test_values_and_counts_are_those_of_scipy(frame):
    before = frame.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = agreement(
            frame, "metric", "rating", level=LEVELS, coefficient=COEFFICIENTS, resamples=20
        )
    pd.testing.assert_frame_equal(frame, before)
    complete = frame.dropna(subset=["metric", "rating"])
    for row in table.itertuples():
        expected = slow(frame.assign(copy=frame["id"]), row.level, row.coefficient)
        assert near(row.value, expected), (row, expected)
        assert (row.status == "ok") == (row.value is not pd.NA)
        assert row.unscored == frame["metric"].isna().sum()
        assert row.unrated == frame["rating"].isna().sum()
        if row.low is not pd.NA:
            assert -1 - 1e-9 <= row.low <= row.high <= 1 + 1e-9
        if row.level == "summary":
            assert row.documents + row.skipped == frame["id"].nunique()
        else:
            assert (row.n, row.documents) == (len(complete), complete["id"].nunique())
            assert row.skipped == 0
        assert row.systems is pd.NA or row.systems == complete["system"].nunique()
        assert (row.systems is pd.NA) == (row.level != "system")


@given(studies())
@settings(max_examples=30, deadline=None)
def test_documents_are_those_of_scipy(frame):
    found = document_coefficients(frame, "metric", "rating", coefficient="kendall")
    assert found.index.tolist() == sorted(frame["id"].unique())
    for document, value in found.items():
        rows = frame[frame["id"] == document].dropna(subset=["metric", "rating"])
        assert near(value, slow_coefficient(rows, "kendall"))


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("gaps", [0.0, 0.3, 0.8])
def test_intervals_are_those_of_written_out_resamples(level, coefficient, gaps):
    frame = noisy(documents=7, gaps=gaps, seed=3)
    row = agreement(
        frame, "metric", "rating", level=level, coefficient=coefficient, resamples=25, seed=5
    ).iloc[0]
    study = _Study.read(frame, ["metric"], "id")
    draws = _draws(study, 25, np.random.default_rng(5))
    values = [
        slow(written_out(frame, counts, study.documents), level, coefficient) for counts in draws
    ]
    if np.isnan(values).mean() > 0.5:
        assert row["low"] is pd.NA
    else:
        expected = np.nanquantile(values, [0.025, 0.975])
        assert [row["low"], row["high"]] == pytest.approx(expected.tolist(), abs=1e-9)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("level", LEVELS)
def test_paired_intervals_are_those_of_written_out_resamples(level, coefficient):
    frame = noisy(documents=7, gaps=0.2, seed=2)
    row = compare(
        frame,
        "metric",
        "other",
        "rating",
        level=level,
        coefficient=coefficient,
        resamples=25,
        seed=5,
    ).iloc[0]
    rows = frame.dropna()
    if level == "summary":
        usable = [
            document
            for document, each in rows.groupby("id")
            if not np.isnan(
                [slow_coefficient(each, coefficient, name) for name in ("metric", "other")]
            ).any()
        ]
        rows = rows[rows["id"].isin(usable)]
        assert row["skipped"] == 7 - len(usable)
    study = _Study.read(frame, ["metric"], "id")
    draws = _draws(study, 25, np.random.default_rng(5))
    pairs = [
        [slow(drawn, level, coefficient, name) for name in ("metric", "other")]
        for drawn in (written_out(rows, counts, study.documents) for counts in draws)
    ]
    values = [
        slow(rows.assign(copy=rows["id"]), level, coefficient, m) for m in ("metric", "other")
    ]
    assert row["n"] == len(rows)
    assert [row["value"], row["other_value"]] == pytest.approx(values)
    assert row["difference"] == pytest.approx(values[0] - values[1])
    expected = np.nanquantile(np.subtract(*np.array(pairs).T), [0.025, 0.975])
    assert [row["low"], row["high"]] == pytest.approx(expected.tolist(), abs=1e-9)
    assert row["test"] == ("sign_flip" if level == "summary" else "bootstrap")


def everything(frame, metric="metric", **options):
    options = {"level": LEVELS, "coefficient": COEFFICIENTS, "resamples": 50} | options
    table = agreement(frame, metric, "rating", **options)
    return table[["value", "low", "high"]].astype(float).to_numpy(), table


def test_row_order_index_and_kinds_of_columns_do_not_matter():
    frame = noisy(gaps=0.1)
    values, table = everything(frame)
    shuffled = frame.sample(frac=1, random_state=1)
    shuffled.index = ["same"] * len(shuffled)
    nullable = frame.convert_dtypes()
    loose = frame.astype(object)
    loose["metric"] = [None if np.isnan(value) else value for value in frame["metric"]]
    loose["rating"] = [pd.NA if np.isnan(value) else value for value in frame["rating"]]
    for other in (shuffled, nullable, loose):
        found, same = everything(other)
        np.testing.assert_allclose(found, values, atol=1e-12)
        counts = ["n", "documents", "systems", "skipped", "unscored", "unrated", "status"]
        pd.testing.assert_frame_equal(same[counts], table[counts])


def test_ranks_ignore_monotone_transforms_and_signs_flip():
    frame = noisy()
    frame["bent"] = np.exp(frame["metric"])
    frame["flipped"] = -frame["metric"]
    frame["scaled"] = 1e6 * frame["metric"] - 5e6
    straight, table = everything(frame)
    # Means of bent values order the systems in their own way: not a matter for ranks.
    ranked = (table["coefficient"] != "pearson") & (table["level"] != "system")
    bent, _ = everything(frame, "bent")
    np.testing.assert_allclose(bent[ranked], straight[ranked], atol=1e-12)
    flipped, _ = everything(frame, "flipped")
    np.testing.assert_allclose(flipped, -straight[:, [0, 2, 1]], atol=1e-12)
    scaled, _ = everything(frame, "scaled")
    np.testing.assert_allclose(scaled, straight, atol=1e-9)


def test_seeds_decide_and_rows_share_the_resamples():
    frame = noisy()
    frame["twin"] = frame["metric"]
    options = {"level": LEVELS, "resamples": 100}
    both = agreement(frame, ["metric", "twin"], "rating", **options)
    again = agreement(frame, ["metric", "twin"], "rating", **options)
    pd.testing.assert_frame_equal(both, again)
    assert not agreement(frame, "metric", "rating", seed=1).equals(
        agreement(frame, "metric", "rating", seed=2)
    )
    columns = ["value", "low", "high"]
    for _, rows in both.groupby("level"):
        assert rows[columns].nunique().tolist() == [1, 1, 1]
    alone = agreement(frame, "twin", "rating", **options)
    assert alone[columns].equals(both[both["metric"] == "twin"][columns].reset_index(drop=True))


def test_intervals_widen_with_confidence_and_vanish_without_resamples():
    frame = noisy()
    narrow, wide = (
        agreement(frame, "metric", "rating", confidence=share).iloc[0] for share in (0.5, 0.99)
    )
    assert wide["low"] < narrow["low"] <= narrow["high"] < wide["high"]
    table = agreement(frame, "metric", "rating", level=LEVELS, resamples=0)
    assert table["value"].notna().all()
    assert table[["low", "high"]].isna().all(axis=None)
    duel = compare(frame, "metric", "other", "rating", resamples=0).iloc[0]
    assert duel["difference"] is not pd.NA
    assert duel[["low", "high", "p_value", "test"]].isna().all()


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    truth = agreement(noisy(documents=2000), "metric", "rating", resamples=0)["value"].item()
    covered = [
        bool(row["low"].item() <= truth <= row["high"].item())
        for row in (
            agreement(noisy(documents=30, seed=seed), "metric", "rating", resamples=200)
            for seed in range(1, 101)
        )
    ]
    assert 86 <= sum(covered) <= 100


def test_equal_metrics_are_told_apart_about_as_often_as_chance_says():
    p_values = []
    for seed in range(100):
        frame = noisy(documents=20, seed=seed)
        generator = np.random.default_rng(seed)
        swap = np.repeat(generator.random(20) < 0.5, 5)
        frame["one"] = frame["metric"].where(swap, frame["other"])
        frame["two"] = frame["other"].where(swap, frame["metric"])
        p_values.append(compare(frame, "one", "two", "rating", resamples=199)["p_value"].item())
    assert sum(value <= 0.1 for value in p_values) <= 20
    assert 0.35 < np.mean(p_values) < 0.65


@pytest.mark.parametrize("level", LEVELS)
def test_comparing_is_symmetric_and_finds_no_difference_in_a_copy(level):
    frame = noisy(documents=40)
    forth, back = (
        compare(frame, *names, "rating", level=level).iloc[0]
        for names in (("metric", "other"), ("other", "metric"))
    )
    assert forth["difference"] == -back["difference"]
    assert forth["low"] == pytest.approx(-back["high"])
    assert forth["p_value"] == back["p_value"]
    frame["copy"] = frame["metric"]
    same = compare(frame, "metric", "copy", "rating", level=level).iloc[0]
    assert (same["difference"], same["low"], same["high"], same["p_value"]) == (0, 0, 0, 1)


def test_comparing_uses_only_pairs_with_all_three_numbers_and_counts_the_rest():
    frame = noisy()
    frame.loc[0, "metric"] = np.nan
    frame.loc[[0, 1], "other"] = np.nan
    frame.loc[[2, 7], "rating"] = np.nan
    row = compare(frame, "metric", "other", "rating", level="pooled").iloc[0]
    assert (row["n"], row["unscored"], row["unrated"]) == (len(frame) - 4, 2, 2)
    complete = frame.dropna()
    assert row["value"] == pytest.approx(
        stats.spearmanr(complete["metric"], complete["rating"]).statistic
    )


def test_constant_metrics_and_ratings_are_undefined():
    frame = noisy().assign(flat=0.1)
    table = agreement(frame, ["flat", "metric"], "rating", level=LEVELS, coefficient=COEFFICIENTS)
    flat = table[table["metric"] == "flat"]
    assert (flat["status"] == "constant").all()
    assert flat[["value", "low", "high"]].isna().all(axis=None)
    assert (table[table["metric"] == "metric"]["status"] == "ok").all()
    for level in LEVELS:
        duel = compare(frame, "metric", "flat", "rating", level=level).iloc[0]
        assert duel["status"] == "constant"
        assert duel[["other_value", "difference", "low", "high", "p_value", "test"]].isna().all()


def test_rounding_in_means_makes_no_order():
    # 0.1 added up 99 and 101 times gives two different means in floating point.
    frame = pd.DataFrame({"id": range(300), "system": ["A"] * 99 + ["B"] * 101 + ["C"] * 100})
    frame["metric"] = 0.1
    frame["rating"] = np.repeat([1, 2, 3], [99, 101, 100])
    for coefficient in COEFFICIENTS:
        row = agreement(frame, "metric", "rating", level="system", coefficient=coefficient).iloc[0]
        assert (row["status"], row["value"] is pd.NA, row["systems"]) == ("constant", True, 3)


def test_a_document_with_equal_ratings_is_skipped_and_counted():
    frame = noisy()
    frame.loc[frame["id"] == "d3", "rating"] = 5
    row = agreement(frame, "metric", "rating").iloc[0]
    assert (row["documents"], row["skipped"], row["n"]) == (11, 1, 55)
    assert document_coefficients(frame, "metric", "rating")["d3"] is pd.NA


def test_one_document_has_values_and_no_interval():
    frame = noisy(documents=1, systems=8)
    table = agreement(frame, "metric", "rating", level=LEVELS)
    assert table["value"].nunique() == 1
    assert table[["low", "high"]].isna().all(axis=None)
    for level in LEVELS:
        duel = compare(frame, "metric", "other", "rating", level=level).iloc[0]
        assert duel["difference"] is not pd.NA
        assert duel[["low", "high", "p_value", "test"]].isna().all()


def test_one_system_has_only_a_pooled_value():
    table = agreement(noisy(systems=1), "metric", "rating", level=LEVELS).set_index("level")
    assert table["status"].to_dict() == {"summary": "too_few", "pooled": "ok", "system": "too_few"}
    assert table.loc["system", "systems"] == 1
    assert table.loc["summary", "skipped"] == 12


def test_nothing_scored_is_too_few_with_every_pair_counted():
    for empty in (np.nan, None, pd.NA):
        frame = noisy().assign(metric=empty)
        table = agreement(frame, "metric", "rating", level=LEVELS)
        assert (table["status"] == "too_few").all()
        assert (table["unscored"] == 60).all()
        assert (table[["n", "documents"]] == 0).all(axis=None)
        assert table["value"].isna().all()
        duel = compare(frame, "metric", "other", "rating").iloc[0]
        assert (duel["status"], duel["n"], duel["unscored"]) == ("too_few", 0, 60)


def test_labels_may_be_text_or_numbers_or_both():
    frame = noisy()
    values, _ = everything(frame)
    for rename in (lambda name: int(name[1:]), lambda name: int(name[1:]) if name < "d3" else name):
        renamed = frame.assign(id=[rename(name) for name in frame["id"]])
        found, _ = everything(renamed)
        np.testing.assert_allclose(found[:, 0], values[:, 0])
    numbered = frame.assign(id=[int(name[1:]) for name in frame["id"]])
    assert document_coefficients(numbered, "metric", "rating").index.tolist() == list(range(12))


def test_other_names_for_the_labels():
    frame = noisy().rename(columns={"id": "article", "system": "model"})
    names = {"document": "article", "system": "model"}
    table = agreement(frame, "metric", "rating", level=LEVELS, **names)
    assert (table["status"] == "ok").all()
    assert compare(frame, "metric", "other", "rating", level="system", **names)["n"].item() == 60
    series = document_coefficients(frame, "metric", "rating", document="article")
    assert (series.index.name, series.name, str(series.dtype)) == ("article", "spearman", "Float64")


def test_the_table_is_tidy():
    table = agreement(
        noisy(), ["metric", "other"], "rating", level=["system", "summary"], resamples=10
    )
    assert table.columns.tolist() == [
        *("level", "coefficient", "metric", "rating", "value", "low", "high"),
        *("n", "documents", "systems", "skipped", "unscored", "unrated", "status"),
    ]
    assert table["level"].tolist() == ["system", "system", "summary", "summary"]
    assert table["metric"].tolist() == ["metric", "other"] * 2
    assert {str(table[name].dtype) for name in ("value", "low", "high")} == {"Float64"}
    assert {str(table[name].dtype) for name in ("n", "systems", "unscored")} == {"Int64"}


def test_booleans_are_numbers():
    frame = noisy()
    frame["faithful"] = frame["rating"] > frame["rating"].median()
    frame["number"] = frame["faithful"].astype(int)
    for columns in (
        frame,
        frame.astype({"faithful": "boolean"}),
        frame.astype({"faithful": object}),
    ):
        table = agreement(columns, "metric", ["faithful", "number"], level="pooled")
        assert table["value"].nunique() == 1


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({}, {"metrics": "bleu"}, "column 'bleu' is missing; the frame has: 'id', 'system'"),
        ({}, {"ratings": "fluency"}, "column 'fluency' is missing"),
        ({}, {"document": "article"}, "column 'article' is missing"),
        ({}, {"level": "system", "system": "model"}, "column 'model' is missing"),
        ({}, {"level": "corpus"}, "unknown level 'corpus'; known: summary, pooled, system"),
        ({}, {"level": ["summary", "corpus"]}, "unknown level 'corpus'"),
        ({}, {"level": []}, "name at least one level"),
        ({}, {"coefficient": "tau"}, "unknown coefficient 'tau'; known: spearman"),
        ({}, {"metrics": []}, "name at least one metric"),
        ({}, {"ratings": ()}, "name at least one rating"),
        ({}, {"resamples": -1}, "resamples must be a whole number from 0 to 1000000, not -1"),
        ({}, {"resamples": 0.5}, "resamples must be"),
        ({}, {"confidence": 1}, "confidence must lie between 0 and 1"),
        ({}, {"confidence": float("nan")}, "confidence must lie"),
        ({"metric": "high"}, {}, "column 'metric' is not numeric: it holds 'high'"),
        ({"metric": ["1.5"] * 60}, {}, "column 'metric' is not numeric: it holds '1.5'"),
        ({"rating": 1j}, {}, "column 'rating' is not numeric"),
        ({"rating": pd.Timestamp("2025-01-01")}, {}, "column 'rating' is not numeric"),
        ({"metric": np.inf}, {}, "column 'metric' holds 60 infinite values"),
        ({}, {"seed": -1}, "seed must be a whole number"),
        ({}, {"resamples": True}, "resamples must be a whole number"),
        ({}, {"confidence": "0.9"}, "confidence must lie between 0 and 1"),
        ({"id": None}, {}, "column 'id' has 60 rows without a label"),
        ({"id": "one"}, {"level": "system"}, "document 'one' has system 's0' 12 times"),
    ],
)
def test_bad_input_is_named(change, options, said):
    frame = noisy().assign(**change)
    arguments = {"metrics": "metric", "ratings": "rating"} | options
    with pytest.raises(InvalidInput) as caught:
        agreement(frame, **arguments)
    assert said in str(caught.value)
    assert isinstance(caught.value, SEvalError)
    assert isinstance(caught.value, ValueError)


def test_an_empty_frame_and_a_doubled_column_are_bad_input():
    frame = noisy()
    with pytest.raises(InvalidInput, match="the frame is empty"):
        agreement(frame[:0], "metric", "rating")
    with pytest.raises(InvalidInput, match="'metric' is there more than once"):
        agreement(pd.concat([frame, frame[["metric"]]], axis=1), "metric", "rating")


def test_the_other_functions_refuse_the_same():
    frame = noisy()
    with pytest.raises(InvalidInput, match="unknown coefficient"):
        document_coefficients(frame, "metric", "rating", coefficient="tau")
    with pytest.raises(InvalidInput, match="column 'bleu' is missing"):
        document_coefficients(frame, "bleu", "rating")
    with pytest.raises(InvalidInput, match="unknown level"):
        compare(frame, "metric", "other", "rating", level="corpus")
    with pytest.raises(InvalidInput, match="resamples"):
        compare(frame, "metric", "other", "rating", resamples=-1)
    with pytest.raises(InvalidInput, match="column 'bleu' is missing"):
        compare(frame, "metric", "bleu", "rating")


def test_repeated_systems_pass_where_no_system_is_averaged():
    frame = noisy().assign(system="one")
    assert agreement(frame, "metric", "rating", level=["summary", "pooled"])["n"].eq(60).all()
    assert "ok" in agreement(frame.drop(columns="system"), "metric", "rating")["status"].tolist()


def test_blocks_do_not_change_the_numbers(monkeypatch):
    frame = noisy(gaps=0.1)
    whole, _ = everything(frame)
    monkeypatch.setattr(seval_ex.correlation, "BLOCK", 100)
    parts, _ = everything(frame)
    np.testing.assert_allclose(parts, whole, atol=1e-12)


def test_importing_loads_neither_pandas_nor_scipy():
    code = "import sys, seval_ex.correlation; print({'pandas', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(seval_ex.correlation).failed == 0


@given(studies(), st.sampled_from(COEFFICIENTS))
def test_silent_metrics_count_as_no_agreement_where_people_differ(frame, coefficient):
    skipped = document_coefficients(frame, "metric", "rating", coefficient=coefficient)
    as_zero = document_coefficients(
        frame, "metric", "rating", coefficient=coefficient, silent="zero"
    )
    for label, part in frame.groupby("id"):
        both = part[["metric", "rating"]].dropna()
        differs = both["rating"].nunique() > 1
        expected = 0.0 if differs and both["metric"].nunique() == 1 else skipped[label]
        assert as_zero[label] is pd.NA if expected is pd.NA else as_zero[label] == expected


@given(st.floats(-0.95, 0.95), st.floats(-0.95, 0.95), st.floats(-0.95, 0.95), st.integers(4, 2000))
def test_williams_is_a_test(first, second, between, n):
    one, two = williams(first, second, between, n), williams(second, first, between, n)
    assert 0 <= one.p_value <= 1 and one.p_value == pytest.approx(two.p_value)
    assert one.statistic == pytest.approx(-two.statistic)
    assert williams(first, first, between, n).p_value == 1


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_holm_is_that_of_statsmodels(p_values):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    known = [p for p in p_values if p is not None]
    found = holm(p_values)
    assert [p is None for p in found] == [p is None for p in p_values]
    if known:
        expected = multitest.multipletests(known, method="holm")[1]
        assert [p for p in found if p is not None] == pytest.approx(list(expected))


def test_the_ceiling_is_one_annotator_against_the_mean_of_the_others():
    generator = np.random.default_rng(4)
    rows = [
        {"id": f"d{d}", "system": s, "annotator": a, "rating": float(generator.integers(1, 6))}
        for d in range(6)
        for s in range(5)
        for a in range(3)
    ]
    frame = pd.DataFrame(rows).sample(frac=1, random_state=1)
    found = ceiling(frame, "rating", resamples=50).iloc[0]
    by_person = []
    for person in range(3):
        values = []
        for _, part in frame.groupby("id"):
            wide = part.pivot(index="system", columns="annotator", values="rating")
            rest = wide.drop(columns=person).mean(axis=1)
            values.append(stats.spearmanr(wide[person], rest).statistic)
        by_person.append(np.nanmean(values))
    assert found["value"] == pytest.approx(np.mean(by_person))
    assert (found["least"], found["most"]) == pytest.approx((min(by_person), max(by_person)))
    assert found["annotators"] == 3 and found["n"] == 30


DATA = os.environ.get("SEVAL_EX_DATA")
DIMENSIONS = ("fluency", "consistency", "coherence", "relevance")


def rouge_frame(path):
    """Mean ROUGE F over SummEval's 11 references, for each of its 1,600 summaries."""
    from rouge_score import rouge_scorer, tokenizers

    class Remembering(tokenizers.DefaultTokenizer):
        """Each text is scored many times; stemming it once is what makes this test quick."""

    tokenizer = Remembering(use_stemmer=True)
    tokenizer.tokenize = lru_cache(None)(tokenizer.tokenize)
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2"], tokenizer=tokenizer)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    rows = []
    for each in documents:
        for number, (name, summary) in enumerate(
            zip(each["systems"], each["machine_summaries"], strict=True)
        ):
            found = [scorer.score(reference, summary) for reference in each["human_summaries"]]
            row = {"id": each["id"], "system": name}
            row |= {key: np.mean([one[key].fmeasure for one in found]) for key in found[0]}
            rows.append(row | {key: each[key][number] for key in DIMENSIONS})
    return pd.DataFrame(rows)


@pytest.mark.skipif(not DATA, reason="SEVAL_EX_DATA does not name the folder with SummEval")
def test_the_rouge_rows_of_table_2():
    pytest.importorskip("rouge_score")
    frame = rouge_frame(Path(DATA) / "summeval" / "summeval_16systems.jsonl.gz")
    assert frame.shape == (1600, 8)
    table = agreement(frame, ["rouge1", "rouge2"], list(DIMENSIONS))
    found = table.pivot(index="metric", columns="rating", values="value")[list(DIMENSIONS)]
    assert found.loc["rouge1"].tolist() == pytest.approx([0.116, 0.160, 0.169, 0.328], abs=0.002)
    assert found.loc["rouge2"].tolist() == pytest.approx([0.159, 0.187, 0.184, 0.290], abs=0.002)
    assert (table["low"] < table["value"]).all()
    assert (table["value"] < table["high"]).all()
    # Experts gave all 16 summaries of some documents the same mark for consistency.
    assert (table["documents"] + table["skipped"] == 100).all()
    skipped = table.groupby("rating")["skipped"].unique().map(list).to_dict()
    assert skipped == {"fluency": [2], "consistency": [4], "coherence": [0], "relevance": [0]}


def test_holm_takes_a_column_of_a_table():
    column = pd.array([0.01, pd.NA, 0.03], dtype="Float64")
    assert holm(column) == [0.02, None, 0.03]
    assert holm([float("nan"), 0.01, 0.03]) == [None, 0.02, 0.03]
    with pytest.raises(InvalidInput, match="no p-value"):
        holm([0.5, 2])


def test_williams_refuses_what_is_missing():
    with pytest.raises(InvalidInput, match="a correlation lies"):
        williams(pd.NA, 0.5, 0.5, 10)


def ratings_by_two(**columns):
    frame = pd.DataFrame(
        {"id": ["a"] * 6, "system": list("xyzxyz"), "annotator": [0] * 3 + [1] * 3}
    )
    return frame.assign(consistency=[1, 2, 3, 1, 3, 2], **columns)


def test_ceiling_with_a_column_called_number():
    frame = ratings_by_two().rename(columns={"annotator": "number"})
    found = ceiling(frame, "consistency", annotator="number", resamples=0)
    assert found["value"].tolist() == [0.5]


def test_a_label_is_there_and_can_be_told_from_others():
    for column in ("id", "system", "annotator"):
        frame = ratings_by_two(**{column: ["a", "b", "c", "d", "e", None]})
        with pytest.raises(InvalidInput, match=f"column '{column}' has 1 rows without a label"):
            ceiling(frame, "consistency", resamples=0)
    with pytest.raises(InvalidInput, match="which is no label"):
        agreement(ratings_by_two(id=[[1]] * 6), "annotator", "consistency", resamples=0)
    with pytest.raises(InvalidInput, match="too large"):
        agreement(ratings_by_two(huge=[10**400] * 6), "huge", "consistency", resamples=0)
