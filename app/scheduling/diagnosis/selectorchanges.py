"""Changes of selectors that may help: a word that is nearly one the devices have, another value, or a clause less."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import count, islice
from typing import Any, Final

from app.allocation.tally import RequestTally
from app.api.quantity import Quantity
from app.api.resource import CELDeviceSelector, DeviceSelector
from app.api.semver import Semver
from app.cel.clauses import Respelled, brief, clauses, respelled, without
from app.cel.device import DeviceView
from app.cel.trial import shown_value
from app.scheduling.diagnosis.edits import Candidate, Family, Place, replaced, swapped

NEAR: Final = 0.6
VALUES: Final = 8
WORDS: Final = 24
"""Candidates of one clause with another word."""
CLAUSES: Final = 8
"""Clauses of one request that are changed, the first ones that do not hold."""
LOOKED: Final = 16
"""Words of one clause that others are looked for."""
KNOWN: Final = 256
LONGEST: Final = 64
"""Words that are known, and values of each name; longer ones are nobody's slip of the pen."""


class Vocabulary:
    """The words that selectors may use of these devices: domains, names, drivers, and values by name."""

    def __init__(self, devices: Iterable[DeviceView]) -> None:
        self.words: dict[str, None] = {}
        self.values: dict[str, dict[str, None]] = {}
        self.attributes: dict[str, None] = {}
        for view in devices:
            self.words[view.driver] = None
            self.values.setdefault("driver", {})[view.driver] = None
            self.attributes.update(dict.fromkeys(view.attribute_values))
            for entries in (view.attribute_values, view.capacity_values):
                for name, value in entries.items():
                    domain, _, identifier = name.partition("/")
                    if len(self.words) < KNOWN and len(name) <= LONGEST:
                        self.words[domain] = self.words[identifier] = None
                    known = self.values.setdefault(name, {})
                    if len(known) < KNOWN and len(shown := shown_value(value)) <= LONGEST:
                        known[shown] = None

    def near(self, word: str) -> list[str]:
        """Words that this one may be meant to be; nothing when it is one of them."""
        return [] if word in self.words else get_close_matches(word, self.words, 3, NEAR)

    def of(self, reads: str) -> list[str]:
        """The values of what a clause reads; of everything when that is not known."""
        if reads:
            return list(self.values.get(reads, {}))
        return list(islice(dict.fromkeys(value for values in self.values.values() for value in values), KNOWN))


def of_selectors(place: Place, found: Sequence[RequestTally], vocabulary: Vocabulary) -> Iterator[Family]:
    """The families of one request. Only what some node's devices do not satisfy is changed."""
    told: dict[tuple[int, int], str] = {}
    for tally in found:
        for clause in tally.clauses:
            if clause.source == "request":
                told.setdefault((clause.index, clause.number), clause.reads)
        for error in tally.errors:
            if error.source == "request":
                for number in range(len(clauses(error.expression))):
                    told.setdefault((error.index, number), "")
    for (index, number), reads in islice(told.items(), CLAUSES):
        expression = _expression(place, index)
        text = clauses(expression)[number]
        misspelt, other = _spellings(place, index, number, text, reads, vocabulary)
        if misspelt:
            yield Family(0, misspelt)
        if other:
            yield Family(25, other)
        yield Family(26, [_dropped(place, index, number, text)])


def _expression(place: Place, index: int) -> str:
    cel = place.source.selectors[index].cel
    return cel.expression if cel is not None else ""


def _spellings(
    place: Place, index: int, number: int, clause: str, reads: str, vocabulary: Vocabulary
) -> tuple[list[Candidate], list[Candidate]]:
    """(words that were nearly right, other values)"""
    values = vocabulary.of(reads)
    near: set[tuple[str, str]] = set()

    looks = count()

    def others(word: str) -> list[str]:
        if next(looks) >= LOOKED:
            return []
        if word[:1].isdigit():
            return _by_distance(word, values)
        found = vocabulary.near(word)
        close = get_close_matches(word, values, 3, NEAR) if word not in values else []
        near.update((word, other) for other in (*found, *close))
        rest = values[:VALUES] if word not in vocabulary.words else []
        return [other for other in dict.fromkeys((*found, *close, *rest)) if other != word]

    whole = {int(value) for value in values if value.lstrip("-").isdigit()}

    def numbers(number: int) -> list[int]:
        return _nearest(whole, number) if next(looks) < LOOKED else []

    made = [(option, (option.old, option.new) in near) for option in respelled(clause, others, numbers)]
    first = [_respelled(place, index, number, clause, option, near=True) for option, close in made if close]
    rest = [_respelled(place, index, number, clause, option, near=False) for option, close in made if not close]
    return first[:WORDS], rest[:WORDS]


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
        said, short = (
            f"{place.label}: {brief(clause)}: did you mean {option.new}?",
            f"did you mean {option.new}?",
        )
    else:
        said, short = f"{place.label}: {brief(option.expression)} instead of {brief(clause)}", brief(option.expression)
    return _candidate(place, index, text, said, short)


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
