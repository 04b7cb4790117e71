"""What the plots put on their axes: the artists' data, not pixels."""

import doctest
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection, PathCollection

import seval_ex.report
from seval_ex import SEvalEx
from seval_ex.correlation import agreement
from seval_ex.ledger import InvalidInput, Ledger, Status, Usage
from seval_ex.llm import Reply, Request
from seval_ex.recordings import Recordings, key_parts
from seval_ex.report import (
    plot_agreement,
    plot_calibration,
    plot_pairs,
    plot_risk,
    plot_usage,
    run_usage,
    theme,
)


@pytest.fixture(autouse=True)
def clean_figures():
    before = dict(matplotlib.rcParams)
    yield
    changed = {name for name in before if before[name] != matplotlib.rcParams[name]}
    assert not changed, "a plot changed the global settings"
    plt.close("all")


def labels(panel):
    return [label.get_text() for label in panel.get_yticklabels()]


def words(panel):
    return [text.get_text() for text in panel.texts]


def dots(panel, count=None):
    """The points of an Axes, collection by collection, without NaN."""
    found = [each for each in panel.collections if isinstance(each, PathCollection)]
    points = [np.asarray(each.get_offsets(), dtype=float) for each in found]
    return np.concatenate([np.empty((0, 2)), *points])


def segments(panel):
    found = [each for each in panel.collections if isinstance(each, LineCollection)]
    return [np.asarray(line) for each in found for line in each.get_segments()]


def figure_words(panel):
    return [text.get_text() for legend in panel.figure.legends for text in legend.get_texts()]


@pytest.fixture(scope="module")
def found():
    generator = np.random.default_rng(1)
    quality = generator.normal(size=120)
    frame = pd.DataFrame({"id": np.repeat(range(15), 8), "system": list(range(8)) * 15})
    frame["sharp"] = quality + generator.normal(size=120) / 2
    frame["blunt"] = quality + generator.normal(size=120) * 3
    frame["flat"] = 1.0
    for rating in ("fluency", "consistency"):
        frame[rating] = quality + generator.normal(size=120)
    return agreement(frame, ["blunt", "flat", "sharp"], ["fluency", "consistency"], resamples=99)


# Agreement


def test_agreement_draws_each_value_and_its_interval(found):
    panels = plot_agreement(found)
    assert [panel.get_title() for panel in panels] == ["fluency", "consistency"]
    assert labels(panels[0]) == ["sharp", "blunt", "flat"]
    for panel, (_, part) in zip(panels, found.groupby("rating", sort=False), strict=True):
        part = part.set_index("metric").loc[["sharp", "blunt"]]
        values = part["value"].astype(float)
        assert np.allclose(
            dots(panel)[dots(panel)[:, 1].argsort()], np.column_stack([values, [0, 1]])
        )
        drawn = sorted((line[0][1], line[0][0], line[1][0]) for line in segments(panel))
        wanted = zip([0, 1], part["low"].astype(float), part["high"].astype(float), strict=True)
        assert np.allclose(drawn, sorted(wanted))


def test_an_undefined_coefficient_keeps_its_line_and_says_why(found):
    panel = plot_agreement(found)[0]
    text = next(text for text in panel.texts if "undefined (constant)" in text.get_text())
    assert text.get_position()[1] == labels(panel).index("flat")


def test_the_axis_names_coefficient_and_level(found):
    assert plot_agreement(found)[0].get_xlabel() == "Spearman's ρ with the rating\nsummary level"


def test_one_rating_gives_one_axes_and_takes_one(found):
    part = found[found["rating"] == "fluency"]
    assert isinstance(plot_agreement(part), matplotlib.axes.Axes)
    _, mine = plt.subplots()
    assert plot_agreement(part, ax=mine) is mine


def test_given_axes_are_used_in_order_and_counted(found):
    _, mine = plt.subplots(2, 1)
    assert list(plot_agreement(found, ax=mine)) == list(mine)
    for wrong in (mine[0], [mine[0]] * 3, [mine[0], "axes"]):
        with pytest.raises(InvalidInput, match=r"2 panels need 2 axes|ax holds a str"):
            plot_agreement(found, ax=wrong)


