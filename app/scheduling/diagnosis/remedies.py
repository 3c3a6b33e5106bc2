"""What would help: changes that were decided again, the nearest first.

Promises: a remedy that is told makes the pod fit; the number of nodes is that of the nodes on which it then fits. Each
kind of change is told once, in its nearest form. When no single change helps, two together are tried. At most `pace`
allows is tried, and `pace.complete` says whether that was all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import Final

from app.allocation.selection import cel_gates
from app.cel import CelCompileError, CelRuntimeError, DeviceView, TooMuch, Work, compile_selector
from app.scheduling.diagnosis import claimchanges, podchanges, selectorchanges, tenantchanges
from app.scheduling.diagnosis.edits import Candidate, Family, claims_with_targets, places
from app.scheduling.diagnosis.ground import Found, Ground
from app.scheduling.diagnosis.report import NodeGroup, Remedy
from app.scheduling.diagnosis.situation import Situation
from app.scheduling.pace import Pace, Steps

TOLD: Final = 8
"""Remedies at most."""
DRIVERS: Final = 20_000
"""Units of work for finding out which devices the classes select."""
DEVICES: Final = 512
"""Devices that are looked at for words and values."""
PAIRED: Final = 24
"""Changes of which two are tried together."""


def remedies(ground: Ground, found: Sequence[NodeGroup], pace: Pace) -> Steps[tuple[Remedy, ...]]:
    """All remedies, one of each family."""
    victims = yield from pace.turn(lambda view: tenantchanges.victims(view, ground.base, ground.places))
    families = list(victims or ())
    for family in _families(ground.base, ground, found):
        families.append(family)
        yield  # what was found for one clause or rule is work enough for one step
    families.sort(key=lambda family: family.rank)
    told: list[Remedy] = []
    for family in families:
        if len(told) >= TOLD or pace.spent():
            break
        remedy = yield from (_halved if family.monotone else _first)(ground, family, pace)
        if remedy is not None and not any(remedy.changes == other.changes for other in told):
            told.append(remedy)
    if not told:
        remedy = yield from _both(ground, families, pace)
        told.extend([remedy] if remedy is not None else [])
    return tuple(told)


def _families(situation: Situation, ground: Ground, found: Sequence[NodeGroup]) -> Iterator[Family]:
    known = claimchanges.tallies(found)
    devices = list(_devices(situation, found))
    vocabulary = selectorchanges.Vocabulary(devices)
    classes = _drivers(situation, devices)
    attributes = list(vocabulary.attributes)
    for claim, target in claims_with_targets(situation):
        if claim.allocation is not None:
            continue
        yield from claimchanges.of_claim(claim, target, known, classes, attributes)
        for place in places(claim, target):
            tallies = known.get((claim.metadata.key, place.name), ())
            yield from selectorchanges.of_selectors(place, tallies, vocabulary)
    yield from podchanges.of_pod(situation, ground.obstacles, ground.left)
    yield from tenantchanges.of_others(situation, found)


def _devices(situation: Situation, found: Sequence[NodeGroup]) -> Iterator[DeviceView]:
    """The devices of the examples, as selectors see them."""
    gates = cel_gates(situation.view.features)
    models = {}
    for group in found:
        seen = situation.view.cluster.inventory.view(group.example or group.nodes[0])
        for device in seen.devices[:DEVICES] if seen is not None else ():
            models[device.model] = device.model.traits
    for traits in islice(models.values(), DEVICES):
        yield DeviceView.build(traits.driver, traits.attribute_values, traits.amounts, traits.multi, gates)


def _drivers(situation: Situation, devices: Sequence[DeviceView]) -> claimchanges.Classes:
    """The drivers whose devices each class selects, as far as that is cheap to find out."""
    gates = cel_gates(situation.view.features)
    work = Work(DRIVERS)
    found: dict[str, frozenset[str]] = {}
    for name, known in sorted(situation.view.cluster.classes.items()):
        drivers: set[str] = set()
        try:
            texts = [selector.cel.expression for selector in known.spec.selectors if selector.cel is not None]
            programs = [compile_selector(text, gates, work) for text in texts]
            for view in devices:
                if view.driver not in drivers and all(program.evaluate(view, work) for program in programs):
                    drivers.add(view.driver)
        except (CelCompileError, CelRuntimeError, TooMuch):
            pass
        found[name] = frozenset(drivers)
    return found


# --- trials -----------------------------------------------------------------------------------------------------------


def _first(ground: Ground, family: Family, pace: Pace) -> Steps[Remedy | None]:
    for candidate in family.candidates:
        if pace.spent():
            return None
        fits = yield from _tried(ground, [candidate], pace)
        if fits is not None:
            return _remedy([candidate], fits)
    return None


def _halved(ground: Ground, family: Family, pace: Pace) -> Steps[Remedy | None]:
    """The nearest that helps: the last one does when any does."""
    low, high = 0, len(family.candidates) - 1
    best = yield from _tried(ground, [family.candidates[high]], pace)
    if best is None:
        return None
    while low < high:
        if pace.spent():
            break
        middle = (low + high) // 2
        fits = yield from _tried(ground, [family.candidates[middle]], pace)
        if fits is None:
            low = middle + 1
        else:
            high, best = middle, fits
    return _remedy([family.candidates[high]], best)


def _both(ground: Ground, families: Sequence[Family], pace: Pace) -> Steps[Remedy | None]:
    """Two changes of different families, those first that are nearest; of a family its nearest and its furthest."""
    ends: list[tuple[int, Candidate]] = []
    for number, family in enumerate(families):
        ends.append((number, family.candidates[0]))
        ends.extend((number, candidate) for candidate in family.candidates[1:][-1:])
    pairs = combinations(ends[:PAIRED], 2)
    for (number, first), (other, second) in sorted(pairs, key=lambda pair: pair[0][0] + pair[1][0]):
        if number == other or first.change.path == second.change.path:
            continue
        if pace.spent():
            return None
        fits = yield from _tried(ground, [first, second], pace)
        if fits is not None:
            return _remedy([first, second], fits)
    return None


def _tried(ground: Ground, candidates: Sequence[Candidate], pace: Pace) -> Steps[Found | None]:
    changed = ground.base
    for candidate in candidates:
        changed = candidate.apply(changed)
    only = candidates[0].only if len(candidates) == 1 else ()
    found = yield from ground.trial(changed, pace, only)
    yield
    return found


def _remedy(candidates: Sequence[Candidate], found: Found) -> Remedy:
    return Remedy(
        text=", and ".join(candidate.text for candidate in candidates),
        short=" and ".join(candidate.short for candidate in candidates),
        changes=tuple(change for candidate in candidates for change in (candidate.change, *candidate.more)),
        nodes=found.nodes,
        example=found.example,
        yaml="\n".join(candidate.yaml for candidate in candidates if candidate.yaml),
    )
