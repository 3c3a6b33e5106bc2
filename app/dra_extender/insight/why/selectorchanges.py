"""Changes of selectors: correct a misspelt word, use another value, or remove a clause."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import Semver
from dra_extender.cel.device import DeviceView
from dra_extender.cel.trial import Word, brief, clauses, shown_value, words
from dra_extender.insight.why.candidates import CandidateChange, ChangeList, ChangeLists, EditableRequest, Order, near
from dra_extender.scheduling.turns import QueryBudget, Turns

VALUES: Final = 8
CANDIDATES: Final = 24
"""At most this number of candidates per clause correct a misspelt word, and as many use another value."""
CLAUSES: Final = 8
"""Clauses of one request that are changed at most."""
WORDS: Final = 16
"""Words of one clause that are replaced."""
KNOWN: Final = 256
"""Known words, and known values per name."""
LONGEST: Final = 64
"""Letters of a known word or value."""
LETTERS: Final = 8
"""Letters of a selector that are read in a unit of work."""
FLIPPED: Final = {"true": "false", "false": "true"}


class Vocabulary:
    """The words that claims can use for these devices: drivers, domains and names. The values, by name."""

    def __init__(self) -> None:
        self.words: dict[str, None] = {}
        self.values: dict[str, dict[str, None]] = {}
        self.attributes: dict[str, None] = {}
        self.differing: set[str] = set()
        """Attributes in which devices of one node differ, if no other node has these models."""
        self.capacities: dict[str, None] = {}
        """Without the domain of the driver, as claims name them."""
        self.classes: Mapping[str, Set[str]] = {}
        """By class, the known drivers of the devices that it selects."""

    def add(self, view: DeviceView) -> None:
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
    capacities: set[str] = set()
    """That are read as attributes."""
    for tally in found:
        yield from budget.charge(1 + len(tally.clauses))
        for clause in tally.clauses:
            if clause.source == "request":
                failing.setdefault((clause.index, clause.number), clause.reads)
        for error in tally.errors:
            if error.source == "request":
                yield from budget.charge(1 + len(error.expression) // LETTERS)
                capacities.update({error.key} & vocabulary.capacities.keys())
                for number in range(len(clauses(error.expression))):
                    failing.setdefault((error.index, number), "")
    if len(failing) > CLAUSES:
        budget.complete = False
    for (index, number), reads in islice(failing.items(), CLAUSES):
        cel = request.source.selectors[index].cel
        expression = cel.expression if cel is not None else ""
        yield from budget.charge(1 + 3 * len(expression) // LETTERS)
        written = _Clause(request, index, number, clauses(expression))
        if any(f"].{name}" in written.text for name in capacities):
            text = f"use device.capacity instead of device.attributes in {written.brief}"
            changed = written.text.replace("device.attributes[", "device.capacity[")
            yield ChangeList(Order.MISTAKE, [written.edit(text, "device.capacity", changed)])
        yield from _spellings(written, vocabulary.of(reads), vocabulary, budget)
        every = written._replace(number=0, parts=(expression,)).edit("remove the selector", "without the selector")
        what = written.brief if len(written.parts) > 1 else f"the selector {written.brief}"
        removed = written.edit(f"remove {what}", f"without {written.brief}")
        yield ChangeList(Order.NO_SELECTOR, [removed, every] if len(written.parts) > 1 else [removed])


class _Clause(NamedTuple):
    """The clause with this `number` among the `parts` of a selector of the request, which counts its selectors."""

    request: EditableRequest
    selector: int
    number: int
    parts: Sequence[str]

    @property
    def text(self) -> str:
        return self.parts[self.number]

    @property
    def brief(self) -> str:
        """For people."""
        return brief(self.text)

    def edit(self, text: str, short: str, *instead: str) -> CandidateChange:
        """Another clause instead of this one, or none. A selector without clauses is removed."""
        expression = " && ".join((*self.parts[: self.number], *instead, *self.parts[self.number + 1 :]))
        part, path = self.request.part, f"/selectors/{self.selector}"
        text = f"{part.label}: {text}"
        if expression:
            return part.edit("selector", f"{path}/cel/expression", expression, text, short)
        return part.edit("selector", path, None, text, short, "remove")

    def respelled(self, words: tuple[Word, str], near: bool) -> CandidateChange:
        """The second word instead of the first one, which may be misspelt if `near`."""
        word, other = words
        changed = word.replaced(self.text, other)
        if near:
            shown = self.brief if word.text in self.brief else self.text
            return self.edit(f"use {other} instead of {word.text} in {shown}", f"did you mean {other}?", changed)
        return self.edit(f"use {brief(changed)} instead of {self.brief}", brief(changed), changed)


def _spellings(clause: _Clause, values: Sequence[str], vocabulary: Vocabulary, budget: QueryBudget) -> ChangeLists:
    """Changes that correct a misspelt word, and changes that use another value."""
    close: list[tuple[Word, str]] = []
    rest: list[tuple[Word, str]] = []
    yield from budget.charge(len(values) + len(clause.text) // LETTERS)
    for word in islice(words(clause.text), WORDS):
        others, alike = yield from _others(word, values, vocabulary, budget)
        yield from budget.charge(len(others))
        for other in others:
            (close if other in alike else rest).append((word, other))
    if max(len(close), len(rest)) > CANDIDATES:
        budget.complete = False
    yield ChangeList(Order.MISTAKE, close[:CANDIDATES], partial(clause.respelled, near=True))
    yield ChangeList(Order.SELECTOR, rest[:CANDIDATES], partial(clause.respelled, near=False))


def _others(
    word: Word, values: Sequence[str], vocabulary: Vocabulary, budget: QueryBudget
) -> Turns[tuple[list[str], Collection[str]]]:
    """(words to try instead, the similar ones among them)"""
    text = word.text
    if word.kind in FLIPPED:
        return [FLIPPED[word.kind]], ()
    if text[0].isdigit():
        yield from budget.charge(2 * len(values))
        numbers = (value for value in values if value.isascii() and value.removeprefix("-").isdigit())
        return _by_distance(text, list(numbers) if word.kind == "int" else values), ()
    found = (yield from near(text, vocabulary.words, budget)) if text not in vocabulary.words else []
    alike = (yield from near(text, values, budget)) if text not in values else []
    close = dict.fromkeys((*found, *alike))
    rest = values[:VALUES] if text not in vocabulary.words else []
    others = (other for other in dict.fromkeys((*close, *rest)) if other != text)
    return [other for other in others if word.kind == "string" or other.isidentifier()], close


def _by_distance(word: str, values: Sequence[str]) -> list[str]:
    """Known numbers, amounts or versions, the nearest first. Distance is the number of known values in between."""
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
