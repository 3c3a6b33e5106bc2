"""What would help: changes that were decided again, the nearest first.

Promises: a remedy that is told makes the pod fit; the number of nodes is that of the nodes on which it then fits. Each
kind of change is told once, in its nearest form. When no single change helps, two together are tried. At most `budget`
allows is tried, and `budget.complete` says whether that was all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from dra_extender.allocation.selectors import cel_gates, device_view
from dra_extender.api.resource import DeviceClass
from dra_extender.cel import (
    CelCompileError,
    CelRuntimeError,
    DeviceView,
    Work,
    WorkExceeded,
)
from dra_extender.devices.models import DeviceModel
from dra_extender.insight.why import claimchanges, namechanges, podchanges, selectorchanges, tenantchanges
from dra_extender.insight.why.edits import Candidate, Families, Family, as_yaml, claims_with_targets, places
from dra_extender.insight.why.ground import Found, Ground
from dra_extender.insight.why.report import NodeGroup, Remedy
from dra_extender.insight.why.situation import Situation
from dra_extender.scheduling.slices import QueryBudget, Slices
from dra_extender.scheduling.view import View

TOLD: Final = 8
"""Remedies at most."""
DRIVERS: Final = 20_000
CLASS: Final = 5_000
"""Units of work for finding out which devices the classes select, and one class."""
MODEL: Final = 10
ATTRIBUTE: Final = 2
"""Units of work for the words of a kind of device, and of one of its attributes."""
DEVICES: Final = 512
"""Devices that are looked at for words and values."""
PAIRED: Final = 24
"""Changes of which two are tried together."""


def remedies(ground: Ground, found: Sequence[NodeGroup], budget: QueryBudget) -> Slices[tuple[Remedy, ...]]:
    """All remedies, one of each family."""
    victims = yield from budget.turn(lambda view: tenantchanges.victims(view, ground.base, ground.places))
    families = list(victims or ())
    for family in _families(ground, found, budget):
        if family is None:
            yield  # enough for one step
        elif family.candidates:
            families.append(family)
        if budget.spent():
            break
    families.sort(key=lambda family: family.rank)
    told: list[Remedy] = []
    for family in families:
        if len(told) >= TOLD or budget.spent():
            break
        remedy = yield from (_halved if family.monotone else _first)(ground, family, budget)
        if remedy is not None and not any(remedy.changes == other.changes for other in told):
            told.append(remedy)
    if not told:
        remedy = yield from _both(ground, families, budget)
        told.extend([remedy] if remedy is not None else [])
    return tuple(told)


def _families(ground: Ground, found: Sequence[NodeGroup], budget: QueryBudget) -> Families:
    situation = ground.base
    known = claimchanges.tallies(found)
    if budget.must_yield(sum(len(group.requests) for group in found)):
        yield None
    vocabulary, devices = yield from _vocabulary(situation, found, budget)
    classes = yield from _drivers(situation, devices, budget)
    attributes = list(vocabulary.attributes)
    for claim, target in claims_with_targets(situation):
        if claim.allocation is not None:
            continue
        yield from claimchanges.of_claim(claim, target, known, classes, attributes, budget)
        for place in places(claim, target):
            tallies = known.get((claim.metadata.key, place.name), ())
            yield from selectorchanges.of_selectors(place, tallies, vocabulary, budget)
    yield from namechanges.of_names(situation, budget)
    yield from podchanges.of_pod(situation, ground.obstacles, ground.left, budget)
    yield from tenantchanges.of_others(situation, found, budget)


def _vocabulary(
    situation: Situation, found: Sequence[NodeGroup], budget: QueryBudget
) -> Slices[tuple[selectorchanges.Vocabulary, Sequence[DeviceView]]]:
    """(the words that the devices of the examples have, the devices as selectors see them)"""
    vocabulary, devices = selectorchanges.Vocabulary(), list[DeviceView]()
    models: set[DeviceModel] = set()
    for group in found:
        seen = situation.view.cluster.inventory.view(group.example or group.nodes[0])
        several = seen.devices[:DEVICES] if seen is not None else ()
        if budget.must_yield(1 + len(several)):
            yield
        for device in several:
            if device.model in models:
                continue
            if len(models) >= DEVICES:
                return vocabulary, devices
            models.add(device.model)
            traits = device.model.traits
            if budget.must_yield(MODEL + ATTRIBUTE * (len(traits.attributes) + len(traits.capacity))):
                yield
            view = device_view(device.model, situation.view.features)
            vocabulary.add(view)
            devices.append(view)
    return vocabulary, devices


def _drivers(situation: Situation, devices: Sequence[DeviceView], budget: QueryBudget) -> Slices[claimchanges.Classes]:
    """The drivers whose devices each class selects, as far as that is cheap to find out."""
    left = DRIVERS
    found: dict[str, frozenset[str]] = {}
    for name, known in sorted(situation.view.cluster.classes.items()):
        work = Work(min(left, CLASS))
        allowed = work.left
        found[name] = _drivers_of(known, devices, situation.view, work)
        left -= allowed - work.left
        if budget.must_yield(1 + allowed - work.left):
            yield
    return found


def _drivers_of(known: DeviceClass, devices: Sequence[DeviceView], view: View, work: Work) -> frozenset[str]:
    drivers: set[str] = set()
    gates, remembered = cel_gates(view.features), view.decisions.filters.programs
    try:
        texts = [selector.cel.expression for selector in known.spec.selectors if selector.cel is not None]
        programs = [remembered.compile(text, gates, work) for text in texts]
        for device in devices:
            work.charge(1)
            if device.driver not in drivers and all(program.evaluate(device, work) for program in programs):
                drivers.add(device.driver)
    except (CelCompileError, CelRuntimeError, WorkExceeded):
        pass
    return frozenset(drivers)


# --- trials -----------------------------------------------------------------------------------------------------------


def _first(ground: Ground, family: Family, budget: QueryBudget) -> Slices[Remedy | None]:
    for candidate in family.candidates:
        if budget.spent():
            return None
        fits = yield from _tried(ground, [candidate], budget)
        if fits is not None:
            return _remedy([candidate], fits)
    return None


def _halved(ground: Ground, family: Family, budget: QueryBudget) -> Slices[Remedy | None]:
    """The nearest that helps: the last one does when any does."""
    low, high = 0, len(family.candidates) - 1
    best = yield from _tried(ground, [family.candidates[high]], budget)
    if best is None:
        return None
    while low < high:
        if budget.spent():
            break
        middle = (low + high) // 2
        fits = yield from _tried(ground, [family.candidates[middle]], budget)
        if fits is None:
            low = middle + 1
        else:
            high, best = middle, fits
    return _remedy([family.candidates[high]], best)


def _both(ground: Ground, families: Sequence[Family], budget: QueryBudget) -> Slices[Remedy | None]:
    """Two changes of different families, those first that are nearest; of a family its nearest and its furthest."""
    ends: list[tuple[int, Candidate]] = []
    for number, family in enumerate(families[:PAIRED]):
        ends.append((number, family.candidates[0]))
        if len(family.candidates) > 1:
            ends.append((number, family.candidates[-1]))
    pairs = combinations(ends[:PAIRED], 2)
    for (number, first), (other, second) in sorted(pairs, key=lambda pair: pair[0][0] + pair[1][0]):
        if number == other or first.change.path == second.change.path:
            continue
        if budget.spent():
            return None
        fits = yield from _tried(ground, [first, second], budget)
        if fits is not None:
            return _remedy([first, second], fits)
    return None


def _tried(ground: Ground, candidates: Sequence[Candidate], budget: QueryBudget) -> Slices[Found | None]:
    changed = ground.base
    for candidate in candidates:
        changed = candidate.apply(changed)
    only = candidates[0].only if len(candidates) == 1 else ()
    found = yield from ground.trial(changed, budget, only)
    yield
    return found


def _remedy(candidates: Sequence[Candidate], found: Found) -> Remedy:
    return Remedy(
        text=", and ".join(candidate.text for candidate in candidates),
        short=" and ".join(candidate.short for candidate in candidates),
        changes=tuple(change for candidate in candidates for change in (candidate.change, *candidate.more)),
        nodes=found.nodes,
        example=found.example,
        yaml="\n".join(as_yaml(candidate.fragment) for candidate in candidates if candidate.fragment is not None),
    )
