"""How a pod's claims look at nodes: through a lens, nodes that must get the same verdict look the same.

Promises: two nodes with equal fingerprints make the search take the same turns. A fingerprint holds, per pool and in
search order, what the search can notice: the kind of each device (see `kinds`), whether it is free, and what the pool's
counters still have. Names of nodes, pools and devices, and devices no request wants, are left out. A device that
somebody owns is left out too, unless a request looks at devices in use (mode All, admin access).

A lens made for a scorer holds what that reads as well, so that nodes with equal fingerprints get equal scores.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count

import msgspec

from dra_extender.allocation.budget import UNLIMITED, Deferred, WorkBudget
from dra_extender.allocation.cache.kinds import IRRELEVANT, Kinds
from dra_extender.allocation.cache.reduction import Reduction, Shape
from dra_extender.allocation.requests import REMEMBERED_BYTES, Filter, PreparedClaims
from dra_extender.allocation.score import Scorer
from dra_extender.devices.belongings import Belongings
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.nodes import SeenNode, SeenPool
from dra_extender.devices.overlay import Overlay
from dra_extender.devices.pools import Pool
from dra_extender.devices.poolstate import PoolState, PoolStates

REMEMBERED = 50_000
"""How many parts are remembered, of shapes that are still there."""

Fingerprint = tuple[Hashable, ...]

NOTHING = 0
"""The part of pools that make no difference."""

INCOMPLETE, INVALID = -1, -2
"""Parts of pools without devices."""


class Focus(msgspec.Struct, frozen=True):
    """What is looked at: `filters` of requests, `attributes` of constraints and scorers (full names). `in_use`: devices
    in use matter as well; `every`: all devices do, wanted or not, and all that is left of capacity and counters.
    """

    filters: tuple[Filter, ...]
    attributes: tuple[str, ...]
    in_use: bool
    every: bool = False

    @property
    def size(self) -> int:
        """How many bytes its filters count for."""
        return sum(filter.size for filter in self.filters)


def focus(prepared: PreparedClaims, scorer: Scorer | None = None) -> Focus:
    """What the search for the claims looks at, and the scorer that rates what it finds."""
    asks = [ask for request in prepared.requests for ask in request.asks]
    attributes = {
        name
        for claim in prepared.claims
        for constraint in claim.constraints
        if (name := constraint.match_attribute or constraint.distinct_attribute)
    }
    every = scorer is not None and scorer.reads_use
    if scorer is not None:
        attributes.update(scorer.attributes)
    filters = tuple(dict.fromkeys(ask.filter for ask in asks))
    return Focus(filters, tuple(sorted(attributes)), every or any(ask.all or ask.admin for ask in asks), every)


ExtendedResources = tuple[tuple[int, int, int, bool], ...]
"""Devices of a shape that some request may have: index, kind, locality, True when it consumes counters."""


class _Sight:
    """A shape through a lens. `parts` are numbers for what can be noticed of pools of the shape, by state."""

    __slots__ = ("devices", "parts")

    def __init__(self) -> None:
        self.devices: ExtendedResources | None = None
        self.parts: dict[PoolState, int] = {}


class Lens:
    """Claims with equal focus share a lens. `reduction` has to be made for what the focus reads; lenses that read the
    same may share it.
    """

    def __init__(self, focus: Focus, *, reduction: Reduction, states: PoolStates) -> None:
        self.size = focus.size
        self._focus = focus
        self._kinds = Kinds(focus.filters, focus.attributes, every=focus.every)
        self._reduction = reduction
        self._states = states
        self._numbers: dict[Hashable, int] = {}
        self._wanted: dict[ExtendedResources, ExtendedResources] = {}
        self._sights: Belongings[Shape, _Sight] = Belongings()
        self._remembered = 0
        self._next = count(1)

    def fingerprint(
        self, seen: SeenNode, ledger: Ledger, overlay: Overlay | None = None, budget: WorkBudget = UNLIMITED
    ) -> Fingerprint:
        """Of an up-to-date node, in the state of the ledger, or that the overlay on it shows. Raises TurnSpent, and
        Deferred when all that workers have to answer is asked.
        """
        if seen.error:
            return (seen.error,)
        shapes, sights, revision = self._reduction.known, self._sights, ledger.revision
        found: list[int] = []
        for seen_pool in seen.pools:
            pool = seen_pool.pool
            if pool is not None:
                looked = shapes.get(id(seen_pool))
                shape = looked.value if looked is not None else self._reduction.shape(seen_pool, pool, budget)
                state = seen_pool.state if overlay is None and seen_pool.revision == revision(pool.id) else None
                if state is None:
                    state = self._state(seen_pool, pool, ledger, overlay)
                known = sights.get(id(shape))
                part = known.value.parts.get(state) if known is not None else None
                if part is None:
                    part = self._part(shape, state, budget)
                if part != NOTHING:
                    found.append(part)
        return tuple(found)

    def _state(self, seen_pool: SeenPool, pool: Pool, ledger: Ledger, overlay: Overlay | None) -> PoolState:
        if overlay is not None and overlay.touches(pool.id):
            return self._states.of(pool, overlay.holdings(pool.id))
        revision = ledger.revision(pool.id)
        if seen_pool.state is None or seen_pool.revision != revision:
            seen_pool.revision, seen_pool.state = revision, self._states.of(pool, ledger.holdings(pool.id))
        return seen_pool.state

    # --- pools -------------------------------------------------------------------------------------------------------

    def _part(self, shape: Shape, state: PoolState, budget: WorkBudget) -> int:
        """A number for what the search can notice of a pool. A number that was forgotten is never given again."""
        if self._remembered >= REMEMBERED:
            self._sights.clear()
            self._numbers.clear()
            self._wanted.clear()
            self._remembered = 0
        known = self._sights.get(id(shape))
        sight = known.value if known is not None else self._sights.give(shape, _Sight())
        content = self._content(shape, state, sight, budget)
        if isinstance(content, int):
            number = content
        else:
            number = self._numbers.get(content, 0) or next(self._next)
            self._numbers[content] = number
        sight.parts[state] = number
        self._remembered += 1
        return number

    def _content(self, shape: Shape, state: PoolState, sight: _Sight, budget: WorkBudget) -> tuple[Hashable, ...] | int:
        if shape.invalid:
            return INVALID
        if shape.incomplete:
            return INCOMPLETE if self._focus.in_use else NOTHING
        budget.spend(1 + len(shape.devices) // 2)
        if sight.devices is None:
            wanted = self._look(shape, budget)
            sight.devices = self._wanted.setdefault(wanted, wanted)
        devices: list[Hashable] = []
        consuming, in_use, all_owned = self._focus.every, self._focus.in_use, state.owned
        for index, kind, locality, consumes in sight.devices:
            owned = bool(all_owned >> index & 1)
            if owned and not in_use:
                continue
            used = state.shared.get(index)
            devices.append((kind, owned, locality, used) if owned or locality or used is not None else kind)
            consuming = consuming or consumes
        if not devices:
            return NOTHING
        return (*devices, state.left) if consuming and shape.counted else tuple(devices)

    def _look(self, shape: Shape, budget: WorkBudget) -> ExtendedResources:
        """The devices that some request may have. Raises TurnSpent, and Deferred when all that workers
        have to answer is asked.
        """
        if self.size > REMEMBERED_BYTES:
            self._kinds.look((model for model, _ in shape.devices), budget)
        found: list[tuple[int, int, int, bool]] = []
        waiting: Deferred | None = None
        for index, (model, locality) in enumerate(shape.devices):
            try:
                kind = self._kinds.of(model, budget)
            except Deferred as problem:
                waiting = problem
                continue
            if kind != IRRELEVANT:
                found.append((index, kind, locality, bool(model.traits.consumes)))
        if waiting is not None:
            raise waiting
        return tuple(found)