def test_published_figures_are_hollow_and_named(found):
    papers = pd.DataFrame(
        {
            "metric": ["sharp", "closed", "sharp"],
            "dimension": ["fluency", "fluency", "style"],
            "value": [0.31, 0.4, 0.9],
        }
    )
    panel = plot_agreement(found, published=papers)[0]
    assert labels(panel) == ["sharp", "blunt", "closed", "flat"]
    hollow = [each for each in panel.collections if not len(each.get_facecolor())]
    points = [c.get_offsets().tolist() for c in hollow if isinstance(c, PathCollection)]
    assert points == [[[0.31, 0.0], [0.4, 2.0]]]
    assert figure_words(panel) == ["measured, with interval", "published"]
    assert np.size(plot_agreement(None, published=papers)) == 2


def test_published_figures_of_several_papers_and_of_other_coefficients(found):
    papers = pd.DataFrame({"metric": "sharp", "dimension": "fluency", "value": [0.1, 0.2, 0.9]})
    papers["coefficient"] = ["spearman", "spearman", "kendall"]
    panel = plot_agreement(found, published=papers)[0]
    points = [each for each in panel.collections if isinstance(each, PathCollection)]
    hollow = next(each for each in points if not len(each.get_facecolor()))
    assert hollow.get_offsets().tolist() == [[0.1, 0.0], [0.2, 0.0]]
    with pytest.raises(InvalidInput, match="published has the coefficients spearman, kendall"):
        plot_agreement(None, published=papers)
    alone = plot_agreement(None, published=papers[:2])
    assert alone.get_xlabel() == "Spearman's ρ with the rating"


def test_a_ceiling_is_a_labelled_line_where_it_is_known(found):
    panels = plot_agreement(found, ceiling={"consistency": 0.83}, ceiling_label="experts")
    assert "experts 0.83" in words(panels[1])
    assert not any("experts" in text for text in words(panels[0]))
    assert any(list(line.get_xdata()) == [0.83, 0.83] for line in panels[1].lines)


def test_groups_have_a_colour_and_a_marker_of_their_own(found):
    needs = found.assign(needs=found["metric"].map({"sharp": "LLM"}).fillna("source"))
    by_column = plot_agreement(needs, group="needs")[0]
    by_mapping = plot_agreement(found, group={"sharp": "LLM", "blunt": "source"})[0]
    assert figure_words(by_column) == ["LLM", "source"]
    assert figure_words(by_mapping) == ["LLM", "source", "other"]
    first, second = (each for each in by_column.collections if isinstance(each, PathCollection))
    assert first.get_facecolor().tolist() != second.get_facecolor().tolist()
    assert len(first.get_paths()[0]) != len(second.get_paths()[0])


def test_order_by_a_rating_or_as_given(found):
    assert labels(plot_agreement(found, order=["flat", "sharp"])[0]) == ["flat", "sharp"]
    assert labels(plot_agreement(found, order="consistency")[0])[0] == "sharp"
    for wrong in ("style", ["sharp", "odd"]):
        with pytest.raises(InvalidInput, match=r"pass a rating's name|the metrics are"):
            plot_agreement(found, order=wrong)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="metric"), "has no column 'metric'; it has: level"),
        (lambda f: pd.concat([f, f]), "has 'blunt' for 'fluency' more than once"),
        (
            lambda f: pd.concat([f, f.assign(level="system")]),
            "the agreement has the levels summary, system",
        ),
        (lambda f: f.assign(value="much"), "holds 'much'"),
        (lambda f: f.to_dict("list"), "is a dict: pass a pandas DataFrame"),
    ],
)
def test_wrong_agreement_is_refused_with_advice(found, change, message):
    with pytest.raises(InvalidInput, match=message):
        plot_agreement(change(found))


