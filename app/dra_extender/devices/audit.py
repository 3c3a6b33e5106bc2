"""Conflicts between stored allocations, and the claims that are involved.

Promises: `rivals` looks once at each device of one claim. If they consume counters, the devices in use in their pools
are summed once per change of the pool; they are looked at again only if they overdraw a counter. The sharers of a
device are looked at only if it has an owner, or if all shares together exceed a capacity. `violations` looks at all
devices in use; `owned_twice` looks once at each device of one claim, and at no share. None trusts that devices are
still published: what is not published has no limits.

Limits: a device has one owner or shares, not both; the shares of a device consume at most its capacity; the devices
in use in a pool consume at most its counters. Admin access takes no part (Kubernetes 1.36,
structured/internal/allocatedstate.go).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, reduce
from itertools import chain
from typing import Final, Literal

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import AllocationResult, Device, DeviceID, ResourceClaim
from dra_extender.devices.models import CounterID, counters_consumed
from dra_extender.devices.nodeselection import only_node
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import EVERY_DEVICE, DeviceUse, PoolID, UsageIndex, Uses

Stored = Callable[[str], tuple[ResourceClaim, Uses] | None]
"""The stored claim with this UID and what it uses; None when only a hold is known."""

Compare = Callable[[int], bool]
"""Asked before amounts are added up, with the units of work. False: capacity and counters do not matter."""

OWNERS: Final = 16
"""A device with more owners is left to `violations`."""
PORTION: Final = 1_000
"""Devices in use that `violations` looks at in one part."""
PER_SHARE: Final = 2
"""Units of work for each share of a device whose capacity is overdrawn."""
PER_DEVICE: Final = 10
"""Units of work for each device of a claim, and for each device in use of a pool whose counters are overdrawn."""

PoolOf = Callable[[PoolID], PublishedPool | None]
"""What drivers say about a pool. Of a node, the newest generation for it counts; without a node (an empty name), slices
that are a node's own count only if the pool has no others.
"""


def node_of(allocation: AllocationResult | None) -> str:
    """The node of an allocation for one node; empty for any other allocation."""
    selector = allocation.node_selector if allocation is not None else None
    return (only_node(selector) or "") if selector is not None else ""


class Violation(msgspec.Struct, frozen=True, order=True):
    """`subject`: driver/pool/device, or driver/pool for counters. `claims`: namespace/name of everybody involved,
    sorted.
    """

    kind: Literal["device", "mode", "capacity", "counter"]
    subject: str
    claims: tuple[str, ...]
    detail: str


@dataclass(slots=True, eq=False)
class Auditor:
    """Looks for conflicts in a usage index. Holds in the index are left out: only what `_stored` knows counts."""

    _usage: UsageIndex
    _pool_of: PoolOf
    _stored: Stored

    def rivals(
        self, uid: str, uses: Uses, node: str, eligible: Callable[[str], bool], compare: Compare = lambda work: True
    ) -> Iterator[str]:
        """UIDs of the eligible stored claims in conflict with `uses` of claim `uid` on the node; one may come again."""

        @cache
        def counts(other: str) -> bool:
            return other != uid and self._stored(other) is not None and eligible(other)

        devices = {device for device, _ in uses}
        for device in devices:
            use = self._usage.device(device)
            if use is None:
                continue
            yield from (owner for owner in use.owners if self._owns(owner, device) and counts(owner))
            if (device, None) in uses:
                yield from (user for user, _ in self._shares(device) if counts(user))
            elif self._may_be_overdrawn(device, use, node) and compare(PER_SHARE * len(use.shares)):
                shares = [(user, consumed) for user, consumed in self._shares(device) if user == uid or counts(user)]
                if self._overdrawn_capacity(device, (node,), [consumed for _, consumed in shares]):
                    yield from (user for user, _ in shares if user != uid)
        for pool in {device[:2] for device in devices}:
            consumed = (self._consumption(device, node) for device in devices if device[:2] == pool)
            touched = {counter for counter, _ in chain.from_iterable(consumed)}
            if not touched or touched.isdisjoint(self._overdrawn_in_use(pool, node)):
                continue  # not even with what is held or was allocated later
            if compare(PER_DEVICE * len(self._devices_in(pool))):
                for _, _, users in self._overdrawn_by(pool, node, lambda user: user == uid or counts(user), touched):
                    yield from users - {uid}

    def state_of(self, pools: Set[PoolID]) -> Hashable:
        """Changes whenever conflicts in these pools may: with what is used of them, or published."""
        found = [(pool, self._usage.pool(pool), self._pool_of(pool)) for pool in pools]
        return frozenset([(pool, use and use.touched, slices and slices.generations) for pool, use, slices in found])

    def is_unverifiable(self, uid: str, uses: Uses, node: str) -> bool:
        """Whether claim `uid` uses something without known limits in a pool that other stored claims use as well, or of
        a pool of which another claim may have any device.
        """
        devices = {device for device, _ in uses}
        asked = {(*device[:2], EVERY_DEVICE) for device in devices}
        pools = {device[:2] for device in devices if not self._has_limits(device, node)}
        others = ((*pool, name) for pool in pools for name in self._devices_in(pool))
        return any(user != uid for device in chain(asked, others) for user in self._stored_users(device))

    def _has_limits(self, device: DeviceID, node: str) -> bool:
        """Whether the device is published, and, when it consumes counters, all other devices of its pool are too."""
        pool = self._pool_of(device[:2])
        published = pool.device(device[2], node) if pool is not None else None
        return pool is not None and published is not None and (not published.consumes_counters or pool.is_whole(node))

    def violations(self) -> Iterator[Sequence[Violation]]:
        """All conflicts, in parts: each is of one state, and looks into one device, or at `PORTION` devices."""
        looked = 0
        for pool, _ in list(self._usage.pools()):
            for name in list(self._devices_in(pool)):
                device, looked = (*pool, name), looked + 1
                use = self._usage.device(device) or DeviceUse()
                suspect = len(use.owners) > 1 or (use.owners and use.shares) or self._may_be_overdrawn(device, use)
                if suspect or not looked % PORTION:  # almost no device is suspect
                    yield tuple(self._device_violations(device, use)) if suspect and name != EVERY_DEVICE else ()
            published = self._pool_of(pool)
            for node in published.node_per_generation() if published is not None else ():
                looked += 1
                found = tuple(self._counter_violations(pool, node))
                if found or not looked % PORTION:
                    yield found

    def owned_twice(self, uses: Uses) -> Iterator[Violation]:
        """The `violations` about devices that the claim with these uses owns, and others too."""
        for device, share in uses:
            use = self._usage.device(device) if share is None and device[2] != EVERY_DEVICE else None
            if use is not None and 1 < len(use.owners) <= OWNERS:
                yield from self._owner_violations(device, self._owners(device, use))

    def _owner_violations(self, device: DeviceID, owners: Set[str]) -> Iterator[Violation]:
        if len(owners) > 1:
            yield Violation("device", "/".join(device), self._names(owners), f"allocated to {len(owners)} claims")

    def _device_violations(self, device: DeviceID, use: DeviceUse) -> Iterator[Violation]:
        """By what any node of its shares sees of the device."""
        owners = self._owners(device, use)
        shares = list(self._shares(device))
        sharers = {user for user, _ in shares}
        subject = "/".join(device)
        yield from self._owner_violations(device, owners)
        if owners and sharers:
            yield Violation("mode", subject, self._names(owners | sharers), "allocated as a whole and in shares")
        nodes = {node_of(stored[0].allocation) for uid in sharers if (stored := self._stored(uid))}
        for name, limit in self._overdrawn_capacity(device, nodes, [consumed for _, consumed in shares]):
            total = reduce(Quantity.__add__, [consumed[name] for _, consumed in shares if name in consumed])
            detail = f"capacity {name}: {total} consumed of {limit}"
            yield Violation("capacity", subject, self._names(sharers), detail)

    def _counter_violations(self, pool: PoolID, node: str) -> Iterator[Violation]:
        if overdrawn := self._overdrawn_in_use(pool, node):
            for counter, amounts, users in self._overdrawn_by(pool, node, lambda user: True, overdrawn):
                detail = f"counter {counter[0]}/{counter[1]}: {amounts[0]} consumed of {amounts[1]}"
                yield Violation("counter", "/".join(pool), self._names(users), detail)

    def _overdrawn_by(
        self, pool: PoolID, node: str, counts: Callable[[str], bool], counters: Set[CounterID]
    ) -> Iterator[tuple[CounterID, tuple[Quantity, Quantity], set[str]]]:
        """Those of the counters that the stored users that count overdraw, with (consumed, value) and the users."""
        users = {name: set(filter(counts, self._stored_users((*pool, name)))) for name in self._devices_in(pool)}
        used = [name for name, found in users.items() if found]
        for counter, amounts in self._overdrawn_counters(pool, node, used).items():
            if counter in counters:
                consuming = (name for name in used if counter in dict(self._consumption((*pool, name), node)))
                yield counter, amounts, set().union(*map(users.__getitem__, consuming))

    def _owners(self, device: DeviceID, use: DeviceUse) -> Set[str]:
        return {owner for owner in use.owners if self._owns(owner, device)}

    def _owns(self, uid: str, device: DeviceID) -> bool:
        stored = self._stored(uid)
        return stored is not None and (device, None) in stored[1]

    def _shares(self, device: DeviceID) -> Iterator[tuple[str, Mapping[str, Quantity]]]:
        """The stored shares of the device: claim UID and consumed capacity."""
        use = self._usage.device(device)
        for (uid, share), consumed in use.shares.items() if use else ():
            stored = self._stored(uid)
            if stored is not None and (device, share) in stored[1]:
                yield uid, consumed

    def _stored_users(self, device: DeviceID) -> Iterator[str]:
        use = self._usage.device(device)
        yield from self._owners(device, use) if use else ()
        yield from (user for user, _ in self._shares(device))

    def _devices_in(self, pool: PoolID) -> Set[str]:
        use = self._usage.pool(pool)
        return use.devices.keys() if use else frozenset()

    def _names(self, uids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(stored[0].metadata.key for uid in uids if (stored := self._stored(uid)) is not None))

    def _may_be_overdrawn(self, device: DeviceID, use: DeviceUse, node: str | None = None) -> bool:
        """Whether all shares, held ones included, exceed a capacity that the node sees; without node, of any slice."""
        pool = self._pool_of(device[:2]) if use.consumed else None
        published = pool.device(device[2], node) if pool is not None and node is not None else None
        limits = pool.least(device[2]) if pool is not None and node is None else published.capacity if published else {}
        return any(name in limits and amount > limits[name].value.nano for name, amount in use.consumed.items())

    def _overdrawn_capacity(
        self, device: DeviceID, nodes: Iterable[str], shares: Sequence[Mapping[str, Quantity]]
    ) -> list[tuple[str, Quantity]]:
        """(name, value) of the capacities that these shares overdraw, by what these nodes see."""
        found = [self._device(device, node) for node in nodes]
        totals: defaultdict[str, int] = defaultdict(int)
        for share in shares:
            for name, amount in share.items():
                totals[name] += amount.nano
        return [
            (name, capacity.value)
            for item in {id(item): item for item in found if item is not None}.values()
            for name, total in sorted(totals.items())
            if (capacity := item.capacity.get(name)) is not None and total > capacity.value.nano
        ]

    def _consumption(self, device: DeviceID, node: str) -> Iterator[tuple[CounterID, Quantity]]:
        published = self._device(device, node)
        return counters_consumed(published) if published is not None else iter(())

    def _device(self, device: DeviceID, node: str) -> Device | None:
        pool = self._pool_of(device[:2])
        return pool.device(device[2], node) if pool is not None else None

    def _overdrawn_in_use(self, pool: PoolID, node: str) -> frozenset[CounterID]:
        """The counters that all devices in use overdraw, held ones included."""
        use, published = self._usage.pool(pool), self._pool_of(pool)
        if use is None or published is None:
            return frozenset()
        slices = published.generations
        if node not in use.overdrawn or use.overdrawn[node][0] is not slices:
            use.overdrawn[node] = slices, frozenset(self._overdrawn_counters(pool, node, use.devices))
        return use.overdrawn[node][1]

    def _overdrawn_counters(
        self, pool: PoolID, node: str, devices: Iterable[str]
    ) -> dict[CounterID, tuple[Quantity, Quantity]]:
        """Counter: (consumed by these devices, each once; value), for overdrawn counters."""
        consumed: defaultdict[CounterID, list[Quantity]] = defaultdict(list)
        for name in devices:
            for counter, amount in self._consumption((*pool, name), node):
                consumed[counter].append(amount)
        overdrawn: dict[CounterID, tuple[Quantity, Quantity]] = {}
        published = self._pool_of(pool)
        for counter_set in published.counter_sets(node) if consumed and published is not None else ():
            for name, limit in counter_set.counters.items():
                amounts = consumed.get((counter_set.name, name))
                if amounts and sum(amount.nano for amount in amounts) > limit.value.nano:
                    overdrawn[counter_set.name, name] = reduce(Quantity.__add__, amounts), limit.value
        return overdrawn
