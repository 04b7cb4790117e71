"""Sentences, chunks and tokens on texts that nobody chose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seval_ex.text import chunks, normalised, sentences, token_spans, tokens

texts = st.text(max_size=300) | st.lists(
    st.sampled_from(
        [
            "Dr.",
            "Lee",
            "e.g.",
            ".",
            "。",
            "?",
            "!",
            '"',
            "“",
            "”",
            " ",
            "\n",
            "\n\n",
            "U.S.",
            "5",
            "a",
        ]
    ),
    max_size=60,
).map("".join)
languages = st.sampled_from(["en", "zh", "fr", "de", "ja", "hi", "xx"])


@given(texts, languages)
def test_spans_and_gaps_rebuild_the_text(text, language):
    position, rebuilt = 0, ""
    for sentence in sentences(text, language):
        assert sentence.start >= position and sentence.end > sentence.start
        assert sentence.text == text[sentence.start : sentence.end]
        assert sentence.text.strip()
        gap = text[position : sentence.start]
        assert not gap.strip()
        rebuilt += gap + sentence.text
        position = sentence.end
    assert rebuilt + text[position:] == text
    assert not text[position:].strip()


@given(texts, languages, st.integers(1, 5))
def test_chunks_join_to_the_text(text, language, size):
    pieces = chunks(text, size, language)
    assert "".join(piece.text for piece in pieces) == (text if text.strip() else "")
    assert all(piece.text.strip() for piece in pieces)


@given(texts)
def test_token_spans_are_the_tokens(text):
    spans = token_spans(text)
    assert [span.text for span in spans] == tokens(text)
    assert all(0 <= span.start < span.end <= len(text) for span in spans)


@given(texts)
def test_normalised_is_stable(text):
    assert normalised(normalised(text)) == normalised(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He died.", ["He died."]),
        ("? I see. Go.", ["? I see.", "Go."]),
        ("“First.” Next.", ["“First.”", "Next."]),
        ("met Dr. Lee at 5 p.m. in Bern", ["met Dr. Lee at 5 p.m. in Bern"]),
        ("一句。二句！三句？", ["一句。", "二句！", "三句？"]),
        ("no full stop", ["no full stop"]),
        (" \n ", []),
    ],
)
def test_known_splits(text, expected):
    assert [sentence.text for sentence in sentences(text)] == expected


def test_one_very_long_line():
    text = "word " * 200_000
    assert len(sentences(text)) == 1 and len(tokens(text)) == 200_000