def test_agreement_of_nothing_says_so():
    for nothing in (None, pd.DataFrame(), pd.DataFrame({"metric": []})):
        assert words(plot_agreement(nothing)) == ["agreement: no rows to draw"]


def test_a_value_outside_its_percentile_interval_is_drawn():
    rows = {"metric": ["a"], "rating": ["r"], "value": [0.9], "low": [0.1], "high": [0.8]}
    panel = plot_agreement(pd.DataFrame(rows))
    assert dots(panel).tolist() == [[0.9, 0.0]]
    assert segments(panel)[0][:, 0].tolist() == [0.1, 0.8]


def test_many_metrics_fit(found):
    rows = {
        "metric": [f"m{n}" for n in range(500)],
        "rating": "r",
        "value": np.linspace(0, 1, 500),
    }
    panel = plot_agreement(pd.DataFrame(rows), ax=plt.figure().subplots())
    assert len(dots(panel)) == 500


# Pairs


def ticks(panel):
    return [label.get_text() for label in panel.get_xticklabels()]


def lines_by_label(panel):
    """The pairs' ends, by what became of them."""
    found = {"fell": [], "the same": [], "rose": []}
    for each in panel.collections:
        if each.get_label() in found:
            found[each.get_label()] += [line[:, 1].tolist() for line in each.get_segments()]
    return found


def test_pairs_are_drawn_by_what_became_of_them():
    first, second = [0.9, 0.5, 0.5, None, 0.4], [0.2, 0.5, 0.8, 0.1, float("nan")]
    panel = plot_pairs(first, second)
    drawn = {"fell": [[0.9, 0.2]], "the same": [[0.5, 0.5]], "rose": [[0.5, 0.8]]}
    assert lines_by_label(panel) == drawn
    assert ticks(panel) == ["1 of 3 fell (33%)\n2 undefined"]


def test_pairs_stand_by_kind_in_order_of_appearance():
    kinds = ["swap", "number", "swap"]
    frame = pd.DataFrame({"a": [0.9, 0.8, pd.NA], "b": [0.1, 0.9, 0.3]}).astype("Float64")
    panel = plot_pairs(frame["a"], frame["b"], kind=kinds, label="precision (0 to 1)")
    assert ticks(panel) == ["swap\n1 of 1 fell (100%)\n1 undefined", "number\n0 of 1 fell (0%)"]
    assert panel.get_ylabel() == "precision (0 to 1)"


def test_pairs_without_any_score_say_so():
    assert ticks(plot_pairs([None], [0.2])) == ["no pair with both scores\n1 undefined"]
    for first, second in ((None, [1]), ([1], None), ([], [])):
        assert words(plot_pairs(first, second)) == ["pairs: no scores to draw"]


def test_pairs_must_be_aligned():
    with pytest.raises(InvalidInput, match="original 2, corrupted 1 rows"):
        plot_pairs([1, 2], [1])
    with pytest.raises(InvalidInput, match="other indexes"):
        plot_pairs(pd.Series([1, 2]), pd.Series([1, 2], index=[5, 6]))
    with pytest.raises(InvalidInput, match="corrupted holds 'low'"):
        plot_pairs([1], ["low"])


def test_two_thousand_pairs():
    values = np.random.default_rng(0).uniform(size=(2, 2000))
    panel = plot_pairs(values[0], values[1], ax=plt.figure().subplots())
    drawn = lines_by_label(panel)
    assert len(drawn["fell"]) == (values[1] < values[0]).sum()
    assert sum(map(len, drawn.values())) == 2000


# Abstraction ratios


@pytest.fixture
def ratios():
    frame = pd.DataFrame({"system": list("aaaab")})
    frame["AR2"] = pd.array([0.5, 30.0, 99.0, None, 0.0], dtype="Float64")
    frame["AR1"] = [0.5, 1, 1.1, 1.2, 1.3]
    frame["flags"] = ["", "", "x;reference_fully_extractive_2", "one_word_summary", ""]
    return frame


