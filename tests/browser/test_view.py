"""The evidence view as a reader meets it: a file, light and dark, wide and narrow, on paper."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from seval_ex import SEvalEx
from seval_ex.datasets import load_sample
from seval_ex.ledger import html_page
from seval_ex.pipeline import VARIANTS

CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")
PICK = ".sx-card .sx-said"


def pair(system="wrong_fact"):
    return load_sample().query(f"id == 'news-01' and system == '{system}'").iloc[0]


def ledger(variant="stsum_text"):
    row = pair()
    return SEvalEx(variant).evaluate(row["source"], row["summary"], f"news-01, {variant}")


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Write a page as a user of the command does."""
    folder, row = tmp_path_factory.mktemp("scored"), pair()
    for name in ("source", "summary"):
        (folder / f"{name}.txt").write_text(row[name], encoding="utf-8")
    texts = [f"--{name}={folder / name}.txt" for name in ("source", "summary")]
    command = [sys.executable, "-c", "from seval_ex.cli import main; main()", "score", *texts]
    subprocess.run(
        [*command, f"--html={folder / 'evidence.html'}"], check=True, capture_output=True
    )
    return (folder / "evidence.html").as_uri()


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Write a page of several views, two of them of equal ledgers."""
    path = tmp_path_factory.mktemp("several") / "evidence.html"
    ledgers = [ledger(), ledger(), *map(ledger, VARIANTS[:2])]
    path.write_text(html_page(ledgers), encoding="utf-8")
    return path.as_uri()


def ground(page: Page, selector: str, number: int = 0) -> str:
    place = page.locator(selector).nth(number)
    return place.evaluate("node => getComputedStyle(node).backgroundColor")


def least_contrast(page: Page, selector: str = ".sx") -> list:
    found = [each for node in page.locator(selector).all() for each in node.evaluate(CONTRAST)]
    assert len(found) > 20
    return min(found)


def test_the_file_says_what_it_is_and_forbids_scripts(tab, scored):
    tab.goto(scored)
    assert tab.title() == "Evidence" and tab.locator("html").get_attribute("lang") == "en"
    assert "width=device-width" in tab.locator("meta[name=viewport]").get_attribute("content")
    assert tab.locator("script").count() == 0
    policy = tab.locator("meta[http-equiv]").get_attribute("content")
    assert "default-src 'none'" in policy and "script" not in policy


def test_a_click_shows_a_statement_with_its_evidence(tab, scored, shots):
    tab.goto(scored)
    marks = ".sx-source mark"
    before = ground(tab, marks)
    tab.locator(PICK).first.click()
    expect(tab.locator(".sx-pick").first).to_be_checked()
    assert ground(tab, marks) != before != "rgba(0, 0, 0, 0)"
    assert ground(tab, marks, 1) == "rgba(0, 0, 0, 0)"
    assert ground(tab, ".sx-text mark") == ground(tab, marks)
    tab.screenshot(path=shots / "picked.png", full_page=True)
    tab.locator(marks).nth(1).click()
    expect(tab.locator(".sx-pick").nth(1)).to_be_checked()
    tab.get_by_text("show all").click()
    assert ground(tab, marks) == before


def test_the_arrow_keys_move_from_statement_to_statement(tab, scored, shots):
    tab.goto(scored)
    tab.keyboard.press("Tab")
    tab.keyboard.press("ArrowDown")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert tab.evaluate(focused) == "S1 TP"
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate(focused) == "S2 FP"
    expect(tab.locator(".sx-pick").nth(1)).to_be_checked()
    card = tab.locator(".sx-card").nth(1)
    assert card.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    tab.screenshot(path=shots / "focus.png", full_page=True)


def test_the_arrow_of_a_quotation_leads_to_its_place(tab, scored):
    tab.set_viewport_size({"width": 400, "height": 600})
    tab.goto(scored)
    tab.locator(".sx-card a").nth(1).click()
    expect(tab.locator(".sx-source mark").nth(1)).to_be_in_viewport()


def test_equal_views_on_one_page_do_not_disturb_one_another(tab, several):
    tab.goto(several)
    views = tab.locator(".sx")
    for number in (0, 1):
        views.nth(number).locator(PICK).nth(number).click()
    for number in (0, 1):
        picked = views.nth(number).locator(".sx-pick:checked")
        assert picked.evaluate("node => node.getAttribute('aria-label')")[:2] == f"S{number + 1}"
        expect(picked).to_have_count(1)


def test_a_long_source_is_folded_and_opens(tab, tmp_path, shots):
    sample = load_sample().query("language == 'en'").drop_duplicates("id").head(5)
    source, summary = "\n\n".join(sample["source"]), sample["summary"].iloc[0]
    path = tmp_path / "long.html"
    path.write_text(html_page([SEvalEx("base").evaluate(source, summary)]), encoding="utf-8")
    tab.goto(path.as_uri())
    fold = tab.locator(".sx-fold").last
    inside = fold.locator("mark").last
    expect(inside).to_be_hidden()
    assert fold.locator("summary").text_content().endswith("sentences without evidence …")
    tab.screenshot(path=shots / "long.png", full_page=True)
    tab.locator(".sx-sources > summary").click()
    tab.locator(PICK).last.click()
    expect(inside).to_be_visible()
    tab.get_by_text("show all").click()
    expect(inside).to_be_hidden()
    fold.locator("summary").click()
    expect(inside).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(tab, several, scheme, shots):
    tab.emulate_media(color_scheme=scheme)
    tab.goto(several)
    tab.locator(".sx details").evaluate_all("all => all.forEach(each => (each.open = true))")
    assert least_contrast(tab)[0] >= 4.5
    tab.screenshot(path=shots / f"{scheme}.png", full_page=True)
    for view in tab.locator(".sx").all():
        for card in range(view.locator(PICK).count()):
            view.locator(PICK).nth(card).click()
            assert min(view.evaluate(CONTRAST))[0] >= 4.5


def test_narrow_views_are_stacked_and_fit(tab, several, shots):
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.goto(several)
    boxes = [part.bounding_box() for part in tab.locator(".sx-columns").first.locator("> *").all()]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.screenshot(path=shots / "narrow.png", full_page=True)
    tab.set_viewport_size({"width": 1280, "height": 800})
    boxes = [part.bounding_box() for part in tab.locator(".sx-columns").first.locator("> *").all()]
    assert boxes[1]["x"] >= boxes[0]["x"] + boxes[0]["width"]


def test_paper_gets_everything_but_the_controls(tab, scored, shots):
    tab.goto(scored)
    tab.emulate_media(media="print", color_scheme="dark")
    expect(tab.get_by_text("show all")).to_be_hidden()
    assert ground(tab, ".sx") == "rgb(255, 255, 255)"
    tab.screenshot(path=shots / "print.png", full_page=True)
    tab.pdf(path=shots / "print.pdf", print_background=True)
