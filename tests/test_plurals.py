"""Numbers read as people say them."""

from __future__ import annotations

import pytest

from dra_extender.plaintext import counted


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (0, "node", "", "0 nodes"),
        (1, "node", "", "1 node"),
        (2, "node", "", "2 nodes"),
        (1, "device class", "device classes", "1 device class"),
        (3, "device class", "device classes", "3 device classes"),
    ],
)
def test_one_is_singular_and_everything_else_plural(number: int, noun: str, plural: str, text: str) -> None:
    assert counted(number, noun, plural) == text
