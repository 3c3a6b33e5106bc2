"""Devices reduced to what is read of them, so that a serial number does not make every device unlike all others.

Promises: devices with one representative give the same answers to every selector and constraint whose reads the
reduction was made for, and their traits are equal in everything but ordinary attributes that nobody reads. Pools with
the same devices in this sense share one `Shape`. Nothing is kept of a pool that nobody sees any more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from weakref import WeakValueDictionary

from dra_extender.allocation.budget import UNLIMITED, Deferred, WorkBudget
from dra_extender.allocation.looks import DOMAIN, Look, Reads
from dra_extender.allocation.questions import Compiled
from dra_extender.allocation.requests import Filter
from dra_extender.allocation.selection import cel_gates
from dra_extender.cel import CelCompileError, ReadSet
from dra_extender.devices.belongings import Belongings
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.nodes import SeenPool
from dra_extender.devices.pools import Pool


def reads_of(filters: Iterable[Filter], attributes: Iterable[str], budget: WorkBudget = UNLIMITED) -> Reads:
    """What the selectors of filters and the constraints on these attributes (full names) read. Raises TurnSpent, and
    Deferred when all that workers have to answer is asked.
    """
    found: set[tuple[str, str]] = set()
    everything = False
    waiting: Deferred | None = None
    for name in attributes:
        domain, _, identifier = name.partition("/")
        found.add((domain, identifier))
    for filter in filters:
        for expression in filter.class_selectors + filter.selectors:
            try:
                reads = _selector_reads(expression, filter, budget)
            except Deferred as problem:
                waiting = problem
                continue
            everything = everything or reads is None
            found |= reads or frozenset()
    if waiting is not None:
        raise waiting
    return None if everything else frozenset(found)


def _selector_reads(expression: str, filter: Filter, budget: WorkBudget) -> Reads:
    """An expression that does not compile reads nothing: it fails on every device. Kept by the filter, unless a worker
    has not come to an end with it.
    """
    if expression not in filter.reads:
        try:
            program = budget.compiled(expression, cel_gates(filter.features))
        except CelCompileError:
            filter.reads[expression] = frozenset()
        else:
            if isinstance(program, Compiled) and program.problem:
                return frozenset()
            filter.reads[expression] = _read(program.reads)
    found: Reads = filter.reads[expression]
    return found


def _read(reads: ReadSet) -> Reads:
    if reads.everything:
        return None
    entries = {(domain, identifier) for kind, domain, identifier in reads.entries if kind == "attributes"}
    return frozenset(entries | {(DOMAIN, domain) for kind, domain in reads.domains if kind == "attributes"})


class Shape:
    """What claims can tell of a pool, whoever holds it: representatives of its devices with their localities, in order.

    A locality tells what node selection does to a device: 1 it is for other nodes, 2 nobody can tell, 4 it cannot be
    written down.
    """

    __slots__ = ("__weakref__", "counted", "devices", "incomplete", "invalid")

    def __init__(self, devices: tuple[tuple[DeviceModel, int], ...], pool: Pool) -> None:
        self.devices = devices
        self.counted = bool(pool.counters)
        self.incomplete = pool.incomplete
        self.invalid = bool(pool.invalid)


class Reduction:
    """See the module. The same shape is the same object for as long as somebody holds it."""

    def __init__(self, reads: Reads) -> None:
        self._look = Look(reads) if reads is not None else None
        self._representatives: WeakValueDictionary[Hashable, DeviceModel] = WeakValueDictionary()
        self._shapes: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()
        self._by_content: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()
        self.known: Belongings[SeenPool, Shape] = Belongings()
        """The shapes found so far; ask `shape` for the others."""

    def shape(self, seen: SeenPool, pool: Pool, budget: WorkBudget = UNLIMITED) -> Shape:
        """The shape of what is seen; `pool` is what it shows. Raises TurnSpent and Deferred."""
        known = self.known.get(id(seen))
        if known is not None:
            return known.value
        budget.spend(1 + 2 * len(pool.models))
        return self.known.give(seen, self._shape(pool))

    def _shape(self, pool: Pool) -> Shape:
        localities = _localities(pool)
        flags = bool(pool.counters), pool.incomplete, bool(pool.invalid)
        models = pool.models
        known = self._by_content.get((models, localities, flags))
        if known is None:
            look = self._look
            looks = models if look is None else tuple(map(look.of, models))
            known = self._shapes.get((looks, localities, flags))
            if known is None:
                reduced = models if look is None else map(self._representatives.setdefault, looks, models)
                listed = tuple(zip(reduced, localities or (0,) * len(models), strict=True))
                known = self._shapes[looks, localities, flags] = Shape(listed, pool)
            self._by_content[models, localities, flags] = known
        return known


def _localities(pool: Pool) -> tuple[int, ...]:
    """The locality of each device; empty when all are 0."""
    many_terms = any(selection.has_many_terms for selection in set(pool.selections))
    if not many_terms and not pool.elsewhere and not pool.unmatchable:
        return ()
    return tuple(
        (pool.elsewhere >> index & 1) | (index in pool.unmatchable) << 1 | selection.has_many_terms << 2
        for index, selection in enumerate(pool.selections)
    )
