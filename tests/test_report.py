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
from seval_ex.correlation import agreement
from seval_ex.ledger import InvalidInput
from seval_ex.report import plot_agreement, theme


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
        (lambda f: pd.concat([f, f.assign(level="system")]), "the levels summary, system"),
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
        "metric": [f"m{n}" for n in range(2000)],
        "rating": "r",
        "value": np.linspace(0, 1, 2000),
    }
    panel = plot_agreement(pd.DataFrame(rows), ax=plt.figure().subplots())
    assert len(dots(panel)) == 2000


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
