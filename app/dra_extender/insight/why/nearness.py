"""Words that one may be meant to be another: what `did you mean …?` asks.

Promises: as `difflib.get_close_matches`, with the work counted: a comparison costs as much as the words are long. Words
longer than `LONGEST` are nobody's slip of the pen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from heapq import nlargest
from typing import Final

from dra_extender.scheduling.slices import QueryBudget, Slices

LONGEST: Final = 128
ALIKE: Final = 0.6
"""The part of two words that has to be the same."""
LETTERS: Final = 4
"""Letters that are counted in a unit of work, and"""
PAIRS: Final = 5
"""pairs of letters that are compared in one."""


def near(word: str, known: Iterable[str], budget: QueryBudget, most: int = 3) -> Slices[list[str]]:
    """The known words that resemble the word most, the nearest first; nothing when there is no more time."""
    if not word or len(word) > LONGEST:
        return []
    compared: SequenceMatcher[str] = SequenceMatcher()
    compared.set_seq2(word)
    found: list[tuple[float, str]] = []
    for other in known:
        if budget.must_yield(1):
            yield
        if not _lengths_are_alike(word, other):
            continue
        if budget.spent():
            break
        if budget.must_yield(1 + (len(word) + len(other)) // LETTERS):
            yield
        compared.set_seq1(other)
        if compared.quick_ratio() < ALIKE:
            continue
        if budget.must_yield(1 + len(word) * len(other) // PAIRS):
            yield
        ratio = compared.ratio()
        if ratio >= ALIKE:
            found.append((ratio, other))
    return [other for _, other in nlargest(most, found)]


def nearest_first(
    word: str, known: Sequence[str], budget: QueryBudget, most: int
) -> Slices[tuple[list[str], list[str]]]:
    """(those that resemble the word, all of them with these first)"""
    close = yield from near(word, known, budget, most)
    return close, [*close, *(name for name in known if name not in close)]


def _lengths_are_alike(word: str, other: str) -> bool:
    """True when words of these lengths can have as much in common as it takes (real_quick_ratio)."""
    return 0 < len(other) <= LONGEST and 2 * min(len(word), len(other)) >= ALIKE * (len(word) + len(other))
