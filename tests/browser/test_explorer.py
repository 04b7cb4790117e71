"""The explorer and the evidence view in JupyterLab, clicked through."""

import csv
import json
import re

import nbformat
import pytest
from playwright.sync_api import Page, expect
from test_view import CONTRAST, PICK

from seval_ex import SEvalEx
from seval_ex.datasets import load_sample
from seval_ex.explore import explore

PAIRS = 104


@pytest.fixture(scope="module")
def expected():
    """Make the same explorer here, to know what must be seen there."""
    sample = load_sample().query("language == 'en'")
    return explore(SEvalEx().evaluate_many(sample, progress=False, ledgers=True), live=False)


@pytest.fixture
def explorer(notebook: Page):
    """Scroll to the explorer, and leave it as it was found."""
    found = notebook.locator(".sxx:has(.sxx-panes)").first
    found.scroll_into_view_if_needed()
    yield found
    for name in ("untick", "reset"):
        found.get_by_role("button", name=name).click()
    said(found, f"1 of {PAIRS}")


def said(explorer, text: str | re.Pattern):
    expect(explorer.locator("output")).to_have_text(text)


def chosen(explorer):
    return explorer.locator("tbody tr[aria-selected=true]")


def shows_the_chosen_pair(explorer):
    name = chosen(explorer).locator("td").nth(1).text_content()
    expect(explorer.locator(".sx-id b")).to_have_text(name)


def test_views_in_a_notebook_are_apart(notebook, shots):
    views = notebook.locator(".jp-OutputArea .sx")
    anchors = notebook.locator(".jp-OutputArea .sx [id]").evaluate_all("all => all.map(e => e.id)")
    assert len(set(anchors)) == len(anchors) > 20
    views.nth(0).locator(PICK).nth(1).click()
    expect(views.nth(0).locator(".sx-pick").nth(1)).to_be_checked()
    expect(views.nth(1).locator(".sx-pick:checked")).to_have_count(0)
    notebook.keyboard.press("ArrowUp")
    expect(views.nth(0).locator(".sx-pick").nth(0)).to_be_checked()
    views.nth(0).screenshot(path=shots / "lab-view.png")


def test_filtering_and_sorting(explorer, expected, shots):
    said(explorer, f"1 of {PAIRS}")
    explorer.get_by_label("System").select_option("wrong_fact")
    said(explorer, f"1 of 26 ({PAIRS} in all)")
    explorer.get_by_label("Verdict").select_option("any FP")
    expected.reset().filter(system="wrong_fact", verdict="any FP")
    said(explorer, f"1 of {len(expected.rows)} ({PAIRS} in all)")
    heading = explorer.locator("th[aria-sort]")
    for direction in ("ascending", "descending"):
        explorer.get_by_role("button", name="disagreement").click()
        expect(heading).to_have_attribute("aria-sort", direction)
        expected.sort("disagreement", descending=direction == "descending")
        names = expected.table["pair"].iloc[expected.rows].tolist()
        expect(explorer.locator("tbody tr td:nth-child(2)")).to_have_text(names)
    shows_the_chosen_pair(explorer)
    explorer.screenshot(path=shots / "explorer.png")
    explorer.get_by_label("Search").fill("no such words")
    said(explorer, f"no pair ({PAIRS} in all)")
    expect(explorer.locator(".sx")).to_have_count(0)


def test_limits(explorer, expected):
    expected.reset()
    for label, name, value in (("from", "low", 0.7), ("Disagreement of", "apart", 0.2)):
        field = explorer.get_by_label(label, exact=True)
        field.fill(str(value))
        field.press("Enter")
        expected.filter(**{name: value})
        said(explorer, f"1 of {len(expected.rows)} ({PAIRS} in all)")
    scores = explorer.locator("tbody tr td:nth-last-child(3)").all_text_contents()
    assert scores and all(float(score) >= 0.7 for score in scores)


def test_keys_lead_from_pair_to_pair(explorer, notebook):
    cells = notebook.locator(".jp-Cell").count()
    explorer.get_by_role("grid").focus()
    for key, place in (("j", 2), ("ArrowDown", 3), ("k", 2), ("End", PAIRS), ("Home", 1)):
        notebook.keyboard.press(key)
        said(explorer, f"{place} of {PAIRS}")
    shows_the_chosen_pair(explorer)
    notebook.keyboard.press("PageDown")
    said(explorer, f"11 of {PAIRS}")
    expect(chosen(explorer)).to_be_in_viewport()
    notebook.keyboard.press("x")
    said(explorer, f"11 of {PAIRS}, 1 ticked")
    assert notebook.locator(".jp-Cell").count() == cells
    explorer.get_by_role("button", name="next").click()
    said(explorer, f"12 of {PAIRS}, 1 ticked")