def test_risk_draws_what_has_a_ratio_and_counts_the_rest(ratios):
    panel = plot_risk(ratios)
    assert labels(panel) == ["a\nn = 2, 1 flagged, 1 undefined", "b\nn = 1"]
    points = dots(panel)
    assert sorted(points[:, 0]) == [0.0, 0.5, 30.0]
    assert np.abs(points[:, 1] - points[:, 1].round()).max() < 0.3
    assert sorted(line[0][0] for line in segments(panel)) == [0.0, 15.25]
    assert panel.get_xscale() == "symlog" and panel.get_xlim()[1] > 30


def test_the_bands_are_the_classes_of_risk(ratios):
    from seval_ex.abstractiveness import RISKS

    panel = plot_risk(ratios, measure="AR1")
    edges = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in panel.patches]
    assert np.allclose(edges, [(0, 0.8), (0.8, 1.2), (1.2, 2), (2, panel.get_xlim()[1])])
    assert panel.get_xscale() == "linear"
    assert [text.split(" (")[0] for text in figure_words(panel)] == [*RISKS, "median"]


def test_flags_are_of_the_measure_that_is_drawn(ratios):
    assert labels(plot_risk(ratios, measure="AR1")) == ["a\nn = 4", "b\nn = 1"]
    assert labels(plot_risk(ratios, by=None)) == ["n = 3, 1 flagged, 1 undefined"]
    assert labels(plot_risk(ratios.drop(columns="flags"))) == [
        "a\nn = 3, 1 undefined",
        "b\nn = 1",
    ]


def test_risk_of_nothing_and_of_rows_without_ratios(ratios):
    assert words(plot_risk(None)) == ["abstraction ratios: no rows to draw"]
    panel = plot_risk(ratios.iloc[[3]])
    assert labels(panel) == ["a\nn = 0, 1 undefined"] and not len(dots(panel))


def test_risk_refuses_what_is_no_ratio(ratios):
    with pytest.raises(InvalidInput, match="no column 'ARL'; it has: system, AR2"):
        plot_risk(ratios, measure="ARL")
    with pytest.raises(InvalidInput, match="ratios below 0"):
        plot_risk(ratios.assign(AR2=-1))


def test_risk_of_two_thousand_rows():
    frame = pd.DataFrame({"system": list("ab") * 1000, "AR2": np.linspace(0, 3, 2000)})
    _, mine = plt.subplots()
    assert plot_risk(frame, ax=mine) is mine
    assert len(dots(mine)) == 2000
    assert [text.get_text() for text in mine.get_legend().get_texts()][-1] == "median"


# Calibration


def test_calibration_shows_means_counts_and_wilson_intervals():
    support = [0.1, 0.15, 0.5, 0.9, 1.0, 1.0, None, 0.3]
    truth = [0, 1, 1, 1, 1, 0, 1, None]
    panel = plot_calibration(support, truth, bins=2, label="share true")
    assert words(panel) == ["2", "4"]
    assert np.allclose(dots(panel), [[0.125, 0.5], [0.85, 0.75]])
    low, high = segments(panel)[1][:, 1]
    assert np.allclose([low, high], [0.3006, 0.9544], atol=1e-4)  # 3 of 4
    assert "2 of 8 rows lack a number" in panel.get_xlabel()
    assert panel.get_ylabel() == "share true"


def test_calibration_of_ratings_has_bootstrap_intervals_and_no_diagonal():
    generator = np.random.default_rng(3)
    support = generator.uniform(size=2000)
    rating = 1 + 4 * support + generator.normal(size=2000) / 4
    panel = plot_calibration(support, rating, resamples=200)
    assert len(dots(panel)) == 10 and len(panel.lines) == 1
    assert sum(int(text) for text in words(panel)) == 2000
    for (_, mean), line in zip(dots(panel), segments(panel), strict=True):
        assert line[0][1] < mean < line[1][1]
        assert 0.02 < line[1][1] - line[0][1] < 0.2


