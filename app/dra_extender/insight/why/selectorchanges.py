"""Changes of selectors: correct a misspelt word, use another value, or remove a clause."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, Final

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import Semver
from dra_extender.cel.device import DeviceView
from dra_extender.cel.trial import Respelled, brief, clauses, respelled, shown_value
from dra_extender.insight.why.candidates import CandidateChange, ChangeList, ChangeLists, EditableRequest, Order, near
from dra_extender.scheduling.turns import LazySequence, QueryBudget, Turns

VALUES: Final = 8
CANDIDATES: Final = 24
"""At most this number of candidates per clause correct a misspelt word, and as many use another value."""
CLAUSES: Final = 8
"""Clauses of one request that are changed at most."""
WORDS: Final = 16
"""Words of one clause that are replaced."""
OPTIONS: Final = 512
"""Spellings of one clause that are generated."""
KNOWN: Final = 256
"""Known words, and known values per name."""
LONGEST: Final = 64
"""Letters of a known word or value."""
LETTERS: Final = 8
"""Letters of a selector that are read in a unit of work."""
CHANGE: Final = 20
"""Units of work per change."""


class Vocabulary:
    """The words that selectors can use for these devices: drivers, domains and names. The values, by name."""

    def __init__(self) -> None:
        self.words: dict[str, None] = {}
        self.values: dict[str, dict[str, None]] = {}
        self.attributes: dict[str, None] = {}
        self.differing: set[str] = set()
        """Attributes in which devices of one node differ, if no other node has these models."""
        self.capacities: dict[str, None] = {}
        """Without the domain of the driver, as claims name them."""

    def add(self, view: DeviceView) -> None:
        """Add the words of one device."""
        self.words[view.driver] = None
        self.values.setdefault("driver", {})[view.driver] = None
        self.attributes.update(dict.fromkeys(view.attributes))
        self.capacities.update(dict.fromkeys(name.removeprefix(f"{view.driver}/") for name in view.capacity))
        for entries in (view.attributes, view.capacity):
            for name, value in entries.items():
                domain, _, identifier = name.partition("/")
                if len(self.words) < KNOWN and len(name) <= LONGEST:
                    self.words[domain] = self.words[identifier] = None
                known = self.values.setdefault(name, {})
                if len(known) < KNOWN and len(shown := shown_value(value)) <= LONGEST:
                    known[shown] = None

    def near(self, word: str, budget: QueryBudget) -> Turns[list[str]]:
        """The known words that are similar to the word; empty if the word is known."""
        return [] if word in self.words else (yield from near(word, self.words, budget))

    def of(self, reads: str) -> list[str]:
        """The values of the name that a clause reads; of all names if it is unknown what the clause reads."""
        if reads:
            return list(self.values.get(reads, {}))
        return list(islice(dict.fromkeys(value for values in self.values.values() for value in values), KNOWN))


def of_selectors(
    request: EditableRequest, found: Sequence[RequestTally], vocabulary: Vocabulary, budget: QueryBudget
) -> ChangeLists:
    """All changes of one request's selectors. They change only clauses that a device does not satisfy, or that fail."""
    failing: dict[tuple[int, int], str] = {}
    for tally in found:
        yield from budget.charge(1 + len(tally.clauses))
        for clause in tally.clauses:
            if clause.source == "request":
                failing.setdefault((clause.index, clause.number), clause.reads)
        for error in tally.errors:
            if error.source == "request":
                yield from budget.charge(1 + len(error.expression) // LETTERS)
                for number in range(len(clauses(error.expression))):
                    failing.setdefault((error.index, number), "")
    if len(failing) > CLAUSES:
        budget.complete = False
    for (index, number), reads in islice(failing.items(), CLAUSES):
        expression = _expression(request, index)
        yield from budget.charge(2 * (1 + len(expression) // LETTERS))
        parts = clauses(expression)
        misspelt, other = yield from _spellings(request, index, number, parts, reads, vocabulary, budget)
        yield ChangeList(Order.MISTAKE, misspelt)
        yield ChangeList(Order.SELECTOR, other)
        every = [_candidate(request, index, "", f"{request.label}: remove the selector", "without the selector")]
        removed = [_removed(request, index, number, parts), *every * (len(parts) > 1)]
        yield ChangeList(Order.NO_SELECTOR, removed)
        yield from budget.charge(CHANGE + len(expression) // LETTERS)


def _expression(request: EditableRequest, index: int) -> str:
    cel = request.source.selectors[index].cel
    return cel.expression if cel is not None else ""


def _spellings(
    request: EditableRequest,
    index: int,
    number: int,
    parts: Sequence[str],
    reads: str,
    vocabulary: Vocabulary,
    budget: QueryBudget,
) -> Turns[tuple[Sequence[CandidateChange], Sequence[CandidateChange]]]:
    """(candidates that correct a misspelt word, candidates that use another value). `parts`: the clauses."""
    clause = parts[number]
    values = vocabulary.of(reads)
    whole = {found for value in values if (found := _whole(value)) is not None}
    words, numbers = _words(clause)
    yield from budget.charge(len(values) + len(clause) // LETTERS)
    instead: dict[str, list[str]] = {}
    close: set[tuple[str, str]] = set()
    for word in words:
        instead[word], right = yield from _others(word, values, vocabulary, budget)
        close.update((word, other) for other in right)
    counts = {wanted: _nearest(whole, wanted) for wanted in numbers}
    options = list(islice(respelled(clause, lambda word: instead.get(word, ()), lambda n: counts.get(n, ())), OPTIONS))
    yield from budget.charge(len(numbers) * len(whole) // 4 + len(options) * (1 + len(clause) // LETTERS**3))
    first = [option for option in options if (option.old, option.new) in close]
    rest = [option for option in options if (option.old, option.new) not in close]
    if max(len(first), len(rest)) > CANDIDATES or len(options) == OPTIONS:
        budget.complete = False

    def made(chosen: Sequence[Respelled], *, near: bool) -> Sequence[CandidateChange]:
        return LazySequence(
            min(len(chosen), CANDIDATES),
            lambda position: _respelled(request, index, number, parts, chosen[position], near=near),
        )

    return made(first, near=True), made(rest, near=False)


def _whole(text: str) -> int | None:
    """The text as an integer; None if it is not one."""
    try:
        return int(text)
    except ValueError:
        return None


def _words(clause: str) -> tuple[list[str], list[int]]:
    """(words, numbers) of the clause that candidates may replace, each once."""
    words: dict[str, None] = {}
    numbers: dict[int, None] = {}

    def word(found: str) -> Sequence[str]:
        words[found] = None
        return ()

    def number(found: int) -> Sequence[int]:
        numbers[found] = None
        return ()

    for _ in islice(respelled(clause, word, number), OPTIONS):
        pass
    return list(islice(words, WORDS)), list(islice(numbers, WORDS))


def _others(
    word: str, values: Sequence[str], vocabulary: Vocabulary, budget: QueryBudget
) -> Turns[tuple[list[str], Collection[str]]]:
    """(words to try instead, the similar ones among them)"""
    if word[:1].isdigit():
        yield from budget.charge(2 * len(values))
        return _by_distance(word, values), ()
    found = yield from vocabulary.near(word, budget)
    alike = (yield from near(word, values, budget)) if word not in values else []
    close = dict.fromkeys((*found, *alike))
    rest = values[:VALUES] if word not in vocabulary.words else []
    return [other for other in dict.fromkeys((*close, *rest)) if other != word], close


def _nearest(numbers: Collection[int], number: int) -> list[int]:
    """The known numbers, the nearest first."""
    return sorted(numbers, key=lambda other: (abs(other - number), other))[:VALUES]


def _by_distance(word: str, values: Sequence[str]) -> list[str]:
    """Known amounts or versions, the nearest first. Distance is the number of known values in between."""
    key = _order(word)
    if key is None:
        return [value for value in values if value != word][:VALUES]
    known = [(found, value) for value in values if (found := _order(value)) is not None and found[0] == key[0]]
    below = sorted((item for item in known if item[0] < key), reverse=True)
    above = sorted(item for item in known if item[0] > key)
    ranked = sorted((rank, value) for side in (below, above) for rank, (_, value) in enumerate(side))
    return [value for _, value in ranked[:VALUES]]


def in_order(values: Sequence[str]) -> Sequence[str]:
    """Amounts or versions from the smallest to the largest; other values as they are."""
    keys = {value: key for value in values if (key := _order(value)) is not None}
    alike = len(keys) == len(values) and len({kind for kind, _ in keys.values()}) == 1
    return sorted(values, key=keys.__getitem__) if alike else values


def _order(text: str) -> tuple[str, Any] | None:
    """(type, sort key) of an amount or a version; None for other texts. Only keys of one type are comparable."""
    try:
        return "quantity", Quantity.parse(text).nano
    except ValueError:
        pass
    try:
        return "version", Semver.parse(text).key
    except ValueError:
        return None


def _respelled(
    request: EditableRequest, index: int, number: int, parts: Sequence[str], option: Respelled, *, near: bool
) -> CandidateChange:
    clause = parts[number]
    expression = " && ".join((*parts[:number], option.expression, *parts[number + 1 :]))
    if near:
        shown = brief(clause) if option.old in brief(clause) else clause
        text = f"{request.label}: did you mean {option.new} in {shown}?"
        return _candidate(request, index, expression, text, f"did you mean {option.new}?")
    text = f"{request.label}: use {brief(option.expression)} instead of {brief(clause)}"
    return _candidate(request, index, expression, text, brief(option.expression))


def _removed(request: EditableRequest, index: int, number: int, parts: Sequence[str]) -> CandidateChange:
    clause, expression = parts[number], " && ".join((*parts[:number], *parts[number + 1 :]))
    text = f"{request.label}: remove {brief(clause)}"
    return _candidate(request, index, expression, text, f"without {brief(clause)}")


def _candidate(request: EditableRequest, index: int, expression: str, text: str, short: str) -> CandidateChange:
    if expression:
        return request.edit("selector", f"/selectors/{index}/cel/expression", expression, text, short)
    return request.edit("selector", f"/selectors/{index}", None, text, short, "remove")
