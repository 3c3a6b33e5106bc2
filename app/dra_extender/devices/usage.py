"""Who uses which device, by pool: the index beneath the ledger.

Promises: set semantics with owners, so a device named by two claims stays in use until both let go. Every operation
costs as much as the claim has devices. A pool's `revision` grows exactly when the use of one of its devices changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import DeviceID
from dra_extender.devices.holdings import PoolHoldings
from dra_extender.devices.uses import PoolID, Use, Uses


class DeviceUse:
    """The users of one device: claims (by UID) that own it, and shares by (claim UID, share ID)."""

    __slots__ = ("owners", "shares")

    def __init__(self) -> None:
        self.owners: set[str] = set()
        self.shares: dict[tuple[str, str], Mapping[str, Quantity]] = {}

    def __bool__(self) -> bool:
        return bool(self.owners or self.shares)


class PoolUse:
    """The devices of one pool that are in use, by name. A pool without any has no entry and counts as revision 0."""

    __slots__ = ("devices", "holdings", "revision")

    def __init__(self) -> None:
        self.devices: dict[str, DeviceUse] = {}
        self.revision = 0
        self.holdings: PoolHoldings | None = None
        """What the ledger made of the present revision."""


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
                entry.revision, entry.holdings = self._revision, None
            else:
                del self._pools[pool]
            self._changed(pool)
        return freed

    def _add(self, uid: str, use: Use, consumed: Mapping[str, Quantity]) -> None:
        device, share = use
        pool = self._pools.setdefault(device[:2], PoolUse())
        entry = pool.devices.setdefault(device[2], DeviceUse())
        if share is None:
            entry.owners.add(uid)
        else:
            entry.shares[uid, share] = consumed

    def _remove(self, uid: str, use: Use) -> None:
        device, share = use
        devices = self._pools[device[:2]].devices
        entry = devices[device[2]]
        if share is None:
            entry.owners.discard(uid)
        else:
            entry.shares.pop((uid, share), None)
        if not entry:
            del devices[device[2]]
