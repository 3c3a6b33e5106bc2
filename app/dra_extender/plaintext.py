"""Text for people: what objects of the cluster contain is data, and must not control a terminal, a log or a browser.

Promises: `printable` and `wrapped` return only characters that Python counts as printable. All others become escape
sequences of JSON: control characters, bidirectional controls, zero-width and other format characters, line and
paragraph separators, lone surrogates. A JSON document whose lines went through `printable` has the same content.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final

from dra_extender.limits import CHARACTERS_OF_LINE

_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str, most: int = 0) -> str:
    """The text with escape sequences. `most`: the number of characters of the text that are kept; 0 means all."""
    if 0 < most < len(text):
        text = text[: most - 1] + "…"
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return _SHORT.get(character) or "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs)


def wrapped(lines: Iterable[str], width: int) -> str:
    """The lines, each printable. One that is longer than `width` (0: no limit) is wrapped, and its continuation
    indented by two. Lines indented by eight or more (YAML, CEL) are not wrapped. A line is cut after
    `CHARACTERS_OF_LINE`.
    """
    found: list[str] = []
    for line in (printable(line, CHARACTERS_OF_LINE) for line in lines):
        if not 0 < width < len(line) or line.startswith("        "):
            found.append(line)
            continue
        hanging = " " * (len(line) - len(line.lstrip(" ")) + 2)
        found += textwrap.wrap(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return "\n".join(found)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Such as "1 node", "3 nodes", "0 nodes"; `plural` where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