def test_a_statement_is_picked_inside_the_explorer(explorer, notebook):
    view = explorer.locator(".sx")
    view.locator(PICK).nth(0).click()
    expect(view.locator(".sx-pick").nth(0)).to_be_checked()
    notebook.keyboard.press("ArrowDown")
    expect(view.locator(".sx-pick").nth(1)).to_be_checked()
    said(explorer, f"1 of {PAIRS}")
    notebook.keyboard.press("j")
    said(explorer, f"2 of {PAIRS}")


def test_an_explorer_shown_twice_is_one(explorer, notebook):
    other = notebook.locator(".sxx:has(.sxx-panes)").nth(1)
    explorer.get_by_role("button", name="next").click()
    said(other, f"2 of {PAIRS}")
    explorer.locator(PICK).first.click()
    expect(explorer.locator(".sx-pick").first).to_be_checked()
    expect(other.locator(".sx-pick:checked")).to_have_count(0)


def test_a_selection_is_taken_along(explorer, notebook):
    for number in (1, 3):
        explorer.locator("tbody input").nth(number).click()
    said(explorer, re.compile("2 ticked"))
    with notebook.expect_download() as saved:
        explorer.get_by_role("button", name="CSV").click()
    with saved.value.path().open(encoding="utf-8", newline="") as file:
        assert [row["system"] for row in csv.DictReader(file)] == ["abstractive", "invented_detail"]
    with notebook.expect_download() as saved:
        explorer.get_by_role("button", name="JSON").click()
    rows = json.loads(saved.value.path().read_text("utf-8"))
    assert [row["ledger"]["id"] for row in rows] == ["news-01", "news-01"]
    last = notebook.locator(".jp-CodeCell").last
    last.locator(".cm-content").click()
    notebook.keyboard.press("Control+Enter")
    expect(last.locator(".jp-OutputArea-output")).to_have_text(
        re.compile(r"selected \['news-01 abstractive', 'news-01 invented_detail'\]")
    )


def test_dark_and_narrow_in_jupyterlab(explorer, notebook, shots):
    theme = "void window.jupyterapp.commands.execute('apputils:change-theme', {theme: '%s'})"
    notebook.evaluate(theme % "JupyterLab Dark")
    expect(notebook.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    try:
        expect(explorer).to_have_css("background-color", "rgb(26, 29, 33)")
        for root in (explorer, notebook.locator(".jp-OutputArea .sx").first):
            assert min(root.evaluate(CONTRAST))[0] >= 4.5
        explorer.screenshot(path=shots / "explorer-dark.png")
    finally:
        notebook.evaluate(theme % "JupyterLab Light")
    expect(explorer).to_have_css("background-color", "rgb(255, 255, 255)")
    assert min(explorer.evaluate(CONTRAST))[0] >= 4.5
    notebook.set_viewport_size({"width": 700, "height": 900})
    expect(explorer.get_by_role("grid")).to_be_visible()
    assert explorer.evaluate("node => node.scrollWidth <= node.clientWidth")
    notebook.screenshot(path=shots / "explorer-narrow.png")
    notebook.set_viewport_size({"width": 1500, "height": 1000})


def test_the_static_form_needs_no_kernel(root, tab, tmp_path, shots):
    cells = nbformat.read(root / "nbs" / "33_explore.ipynb", as_version=4).cells
    outputs = [each for cell in cells for each in cell.get("outputs", []) if "data" in each]
    html = next(each.data["text/html"] for each in outputs if "sxx" in str(each.data))
    page = tmp_path / "static.html"
    page.write_text(f'<!DOCTYPE html><meta charset="utf-8">{html}', encoding="utf-8")
    tab.goto(page.as_uri())
    first = tab.locator(".sxx > details").first
    expect(first.locator(".sx")).to_be_hidden()
    first.locator("> summary").click()
    expect(first.locator(".sx-card").first).to_be_visible()
    assert min(tab.locator(".sxx").evaluate(CONTRAST))[0] >= 4.5
    tab.screenshot(path=shots / "static.png", full_page=True)
