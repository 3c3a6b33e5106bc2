"""What claims use: devices and shares of devices, by pool, and the sums of it that decisions read.

Promises: results with admin access use nothing; a result with a share ID is a share if consumable capacity is on;
everything else owns its device. Amounts are exact integers in nano units. A share without consumed capacity still
counts as use of the device (upstream forgets it and charges counters twice). A device that two claims name stays in use
until both release it. Every operation costs as much as the claim has devices. The `revision` of a pool grows exactly
when the use of one of its devices changes.

Rules: Kubernetes 1.36, dynamic-resource-allocation/structured/internal/allocatedstate.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dra_extender.api.features import FeatureGates
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import AllocationResult, DeviceID, ResourceClaim

PoolID = tuple[str, str]
"""(driver, pool name)."""

Use = tuple[DeviceID, str | None]
"""A device and the ID of the share of it; None stands for the whole device."""

Uses = Mapping[Use, Mapping[str, Quantity]]
"""What one claim uses, with the capacity each share consumes."""

EVERY_DEVICE: Final = "*"
"""In place of the name of a device, which it cannot be: its users may have any device of the pool."""

NOTHING: Mapping[str, Quantity] = {}


def uses_of(allocation: AllocationResult | None, *, shares: bool) -> dict[Use, Mapping[str, Quantity]]:
    """What an allocation takes away from others. `shares`: the gate DRAConsumableCapacity."""
    if allocation is None:
        return {}
    uses: dict[Use, Mapping[str, Quantity]] = {}
    for result in allocation.devices.results:
        if result.admin_access:
            continue
        if shares and result.share_id is not None:
            uses[result.id, result.share_id] = _taken(result.consumed_capacity)
        else:
            uses[result.id, None] = NOTHING
    return uses


def _taken(consumed: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """Without negative amounts, which would free what others hold. Other allocators may have written some."""
    if all(amount.nano >= 0 for amount in consumed.values()):
        return consumed
    return {name: amount for name, amount in consumed.items() if amount.nano >= 0}


Amounts = Mapping[str, int]
"""Capacity name -> nano units."""

NO_AMOUNTS: Final[Amounts] = {}


class PoolHoldings(msgspec.Struct, frozen=True):
    """What is held in one pool, by device name: `owned` devices, and what all shares of a device consume together."""

    owned: Set[str] = frozenset()
    shared: Mapping[str, Amounts] = {}


PartUse = tuple[str | None, Mapping[str, Quantity]]
"""A share ID (None: the whole device) and what the share consumes."""


def holdings_of(claims: Iterable[ResourceClaim], features: FeatureGates) -> dict[PoolID, PoolHoldings]:
    """The state that all claims with an allocation make, by any allocator, being deleted or not."""
    uses: dict[PoolID, dict[str, list[PartUse]]] = {}
    for claim in claims:
        for (device, share), consumed in uses_of(claim.allocation, shares=features.DRAConsumableCapacity).items():
            uses.setdefault(device[:2], {}).setdefault(device[2], []).append((share, consumed))
    return {pool: pool_holdings(devices) for pool, devices in uses.items()}


def pool_holdings(uses: Mapping[str, Iterable[PartUse]]) -> PoolHoldings:
    """The holdings of one pool from the uses of its devices, by device name."""
    owned: set[str] = set()
    shared: dict[str, dict[str, int]] = {}
    for name, parts in uses.items():
        for share, consumed in parts:
            if share is None:
                owned.add(name)
                continue
            sums = shared.setdefault(name, {})
            for capacity, amount in consumed.items():
                sums[capacity] = sums.get(capacity, 0) + amount.nano
    return PoolHoldings(owned, shared)


def together(first: PoolHoldings | None, second: PoolHoldings) -> PoolHoldings:
    """What is held when both are."""
    if first is None:
        return second
    shared = dict(first.shared)
    for name, amounts in second.shared.items():
        known = shared.get(name, NO_AMOUNTS)
        shared[name] = {**known, **{capacity: known.get(capacity, 0) + amount for capacity, amount in amounts.items()}}
    return PoolHoldings(first.owned | second.owned, shared)


@dataclass(eq=False, slots=True)
class DeviceUse:
    """The users of one device: claims (by UID) that own it, and shares by (claim UID, share ID). `share_ids`: how many
    claims have the share. `consumed`: what all shares consume together; replaced when that changes.
    """

    owners: set[str] = field(default_factory=set)
    shares: dict[tuple[str, str], Mapping[str, Quantity]] = field(default_factory=dict)
    share_ids: dict[str, int] = field(default_factory=dict)
    consumed: Amounts = field(default_factory=lambda: NO_AMOUNTS)

    def __bool__(self) -> bool:
        return bool(self.owners or self.shares)


@dataclass(eq=False, slots=True)
class PoolUse:
    """The devices of one pool that are in use, by name. A pool without any has no entry and counts as revision 0."""

    devices: dict[str, DeviceUse] = field(default_factory=dict)
    revision: int = 0
    touched: int = 0
    """Changes when what claims store of this use does, or how old that is. See `UsageIndex.touch`."""
    holdings: PoolHoldings | None = None
    """What the ledger made of the present revision."""
    overdrawn: dict[str, tuple[object, frozenset[tuple[str, str]]]] = field(default_factory=dict)
    """By node: slices, and the counters in them that all devices in use of the present revision overdraw."""


class UsageIndex:
    """All devices in use. `changed` is called with the pool after each change of its devices' use."""

    def __init__(self, changed: Callable[[PoolID], None]) -> None:
        self._changed = changed
        self._pools: dict[PoolID, PoolUse] = {}
        self.pool: Callable[[PoolID], PoolUse | None] = self._pools.get
        """What is in use of a pool. Not a method: it is asked of every node."""
        self._revision = 0

    def device(self, device: DeviceID) -> DeviceUse | None:
        pool = self._pools.get(device[:2])
        return pool.devices.get(device[2]) if pool else None

    def pools(self) -> Iterator[tuple[PoolID, PoolUse]]:
        return iter(self._pools.items())

    def replace(self, uid: str, before: Uses, after: Uses) -> bool:
        """The claim used `before` and uses `after` now. True when that frees something for others."""
        if before == after:
            return False
        freed = False
        touched: set[PoolID] = set()
        for use, consumed in before.items():
            if after.get(use) != consumed:
                self._remove(uid, use)
                touched.add(use[0][:2])
                freed = True
        for use, consumed in after.items():
            if before.get(use) != consumed:
                self._add(uid, use, consumed)
                touched.add(use[0][:2])
        for pool in touched:
            entry = self._pools[pool]
            if entry.devices:
                self._revision += 1
                entry.revision, entry.holdings, entry.overdrawn = self._revision, None, {}
            else:
                del self._pools[pool]
            self._changed(pool)
        return freed

    def touch(self, uses: Iterable[Use]) -> None:
        """What is stored of these uses has changed, or how old it is."""
        self._revision += 1
        for pool in {device[:2] for device, _ in uses}:
            if (entry := self._pools.get(pool)) is not None:
                entry.touched = self._revision

    def _add(self, uid: str, use: Use, consumed: Mapping[str, Quantity]) -> None:
        device, share = use
        pool = self._pools.setdefault(device[:2], PoolUse())
        entry = pool.devices.setdefault(device[2], DeviceUse())
        if share is None:
            entry.owners.add(uid)
        else:
            entry.shares[uid, share] = consumed
            _count(entry, share, consumed, 1)

    def _remove(self, uid: str, use: Use) -> None:
        device, share = use
        devices = self._pools[device[:2]].devices
        entry = devices[device[2]]
        if share is None:
            entry.owners.discard(uid)
        else:
            _count(entry, share, entry.shares.pop((uid, share)), -1)
        if not entry:
            del devices[device[2]]


def _count(use: DeviceUse, share: str, consumed: Mapping[str, Quantity], sign: int) -> None:
    """Count a share that came (`sign` 1) or went (-1)."""
    use.share_ids[share] = use.share_ids.get(share, 0) + sign
    if not use.share_ids[share]:
        del use.share_ids[share]
    if consumed:
        changed = {name: use.consumed.get(name, 0) + sign * amount.nano for name, amount in consumed.items()}
        use.consumed = {name: amount for name, amount in {**use.consumed, **changed}.items() if amount}
