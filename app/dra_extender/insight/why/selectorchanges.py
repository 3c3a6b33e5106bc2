"""Changes of selectors that may help: a word that is nearly one the devices have, another value, or a clause less."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import CELDeviceSelector, DeviceSelector
from dra_extender.api.semver import Semver
from dra_extender.cel.clauses import Respelled, brief, clauses, respelled, without
from dra_extender.cel.device import DeviceView
from dra_extender.cel.trial import shown_value
from dra_extender.insight.why.edits import Candidate, Families, Family, Place, replaced, swapped
from dra_extender.insight.why.nearness import near
from dra_extender.scheduling.slices import LazySequence, QueryBudget, Slices

VALUES: Final = 8
WORDS: Final = 24
"""Candidates of one clause with another word."""
CLAUSES: Final = 8
"""Clauses of one request that are changed, the first ones that do not hold."""
LOOKED: Final = 16
"""Words of one clause that others are looked for."""
OPTIONS: Final = 512
"""Spellings of one clause that are looked at."""
KNOWN: Final = 256
LONGEST: Final = 64
"""Words that are known, and values of each name; longer ones are nobody's slip of the pen."""
LETTERS: Final = 8
"""Letters of a selector that are read in a unit of work."""
CHANGE: Final = 20
"""Units of work that a change takes."""


class Vocabulary:
    """The words that selectors may use of these devices: domains, names, drivers, and values by name."""

    def __init__(self, devices: Iterable[DeviceView] = ()) -> None:
        self.words: dict[str, None] = {}
        self.values: dict[str, dict[str, None]] = {}
        self.attributes: dict[str, None] = {}
        for view in devices:
            self.add(view)

    def add(self, view: DeviceView) -> None:
        """The words of one more device."""
        self.words[view.driver] = None
        self.values.setdefault("driver", {})[view.driver] = None
        self.attributes.update(dict.fromkeys(view.attributes))
        for entries in (view.attributes, view.capacity):
            for name, value in entries.items():
                domain, _, identifier = name.partition("/")
                if len(self.words) < KNOWN and len(name) <= LONGEST:
                    self.words[domain] = self.words[identifier] = None
                known = self.values.setdefault(name, {})
                if len(known) < KNOWN and len(shown := shown_value(value)) <= LONGEST:
                    known[shown] = None

    def near(self, word: str, budget: QueryBudget) -> Slices[list[str]]:
        """Words that this one may be meant to be; nothing when it is one of them."""
        return [] if word in self.words else (yield from near(word, self.words, budget))

    def of(self, reads: str) -> list[str]:
        """The values of what a clause reads; of everything when that is not known."""
        if reads:
            return list(self.values.get(reads, {}))
        return list(islice(dict.fromkeys(value for values in self.values.values() for value in values), KNOWN))