def test_documents_are_drawn_whole():
    support, rating = [0.5] * 40, [1.0] * 20 + [5.0] * 20
    rows = segments(plot_calibration(support, rating))[0]
    documents = ["a"] * 20 + ["b"] * 20
    whole = segments(plot_calibration(support, rating, document=documents))[0]
    assert whole[:, 1].tolist() == [1, 5] and rows[0][1] > 1
    assert not segments(plot_calibration(support, rating, document=["a"] * 40))


def test_one_row_has_a_dot_and_no_interval():
    panel = plot_calibration([0.5], [3.5])
    assert dots(panel).tolist() == [[0.5, 3.5]] and not segments(panel) and words(panel) == ["1"]


def test_own_edges():
    panel = plot_calibration([0.0, 0.5, 1.0], [1, 2, 3], bins=[0, 0.5, 1])
    assert words(panel) == ["1", "2"]


def test_calibration_of_nothing_says_so():
    assert words(plot_calibration(None, [1])) == ["calibration: no rows to draw"]
    assert words(plot_calibration([None], [1])) == ["calibration: no row has both numbers"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"support": [3.5]}, "outside 0 to 1"),
        ({"bins": 0}, "bins=0: pass how many"),
        ({"bins": [0, 0.7, 0.6, 1]}, "rising edges from 0 to 1"),
        ({"bins": True}, "bins=True"),
        ({"confidence": 95}, "confidence=95: pass a share"),
        ({"document": ["a", "b"]}, "one length"),
    ],
)
def test_calibration_refuses_with_advice(options, message):
    with pytest.raises(InvalidInput, match=message):
        plot_calibration(**{"support": [0.5], "rating": [1], **options})


# Usage


def spent(source, status=Status.OK, **source_usage):
    usage = Usage(calls=2, prompt_tokens=100, cached_tokens=40, output_tokens=9, seconds=61.0)
    kept = {"usage": usage, "source_usage": Usage(**source_usage)}
    return Ledger(source=source, summary="A summary.", status=status, **kept)


def test_usage_counts_the_extraction_of_a_source_once():
    extraction = {"calls": 1, "prompt_tokens": 50, "seconds": 10.0}
    run = [spent("One.", **extraction), spent("One.", **extraction), spent("Two.", **extraction)]
    row = run_usage({"mine": run}, price=(1, 10)).iloc[0]
    assert (row["pairs"], row["failed"], row["calls"]) == (3, 0, 3 * 2 + 2)
    assert (row["prompt_tokens"], row["seconds"]) == (3 * 100 + 2 * 50, 3 * 61 + 20)
    assert row["cost"] == pytest.approx((400 + 27 * 10) / 1e6)


def test_usage_of_a_frame_knows_what_the_frame_keeps():
    pairs = [{"source": "It rained. It was cold.", "summary": "It rained."}, {"summary": ""}]
    frame = pd.DataFrame(pairs)
    scored = SEvalEx().evaluate_many(frame, progress=False, prefix="x_")
    row = run_usage({"lexical": scored}, prefix="x_").iloc[0]
    assert (row["pairs"], row["failed"], row["calls"]) == (2, 1, 0)
    assert row["seconds"] is pd.NA and row["cached_tokens"] is pd.NA
    with_ledgers = SEvalEx().evaluate_many(frame, progress=False, ledgers=True)
    assert run_usage({"lexical": with_ledgers})["seconds"].item() == 0


def test_usage_of_recordings():
    store = Recordings(":memory:")
    request = Request(messages=())
    for number in range(3):
        reply = Reply(text="{}", prompt_tokens=10, output_tokens=None, seconds=1.5)
        parts = key_parts({"provider": "p", "model": "m", "digest": None}, request)
        store.put(str(number), parts, reply)
    row = run_usage({"store": store}).iloc[0]
    assert (row["calls"], row["prompt_tokens"], row["output_tokens"]) == (3, 30, 0)
    assert row["seconds"] == 4.5 and row["pairs"] is pd.NA


