"""Text for people: characters that control a terminal become escape sequences of JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.limits import CHARACTERS_OF_LINE
from dra_extender.plaintext import printable, wrapped
from tests.support.marked import MARK, is_harmless

TEXTS = st.text(st.characters())
"""Lone surrogates, too."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpu-0 on n1", "gpu-0 on n1"),
        ("Größe 40 µm, 日本", "Größe 40 µm, 日本"),
        ("\x1b[2J", r"\u001b[2J"),
        ("\x9b2J", r"\u009b2J"),
        ("a\r\n\tb", r"a\r\n\tb"),
        ("\u202egpu\u2066", r"\u202egpu\u2066"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("\u200b\ufeff\xad", r"\u200b\ufeff\u00ad"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\udb40\udc41"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(TEXTS)
def test_a_text_becomes_printable_once(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


@given(st.dictionaries(TEXTS, TEXTS))
def test_a_json_document_keeps_its_content(content: dict[str, str]) -> None:
    assert json.loads(printable(json.dumps(content, ensure_ascii=False))) == content


def test_a_line_is_cut() -> None:
    assert printable("x" * 9, 8) == "xxxxxxx…"
    assert printable("x" * 8, 8) == "x" * 8
    assert len(wrapped(["x" * (CHARACTERS_OF_LINE + 1)], 80)) == CHARACTERS_OF_LINE


@given(st.lists(TEXTS), st.integers(0, 100))
def test_a_value_makes_no_line_of_its_own(values: list[str], width: int) -> None:
    text = wrapped([f"value: {value}{MARK}" for value in values], width)
    assert is_harmless(text)
