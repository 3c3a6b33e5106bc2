"""Equivalence keys of nodes: nodes with equal keys get the same result for claims.

Promises: on two nodes with equal keys, the search takes the same steps. A key holds everything that the search reads,
per pool and in search order: the signature of each device, whether the device is free, and what is left of the pool's
counters. A key does not hold names of nodes, pools and devices, or devices that no request selects. It does not hold
devices in use either, unless a request reads them (mode All, admin access).

The signature of a device holds what the filters of requests say about it, the attributes that constraints compare, and
all other traits as a whole: a new field of the traits is part of it without a change here. Only ordinary attributes
that nothing reads are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import msgspec

from dra_extender.allocation.budget import UNLIMITED, Deferred, WorkBudget, ask_all
from dra_extender.allocation.requests import REMEMBERED_BYTES, DeviceFilter, PreparedClaims
from dra_extender.allocation.selection import suitability
from dra_extender.allocation.signatures import PoolSignature, PoolSignatures
from dra_extender.devices.content import WeakIdentityDict
from dra_extender.devices.holdings import PoolState, PoolStates
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.nodes import SeenNode, SeenPool
from dra_extender.devices.overlay import Overlay
from dra_extender.devices.pools import Pool

REMEMBERED: Final = 50_000
"""How many parts of keys, and signatures of devices, are remembered. A forgotten number is never given again."""

ENTRY_BYTES: Final = 1_024
"""What a signature, or a part of keys, takes with the results that rest on it."""

DEVICES_PER_UNIT: Final = 16

NOTHING: Final = 0
"""The part of pools that make no difference."""
INCOMPLETE, INVALID = -1, -2
"""Parts of pools without devices."""

NOT_SELECTED: Final = 0
"""The signature of devices that no request can have."""

EquivalenceKey = tuple[Hashable, ...]

Selected = tuple[tuple[int, int, int, bool], ...]
"""Devices of a pool that some request may have: index, signature, locality, True when it consumes counters."""


class NodeReads(msgspec.Struct, frozen=True):
    """What a decision reads of nodes: `filters` of requests, `attributes` of constraints (full names). `in_use`:
    devices in use as well; `exact`: all traits of devices, because expressions of derived attributes may read any.
    """

    filters: tuple[DeviceFilter, ...]
    attributes: tuple[str, ...]
    in_use: bool
    exact: bool = False

    @property
    def size(self) -> int:
        """How many bytes its filters count for."""
        return sum(filter.size for filter in self.filters)


def node_reads(prepared: PreparedClaims) -> NodeReads:
    asks = [ask for request in prepared.requests for ask in request.asks]
    attributes = {
        name
        for claim in prepared.claims
        for constraint in claim.constraints
        if (name := constraint.match_attribute or constraint.distinct_attribute)
    }
    attributes.update(name for name, _ in prepared.values)
    filters = tuple(dict.fromkeys(ask.filter for ask in asks))
    in_use = any(ask.all or ask.admin for ask in asks)
    return NodeReads(filters, tuple(sorted(attributes)), in_use, any(ask.derived for ask in asks))


class DeviceSignatures:
    def __init__(self, reads: NodeReads) -> None:
        self._reads = reads
        self._numbers: dict[Hashable, int] = {}
        self._next = count(NOT_SELECTED + 1)
        self._known: WeakIdentityDict[DeviceModel, int] = WeakIdentityDict()

    def of(self, model: DeviceModel, budget: WorkBudget = UNLIMITED) -> int:
        """The signature of devices with this model. Raises TurnSpent and Deferred."""
        known = self._known.get(id(model))
        return known.value if known is not None else self._known.put(model, self._number(model, budget))

    def __len__(self) -> int:
        return len(self._known)

    def prepare(self, models: Iterable[DeviceModel], budget: WorkBudget) -> None:
        """Evaluate the filters one after the other, because the cache may not hold all compiled selectors at once.
        Raises TurnSpent, and Deferred when the call ends here. Requests to workers are deferred.
        """
        new = [model for model in dict.fromkeys(models) if id(model) not in self._known]
        for filter in self._reads.filters if len(new) > 1 else ():
            for model in new:
                try:
                    suitability(model, filter, budget)
                except Deferred:
                    budget.spend(0)  # a spent turn ends, and so does the call if it has no other turn

    def _number(self, model: DeviceModel, budget: WorkBudget) -> int:
        reads = self._reads
        suitabilities = tuple(
            (found.lost, found.selected, found.takes, found.failure is not None)
            for found in (suitability(model, filter, budget) for filter in reads.filters)
        )
        budget.spend(2 * len(reads.filters))  # for the look-ups: a turn that ends before has kept the answers
        if not any(selected or failure for _, selected, _, failure in suitabilities):
            return NOT_SELECTED
        attributes = tuple(
            [(name, value) for name in reads.attributes if (value := model.traits.attribute(name)) is not None]
        )
        content = suitabilities, attributes, model if reads.exact else model.bare
        number = self._numbers.get(content)
        if number is None:
            if len(self._numbers) >= REMEMBERED:
                self._numbers.clear()
            number = self._numbers[content] = next(self._next)
        return number


@dataclass(slots=True, eq=False)
class _PoolParts:
    """`parts` are the numbers of a pool signature in keys, by state of the pool."""

    devices: Selected | None = None
    parts: dict[PoolState, int] = field(default_factory=dict)


class EquivalenceKeys:
    """Claims with equal reads share the keys. `pools`: signatures of pools, made for what these reads read. Several
    objects of this class may share them.
    """

    def __init__(self, reads: NodeReads, *, pools: PoolSignatures, states: PoolStates) -> None:
        self.reads = reads
        self._devices = DeviceSignatures(reads)
        self._pools = pools
        self._states = states
        self._numbers: dict[Hashable, int] = {}
        self._selected: dict[Selected, Selected] = {}
        self._parts: WeakIdentityDict[PoolSignature, _PoolParts] = WeakIdentityDict()
        self._remembered = 0
        self._next = count(1)

    @property
    def size(self) -> int:
        """The bytes that the filters count for, and an estimate for signatures and parts, which grow with the nodes."""
        return self.reads.size + ENTRY_BYTES * (len(self._devices) + self._remembered)

    def of(
        self, seen: SeenNode, ledger: Ledger, overlay: Overlay | None = None, budget: WorkBudget = UNLIMITED
    ) -> EquivalenceKey:
        """Of an up-to-date node, in the state of the ledger, or of the overlay on it. Raises TurnSpent, and Deferred
        after all requests to workers were deferred.
        """
        if seen.error:
            return (seen.error,)
        signatures, parts, revision = self._pools.known, self._parts, ledger.revision
        found: list[int] = []
        for seen_pool in seen.pools:
            pool = seen_pool.pool
            if pool is not None:
                listed = signatures.get(id(seen_pool))
                signature = listed.value if listed is not None else self._pools.of(seen_pool, pool, budget)
                state = seen_pool.state if overlay is None and seen_pool.revision == revision(pool.id) else None
                if state is None:
                    state = self._state(seen_pool, pool, ledger, overlay, budget)
                known = parts.get(id(signature))
                part = known.value.parts.get(state) if known is not None else None
                if part is None:
                    part = self._part(signature, state, budget)
                if part != NOTHING:
                    found.append(part)
        return tuple(found)

    def _state(
        self, seen_pool: SeenPool, pool: Pool, ledger: Ledger, overlay: Overlay | None, budget: WorkBudget
    ) -> PoolState:
        if overlay is not None and pool.id in overlay.touched:
            if pool not in overlay.states:
                overlay.states[pool] = self._states.of(pool, overlay.holdings(pool.id))
            return overlay.states[pool]
        revision = ledger.revision(pool.id)
        if seen_pool.state is None or seen_pool.revision != revision:
            budget.spend((len(pool.names) + len(pool.consumers)) // DEVICES_PER_UNIT)
            seen_pool.revision, seen_pool.state = revision, self._states.of(pool, ledger.holdings(pool.id))
        return seen_pool.state

    def _part(self, signature: PoolSignature, state: PoolState, budget: WorkBudget) -> int:
        """A number for what the search can read of a pool."""
        if self._remembered >= REMEMBERED:
            self._parts.clear()
            self._numbers.clear()
            self._selected.clear()
            self._remembered = 0
        known = self._parts.get(id(signature))
        parts = known.value if known is not None else self._parts.put(signature, _PoolParts())
        content = self._content(signature, state, parts, budget)
        if isinstance(content, int):
            number = content
        else:
            number = self._numbers.get(content, 0) or next(self._next)
            self._numbers[content] = number
        parts.parts[state] = number
        self._remembered += 1
        return number

    def _content(
        self, signature: PoolSignature, state: PoolState, parts: _PoolParts, budget: WorkBudget
    ) -> tuple[Hashable, ...] | int:
        if signature.invalid:
            return INVALID
        if signature.incomplete:
            return INCOMPLETE if self.reads.in_use else NOTHING
        budget.spend(1 + len(signature.devices) // 2)
        if parts.devices is None:
            selected = self._select(signature, budget)
            parts.devices = self._selected.setdefault(selected, selected)
        devices: list[Hashable] = []
        consuming, in_use, all_owned = False, self.reads.in_use, state.owned
        for index, device, locality, consumes in parts.devices:
            owned = bool(all_owned >> index & 1)
            if owned and not in_use:
                continue
            used = state.shared.get(index)
            devices.append((device, owned, locality, used) if owned or locality or used is not None else device)
            consuming = consuming or consumes
        if not devices:
            return NOTHING
        return (*devices, state.left) if consuming and signature.counted else tuple(devices)

    def _select(self, signature: PoolSignature, budget: WorkBudget) -> Selected:
        """The devices that some request may have. Raises TurnSpent, and Deferred after all requests to workers were
        deferred.
        """
        if self.reads.size > REMEMBERED_BYTES:
            self._devices.prepare((model for model, _ in signature.devices), budget)
        numbers = ask_all(lambda device: self._devices.of(device[0], budget), signature.devices)
        devices = enumerate(zip(signature.devices, numbers, strict=True))
        return tuple(
            [
                (index, number, locality, bool(model.traits.consumes))
                for index, ((model, locality), number) in devices
                if number != NOT_SELECTED
            ]
        )
