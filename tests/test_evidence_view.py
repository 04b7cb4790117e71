"""The evidence view where styles are stripped, and the explorer of a large run."""

import re
import time
from html.parser import HTMLParser

import pandas as pd
import pytest

from seval_ex import Evidence, Ledger, SEvalEx, Statement, Verdict
from seval_ex.datasets import load_sample
from seval_ex.explore import Query, explore, page_of, receive
from seval_ex.ledger import STYLE, InvalidInput, html_page, to_html
from seval_ex.pipeline import VARIANTS, evaluate_many

# What GitHub keeps of a notebook's HTML, as far as the view uses any of it.
KEPT = {"div", "h4", "p", "b", "i", "ul", "ol", "li", "br", "a", "sup", "mark", "span"}
KEPT |= {"details", "summary"}
TEXTLESS = {"style", "script"}


class Sanitised(HTMLParser):
    """Read HTML as a host that strips styles, controls and all attributes but links."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.tags: list[str] = []
        self.inside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        if tag in TEXTLESS:
            self.inside.append(tag)
        elif tag in KEPT:
            self.tags.append(tag)
        if tag in ("li", "p", "h4", "div", "br", "summary"):
            self.words.append("\n")

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data):
        if not self.inside:
            self.words.append(data)

    @property
    def lines(self) -> list[str]:
        text = "".join(self.words).replace("\u202f", " ")
        return [" ".join(line.split()) for line in text.split("\n") if line.strip()]


@pytest.fixture(scope="module")
def every_kind():
    """A supported, an unsupported, an unjudged and a repeated statement."""
    source, summary = "It rained. Nobody came.", "It rained. It snowed. Who knows. It rained."
    places = [(0, 10), (11, 21), (22, 32), (33, 43)]
    statements = [
        Statement(
            id=f"S{number}",
            side="summary",
            text=summary[start:end],
            start=start,
            end=end,
            duplicate_of="S1" if number == 4 else None,
        )
        for number, (start, end) in enumerate(places, start=1)
    ]
    rain = {"label": "TP", "support": 1, "evidence": [Evidence(start=0, end=10)]}
    verdicts = [
        Verdict(statement="S1", **rain),
        Verdict(statement="S2", label="FP", support=0.5, explanation="No snow in the source."),
        Verdict(statement="S4", **rain),
    ]
    return Ledger(source=source, summary=summary, statements=statements, verdicts=verdicts)


def test_labels_remain_where_styles_are_stripped(every_kind):
    lines = Sanitised(to_html(every_kind)).lines
    assert "0.333 – 0.667 precision lies between" in lines
    assert "It rained. S1✓ It snowed. S2✗ Who knows. S3? It rained. S4✓" in lines
    assert "It rained. S1✓ S4✓ Nobody came." in lines
    assert "✓ TP S1 support ▰▰▰▰▰ 1.00" in lines and "✗ FP S2 support ▰▰▱▱▱ 0.50" in lines
    assert "? unjudged S3" in lines and "✓ TP S4 = repeats S1 support ▰▰▰▰▰ 1.00" in lines
    assert "Evidence: “It rained.” →" in lines and "No snow in the source." in lines
    assert "? unjudged no valid verdict" in lines and "= repeats another; counts once" in lines


def test_passages_and_statements_keep_their_form_where_styles_are_stripped(every_kind):
    tags = Sanitised(to_html(every_kind)).tags
    assert tags.count("mark") >= 4 + 1 and tags.count("h4") == 3 and tags.count("ol") == 1


def test_a_duplicate_and_an_unjudged_statement_look_different(every_kind):
    html = to_html(every_kind)
    cards = re.findall(r'<li id="[^"]*" class="sx-card ([^"]*) ', html)
    assert len(set(cards)) == 4 and "sx-TP sx-repeats" in cards
    for css in ("sx-repeats", "sx-unjudged"):
        assert re.search(rf"\.{css}[^{{]*{{[^}}]*dashed", STYLE)


def test_no_blank_line_ends_the_html_where_it_is_read_as_markdown(every_kind):
    source = "It rained.\n\n\nNobody came."
    changes = {"source": source, "status": "error", "reason": "a\n\nb", "verdicts": ()}
    for ledger in (every_kind, Ledger.model_validate({**dict(every_kind), **changes})):
        assert not re.search(r"\n\s*\n", to_html(ledger))
        assert Sanitised(to_html(ledger)).words


def test_blank_texts_are_called_empty():
    for source, summary in (("It rained.", " \n"), ("\t", "It rained."), ("", "")):
        lines = Sanitised(to_html(SEvalEx().evaluate(source, summary))).lines
        assert lines.count("empty") == (not source.strip()) + (not summary.strip())


def test_nothing_is_loaded_from_elsewhere(every_kind):
    page = html_page([every_kind, every_kind])
    assert not re.search(r"(?:src=|@import|url\(|https?:)", page)
    assert page.count(STYLE) == 1 and "<script" not in page


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pair_stays_small(variant):
    """A view takes a fixed style and a few times its own texts."""
    for row in load_sample().head(12).to_dict("records"):
        ledger = SEvalEx(variant).evaluate(row["source"], row["summary"])
        texts = len(ledger.source) + len(ledger.summary)
        cards = sum(len(each.text) for each in ledger.statements) + 1000 * len(ledger.statements)
        assert len(to_html(ledger, style=False)) < 3000 + 2 * texts + 2 * cards
    assert len(STYLE) < 9000


def test_thousands_of_pairs_stay_responsive():
    """Each click costs a page of rows and one view, however long the run is."""
    sample = load_sample()
    ledgers = list(SEvalEx().evaluate_pairs(sample.to_dict("records"), progress=False))
    times = 5000 // len(sample) + 1
    frame = sample.loc[sample.index.repeat(times)]
    explorer = explore(frame, ledgers=[each for each in ledgers for _ in range(times)], live=False)
    assert len(explorer.rows) >= 5000
    clicks = (
        {"do": "sort", "by": "disagreement"},
        {"do": "filter", "name": "verdict", "value": "any FP"},
        {"do": "filter", "name": "text", "value": "the"},
        {"do": "step", "by": 1},
    )
    start = time.perf_counter()
    for click in clicks:
        receive(explorer, click)
        assert len(page_of(explorer)["rows"]) == 50 and to_html(explorer.chosen)
    assert time.perf_counter() - start < len(clicks)
    assert explorer.query == Query(verdict="any FP", text="the", sort="disagreement")


def test_the_explorer_takes_half_characters_and_refuses_doubled_columns(tmp_path):
    frame = pd.DataFrame(
        {"id": ["\ud800"], "system": ["\udfff"], "source": ["Rain."], "summary": ["\ud800 Rain."]},
        dtype=object,
    )
    run = evaluate_many(SEvalEx(), frame, ledgers=True, progress=False)
    explorer = explore(run, live=False)
    assert explorer.table[["pair", "system"]].values.tolist() == [["\ufffd", "\ufffd"]]
    assert explorer.to_html().encode() and explorer.to_csv().encode()
    explorer.to_json(tmp_path / "chosen.json")
    doubled = pd.concat([run, run[["system"]]], axis=1)
    with pytest.raises(InvalidInput, match="more than one column 'system'"):
        explore(doubled)


def test_the_explorer_names_what_it_cannot_read_or_write(tmp_path):
    with pytest.raises(InvalidInput, match="no ledgers can be read"):
        explore(tmp_path / "none.jsonl")
    explorer = explore([SEvalEx().evaluate("Rain.", "Rain.")], live=False)
    with pytest.raises(InvalidInput, match="cannot write"):
        explorer.to_csv("/proc/chosen.csv")
    with pytest.raises(InvalidInput, match="text=None: pass a text"):
        explorer.filter(text=None)
