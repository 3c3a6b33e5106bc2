"""Allocated state: which devices are taken, which are shared, and how much of them is consumed.

Promises: immutable snapshots. Results with admin access hold nothing; a result with a share ID is a share when
consumable capacity is on; everything else owns its device. Amounts are exact integers in nano units. A share that was
recorded without consumed capacity still counts as use of the device (upstream forgets it and charges counters twice).

Rules: Kubernetes 1.36, structured/internal/allocatedstate.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dra_extender.api.features import FeatureGates
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.nodeview import NodeView
from dra_extender.devices.pools import Pool
from dra_extender.devices.uses import EVERY_DEVICE, PoolID, uses_of

Amounts = Mapping[str, int]
"""Capacity name -> nano units."""

NO_AMOUNTS: Final[Amounts] = {}


class PoolHoldings:
    """What is held in one pool, by device name: `owned` devices, and what all shares of a device consume together."""

    __slots__ = ("owned", "shared")

    def __init__(self, owned: Iterable[str] = (), shared: Mapping[str, Amounts] | None = None) -> None:
        self.owned = frozenset(owned)
        self.shared: Mapping[str, Amounts] = shared or {}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PoolHoldings)
            and self.owned == other.owned
            and {name: _present(amounts) for name, amounts in self.shared.items()}
            == {name: _present(amounts) for name, amounts in other.shared.items()}
        )

    __hash__ = None  # type: ignore[assignment]  # compared in tests only


def _present(amounts: Amounts) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


PartUse = tuple[str | None, Mapping[str, Quantity]]
"""A share ID (None: the whole device) and what the share consumes."""


def holdings_of(claims: Iterable[ResourceClaim], features: FeatureGates) -> dict[PoolID, PoolHoldings]:
    """The state made by all claims with an allocation, whoever wrote it, being deleted or not."""
    uses: dict[PoolID, dict[str, list[PartUse]]] = {}
    for claim in claims:
        for (device, share), consumed in uses_of(claim.allocation, shares=features.DRAConsumableCapacity).items():
            uses.setdefault(device[:2], {}).setdefault(device[2], []).append((share, consumed))
    return {pool: pool_holdings(devices) for pool, devices in uses.items()}


def pool_holdings(uses: Mapping[str, Iterable[PartUse]]) -> PoolHoldings:
    """The holdings of one pool from the uses of its devices, by device name."""
    owned: set[str] = set()
    shared: dict[str, Amounts] = {}
    for name, parts in uses.items():
        sums: dict[str, int] | None = None
        for share, consumed in parts:
            if share is None:
                owned.add(name)
                continue
            if sums is None:
                sums = {}
            for capacity, amount in consumed.items():
                sums[capacity] = sums.get(capacity, 0) + amount.nano
        if sums is not None:
            shared[name] = sums
    return PoolHoldings(owned, shared)


def together(first: PoolHoldings | None, second: PoolHoldings) -> PoolHoldings:
    """What is held when both are."""
    if first is None:
        return second
    shared = dict(first.shared)
    for name, amounts in second.shared.items():
        sums = dict(shared.get(name, NO_AMOUNTS))
        for capacity, amount in amounts.items():
            sums[capacity] = sums.get(capacity, 0) + amount
        shared[name] = sums
    return PoolHoldings(first.owned | second.owned, shared)


class NodeHoldings:
    """Holdings as masks and amounts over one node view. Immutable.

    `owned`: devices somebody has exclusively. `shared`: consumed amounts by bit, for devices with shares.
    `counters`: what is left, by pool index, set and counter; negative when overdrawn. Pools without counter sets have
    no entry.
    """

    __slots__ = ("counters", "owned", "shared")

    def __init__(self, view: NodeView, pools: Mapping[PoolID, PoolHoldings]) -> None:
        owned = 0
        shared: dict[int, Amounts] = {}
        counters: dict[int, Mapping[str, Mapping[str, int]]] = {}
        for index, pool in enumerate(view.pools):
            held = pools.get(pool.id)
            if pool.counters:
                counters[index] = remaining_counters(pool, held)
            if held is None or not pool.names:
                continue
            bits = view.bits
            if EVERY_DEVICE in held.owned:
                owned |= (1 << len(pool.names)) - 1 << view.offsets[index]
            for name in held.owned:
                bit = bits.get((*pool.id, name))
                if bit is not None:
                    owned |= 1 << bit
            for name, amounts in held.shared.items():
                bit = bits.get((*pool.id, name))
                if bit is not None:
                    shared[bit] = amounts
        self.owned = owned
        self.shared = shared
        self.counters = counters


def remaining_counters(pool: Pool, held: PoolHoldings | None) -> Mapping[str, Mapping[str, int]]:
    """What the counter sets of the pool still offer. Every device in use is charged once, also one of another node."""
    if held is None:
        return pool.counters
    left: dict[str, dict[str, int]] | None = None
    for name, consumes in pool.consumers:
        if name in held.owned or name in held.shared:
            if left is None:
                left = {set_name: dict(counters) for set_name, counters in pool.counters.items()}
            for set_name, counter, amount in consumes:
                if counter in left.get(set_name, ()):
                    left[set_name][counter] -= amount
    return pool.counters if left is None else left
