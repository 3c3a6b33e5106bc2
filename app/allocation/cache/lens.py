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
from weakref import WeakKeyDictionary

import msgspec

from app.allocation.cache.kinds import IRRELEVANT, Kinds
from app.allocation.cache.reduction import Reduction, Shape
from app.allocation.lane import FREE, Lane, Waiting
from app.allocation.requests import REMEMBERED_BYTES, Filter, PreparedClaims
from app.allocation.score import Scorer
from app.devices.ledger import Ledger
from app.devices.nodes import SeenNode, SeenPool
from app.devices.overlay import Overlay
from app.devices.pools import Pool
from app.devices.poolstate import PoolState, PoolStates

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
        self._parts: WeakKeyDictionary[Shape, dict[PoolState, int]] = WeakKeyDictionary()
        self._remembered = 0
        self._next = count(1)

    def fingerprint(
        self, seen: SeenNode, ledger: Ledger, overlay: Overlay | None = None, lane: Lane = FREE
    ) -> Fingerprint:
        """Of an up-to-date node, in the state of the ledger, or that the overlay on it shows. Raises Exhausted, and
        Waiting when all that workers have to answer is asked.
        """
        if seen.error:
            return (seen.error,)
        found: list[int] = []
        for seen_pool in seen.pools:
            pool = seen_pool.pool
            if pool is not None:
                shape = self._reduction.shape(seen_pool, pool, lane)
                state = self._state(seen_pool, pool, ledger, overlay)
                known = self._parts.get(shape)
                part = known.get(state) if known is not None else None
                if part is None:
                    part = self._part(shape, state, lane)
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

    def _part(self, shape: Shape, state: PoolState, lane: Lane) -> int:
        """A number for what the search can notice of a pool. A number that was forgotten is never given again."""
        if self._remembered >= REMEMBERED:
            self._parts.clear()
            self._numbers.clear()
            self._remembered = 0
        content = self._content(shape, state, lane)
        if isinstance(content, int):
            number = content
        else:
            number = self._numbers.get(content, 0) or next(self._next)
            self._numbers[content] = number
        self._parts.setdefault(shape, {})[state] = number
        self._remembered += 1
        return number

    def _content(self, shape: Shape, state: PoolState, lane: Lane) -> tuple[Hashable, ...] | int:
        if shape.invalid:
            return INVALID
        if shape.incomplete:
            return INCOMPLETE if self._focus.in_use else NOTHING
        devices: list[Hashable] = []
        consuming = self._focus.every
        waiting: Waiting | None = None
        lane.spend(1 + len(shape.devices) // 2)
        if self.size > REMEMBERED_BYTES:
            self._kinds.look((model for model, _ in shape.devices), lane)
        for index, (model, locality) in enumerate(shape.devices):
            try:
                kind = self._kinds.of(model, lane)
            except Waiting as problem:
                waiting = problem
                continue
            owned = bool(state.owned >> index & 1)
            if kind == IRRELEVANT or (owned and not self._focus.in_use):
                continue
            used = state.shared.get(index)
            devices.append((kind, owned, locality, used) if owned or locality or used is not None else kind)
            consuming = consuming or bool(model.traits.consumes)
        if waiting is not None:
            raise waiting
        if not devices:
            return NOTHING
        return (*devices, state.left) if consuming and shape.counted else tuple(devices)