def of_selectors(place: Place, found: Sequence[RequestTally], vocabulary: Vocabulary, budget: QueryBudget) -> Families:
    """The families of one request. Only what some node's devices do not satisfy is changed."""
    told: dict[tuple[int, int], str] = {}
    for tally in found:
        if budget.must_yield(1 + len(tally.clauses)):
            yield None
        for clause in tally.clauses:
            if clause.source == "request":
                told.setdefault((clause.index, clause.number), clause.reads)
        for error in tally.errors:
            if error.source == "request":
                if budget.must_yield(1 + len(error.expression) // LETTERS):
                    yield None
                for number in range(len(clauses(error.expression))):
                    told.setdefault((error.index, number), "")
    if len(told) > CLAUSES:
        budget.complete = False
    for (index, number), reads in islice(told.items(), CLAUSES):
        expression = _expression(place, index)
        if budget.must_yield(2 * (1 + len(expression) // LETTERS)):
            yield None
        text = clauses(expression)[number]
        misspelt, other = yield from _spellings(place, index, number, text, reads, vocabulary, budget)
        if misspelt:
            yield Family(0, misspelt)
        if other:
            yield Family(25, other)
        yield Family(26, [_dropped(place, index, number, text)])
        if budget.must_yield(CHANGE + len(expression) // LETTERS):
            yield None


def _expression(place: Place, index: int) -> str:
    cel = place.source.selectors[index].cel
    return cel.expression if cel is not None else ""


def _spellings(
    place: Place, index: int, number: int, clause: str, reads: str, vocabulary: Vocabulary, budget: QueryBudget
) -> Slices[tuple[Sequence[Candidate], Sequence[Candidate]]]:
    """(words that were nearly right, other values)"""
    values = vocabulary.of(reads)
    whole = {found for value in values if (found := _whole(value)) is not None}
    words, numbers = _words(clause)
    if budget.must_yield(len(values) + len(clause) // LETTERS):
        yield
    instead: dict[str, list[str]] = {}
    close: set[tuple[str, str]] = set()
    for word in words:
        instead[word], right = yield from _others(word, values, vocabulary, budget)
        close.update((word, other) for other in right)
    counts = {wanted: _nearest(whole, wanted) for wanted in numbers}
    options = list(islice(respelled(clause, lambda word: instead.get(word, ()), lambda n: counts.get(n, ())), OPTIONS))
    if budget.must_yield(len(numbers) * len(whole) // 4 + len(options) * (1 + len(clause) // LETTERS**3)):
        yield
    first = [option for option in options if (option.old, option.new) in close]
    rest = [option for option in options if (option.old, option.new) not in close]
    if max(len(first), len(rest)) > WORDS or len(options) == OPTIONS:
        budget.complete = False

    def made(chosen: Sequence[Respelled], *, near: bool) -> Sequence[Candidate]:
        return LazySequence(
            min(len(chosen), WORDS),
            lambda position: _respelled(place, index, number, clause, chosen[position], near=near),
        )

    return made(first, near=True), made(rest, near=False)


def _whole(text: str) -> int | None:
    """The number that is written, if one is."""
    try:
        return int(text)
    except ValueError:
        return None


def _words(clause: str) -> tuple[list[str], list[int]]:
    """(words, numbers) of the clause that others are looked for, each once."""
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
    return list(islice(words, LOOKED)), list(islice(numbers, LOOKED))


def _others(
    word: str, values: Sequence[str], vocabulary: Vocabulary, budget: QueryBudget
) -> Slices[tuple[list[str], Collection[str]]]:
    """(words to try instead, those of them that this one may have been meant to be)"""
    if word[:1].isdigit():
        if budget.must_yield(2 * len(values)):
            yield
        return _by_distance(word, values), ()
    found = yield from vocabulary.near(word, budget)
    alike = (yield from near(word, values, budget)) if word not in values else []
    close = dict.fromkeys((*found, *alike))
    rest = values[:VALUES] if word not in vocabulary.words else []
    return [other for other in dict.fromkeys((*close, *rest)) if other != word], close


def _nearest(numbers: Collection[int], number: int) -> list[int]:
    """The numbers that there are, the nearest first."""
    return sorted(numbers, key=lambda other: (abs(other - number), other))[:VALUES]


def _by_distance(word: str, values: Sequence[str]) -> list[str]:
    """Amounts or versions that there are, as far from the one that was written as others lie between them."""
    key = _order(word)
    if key is None:
        return [value for value in values if value != word][:VALUES]
    known = [(found, value) for value in values if (found := _order(value)) is not None and found[0] == key[0]]
    below = sorted((item for item in known if item[0] < key), reverse=True)
    above = sorted(item for item in known if item[0] > key)
    ranked = sorted((rank, value) for side in (below, above) for rank, (_, value) in enumerate(side))
    return [value for _, value in ranked[:VALUES]]


def _order(text: str) -> tuple[str, Any] | None:
    """What amounts and versions are sorted by, each among its own."""
    try:
        return "quantity", Quantity.parse(text).nano
    except ValueError:
        pass
    try:
        return "version", Semver.parse(text).key
    except ValueError:
        return None


def _respelled(place: Place, index: int, number: int, clause: str, option: Respelled, *, near: bool) -> Candidate:
    parts = list(clauses(_expression(place, index)))
    parts[number] = option.expression
    text = " && ".join(parts)
    if near:
        said = f"{place.label}: {brief(clause)}: did you mean {option.new}{_unseen(option.old, clause)}?"
        short = f"did you mean {option.new}?"
    else:
        said, short = f"{place.label}: {brief(option.expression)} instead of {brief(clause)}", brief(option.expression)
    return _candidate(place, index, text, said, short)


def _unseen(old: str, clause: str) -> str:
    """The word that was written, where the clause as it is told does not show it, as a domain."""
    return "" if old in brief(clause) else f" instead of {old}"


def _dropped(place: Place, index: int, number: int, clause: str) -> Candidate:
    text = without(_expression(place, index), number)
    return _candidate(place, index, text, f"{place.label}: drop {brief(clause)}", f"without {brief(clause)}")


def _candidate(place: Place, index: int, expression: str, said: str, short: str) -> Candidate:
    selectors = place.source.selectors
    path = f"{place.path}/selectors/{index}"
    if expression:
        selector = DeviceSelector(cel=CELDeviceSelector(expression))
        claim = place.written(selectors=replaced(selectors, index, selector))
        change = place.target.change("selector", f"{path}/cel/expression", expression)
    else:
        claim = place.written(selectors=(*selectors[:index], *selectors[index + 1 :]))
        change = place.target.change("selector", path, None, "remove")
    return Candidate(said, short, change, swapped(place.claim, claim))