def test_usage_is_drawn_as_stacked_tokens():
    panel = plot_usage({"a": [spent("One.")], "b": [spent("One.", status=Status.LLM_ERROR)] * 2})
    names = [bars.get_label() for bars in panel.containers]
    assert names == ["prompt tokens, read", "prompt tokens, from the cache", "generated tokens"]
    widths = [[bar.get_width() for bar in bars] for bars in panel.containers]
    assert widths == [[60, 120], [40, 80], [9, 18]]
    assert [bar.get_x() for bar in panel.containers[2]] == [100, 200]
    assert labels(panel) == [
        "a\n1 pair\n2 calls, 61 s",
        "b\n2 pairs, 2 failed\n4 calls, 2 min",
    ]


def test_usage_of_nothing_and_of_a_run_without_tokens():
    assert words(plot_usage(None)) == words(plot_usage({})) == ["usage: no run to draw"]
    assert labels(plot_usage({"none": []})) == ["none\n0 pairs\n0 calls"]


def test_what_is_no_run_is_refused():
    with pytest.raises(InvalidInput, match="the run 'x' is a int: pass a list of ledgers"):
        plot_usage({"x": 3})
    with pytest.raises(InvalidInput, match="no column 'calls'"):
        run_usage({"x": pd.DataFrame({"a": [1]})})


# The look


def test_theme_puts_the_settings_back_after_an_error():
    before = dict(matplotlib.rcParams)
    with pytest.raises(ZeroDivisionError), theme():
        assert matplotlib.rcParams["axes.titlesize"] == 10.5
        _ = 1 / 0
    assert dict(matplotlib.rcParams) == before


def test_theme_leaves_what_a_backend_sets():
    with theme():
        matplotlib.rcParams["interactive"] = True
    assert matplotlib.rcParams["interactive"]
    matplotlib.rcParams["interactive"] = False


def test_without_seaborn_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['seaborn'] = None\n"
        "from seval_ex.report import plot_agreement\n"
        "try: plot_agreement(None)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "SEvalError plots need seaborn: pip install 'seval_ex[plots]'"


def test_import_is_light():
    code = (
        "import sys, seval_ex.report; print({'pandas', 'matplotlib', 'seaborn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_examples_in_docstrings():
    assert doctest.testmod(seval_ex.report).failed == 0


def test_dollars_in_names_are_no_formula():
    odd = "$m_{<b>$"
    frame = pd.DataFrame(
        {"id": list("aaabbb"), odd: [1, 2, 3, 1, 2, 4], "$r^{$": [1, 2, 3, 3, 2, 1]}
    )
    found = agreement(frame, odd, "$r^{$", resamples=20).assign(group=odd)
    ledger = SEvalEx().evaluate("It rained in Oslo.", "It rained.")
    for panel in (
        plot_agreement(found, group="group"),
        plot_agreement(found, group="group", ax=plt.figure().add_subplot()),
        plot_pairs([1, 0.5], [0.5, 0.2], kind=[odd, odd], names=(odd, "$b_{$")),
        plot_risk(pd.DataFrame({"system": [odd], "AR2": [1.0]})),
        plot_usage({odd: [ledger]}),
    ):
        panel.figure.canvas.draw()
        texts = [text.get_text() for text in panel.figure.findobj(matplotlib.text.Text)]
        assert any(odd in text for text in texts)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_agreement(5), "the agreement is a int"),
        (lambda: plot_usage(pd.DataFrame({"run": ["a"]})), "runs is a DataFrame"),
        (lambda: run_usage(None), "runs is a NoneType"),
        (lambda: plot_calibration([0.1], [1], bins="x"), "bins='x'"),
        (lambda: plot_risk(pd.DataFrame({"system": ["a"], "AR2": [np.inf]})), "without end"),
    ],
)
def test_what_cannot_be_drawn_is_named(draw, message):
    with pytest.raises(InvalidInput, match=message):
        draw()
