"""Conflicts between stored allocations, and the claims that are involved.

Promises: `rivals` and `involving` look once at each device of one claim. If they consume counters, the devices in use
in their pools are summed once per change of the pool; they are looked at again only if they overdraw a counter.
`rivals` and `involving` look at the sharers of a device only if it has an owner, or if all shares together exceed a
capacity. `violations` looks at everything. None trusts that devices are still published: what is not published has no
limits.

Limits: a device has one owner or shares, not both; the shares of a device consume at most its capacity; the devices
in use in a pool consume at most its counters. Admin access takes no part (Kubernetes 1.36,
structured/internal/allocatedstate.go).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import chain
from typing import Literal

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import AllocationResult, CounterSet, Device, DeviceID, ResourceClaim
from dra_extender.devices.models import CounterID, counters_consumed
from dra_extender.devices.nodeselection import only_node
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import EVERY_DEVICE, DeviceUse, PoolID, PoolUse, UsageIndex, Uses

Stored = Callable[[str], tuple[ResourceClaim, Uses] | None]
"""The stored claim with this UID and what it uses; None when only a hold is known."""


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


class Auditor:
    """Looks for conflicts in a usage index. Holds in the index are left out: only what `stored` knows counts."""

    def __init__(self, usage: UsageIndex, pool_of: PoolOf, stored: Stored) -> None:
        self._usage = usage
        self._pool_of = pool_of
        self._stored = stored

    def rivals(self, uid: str, uses: Uses, node: str, eligible: Callable[[str], bool]) -> list[str]:
        """UIDs of the eligible stored claims in conflict with `uses` of claim `uid` on the node, sorted."""

        def counts(other: str) -> bool:
            return other != uid and self._stored(other) is not None and eligible(other)

        found: set[str] = set()
        devices = {device for device, _ in uses}
        for device in devices:
            use = self._usage.device(device)
            if use is None:
                continue
            found |= {owner for owner in use.owners if self._owns(owner, device) and counts(owner)}
            owns = (device, None) in uses
            if owns or self._may_be_overdrawn(device, use, node):
                sharers = {user for user, _ in self._shares(device) if counts(user)}
                if owns or self._overdrawn_capacity(device, (node,), {uid} | sharers):
                    found |= sharers
        for pool in {device[:2] for device in devices}:
            found |= self._counter_rivals(pool, uid, uses, node, counts)
        return sorted(found)

    def _counter_rivals(self, pool: PoolID, uid: str, uses: Uses, node: str, counts: Callable[[str], bool]) -> set[str]:
        mine = {device[2] for device, _ in uses if device[:2] == pool}
        touched = {counter for name in mine for counter, _ in self._consumption((*pool, name), node)}
        if not touched or touched.isdisjoint(self._overdrawn_in_use(pool, node)):
            return set()  # not even with what is held or was allocated later
        users: dict[str, set[str]] = {}
        for name in self._devices_in(pool):
            consumers = {user for user in self._stored_users((*pool, name)) if user == uid or counts(user)}
            if consumers:
                users[name] = consumers
        found: set[str] = set()
        for counter in self._overdrawn_counters(pool, node, users):
            if counter in touched:
                for name, consumers in users.items():
                    if any(counter == consumed for consumed, _ in self._consumption((*pool, name), node)):
                        found |= consumers
        return found - {uid}

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

    def violations(self) -> tuple[Violation, ...]:
        found: list[Violation] = []
        for pool, use in self._usage.pools():
            for name in use.devices:
                found.extend(self._device_violations((*pool, name)))
            published = self._pool_of(pool)
            for node in published.vantages() if published is not None else ():
                found.extend(self._counter_violations(pool, node, use))
        return tuple(sorted(set(found)))

    def involving(self, claim: str, uses: Uses, node: str) -> tuple[Violation, ...]:
        """Those of `violations` in which the stored claim (namespace/name) with these uses takes part, by what its own
        node sees.
        """
        found: list[Violation] = []
        devices = {device for device, _ in uses}
        for device in devices:
            found.extend(self._device_violations(device, node))
        for pool in {device[:2] for device in devices if any(self._consumption(device, node))}:
            use = self._usage.pool(pool)
            if use is not None:
                found.extend(self._counter_violations(pool, node, use))
        return tuple(sorted(violation for violation in found if claim in violation.claims))

    def _device_violations(self, device: DeviceID, node: str | None = None) -> Iterator[Violation]:
        """By what this node sees of the device, or what any node of its shares sees."""
        use = self._usage.device(device)
        if use is None or device[2] == EVERY_DEVICE:
            return
        if len(use.owners) < 2 and not (use.shares and (use.owners or self._may_be_overdrawn(device, use, node))):
            return  # fast path: almost all devices are like this
        owners = {owner for owner in use.owners if self._owns(owner, device)}
        sharers = {user for user, _ in self._shares(device)}
        subject = "/".join(device)
        if len(owners) > 1:
            yield Violation("device", subject, self._names(owners), f"allocated to {len(owners)} claims")
        if owners and sharers:
            yield Violation("mode", subject, self._names(owners | sharers), "allocated as a whole and in shares")
        nodes = {node_of(stored[0].allocation) for uid in sharers if (stored := self._stored(uid))}
        for name, total, limit in self._overdrawn_capacity(device, nodes if node is None else (node,), sharers):
            detail = f"capacity {name}: {total} consumed of {limit}"
            yield Violation("capacity", subject, self._names(sharers), detail)

    def _counter_violations(self, pool: PoolID, node: str, use: PoolUse) -> Iterator[Violation]:
        if not any(self._counter_sets(pool, node)) or not self._overdrawn_in_use(pool, node):
            return
        users = {name: found for name in use.devices if (found := set(self._stored_users((*pool, name))))}
        for counter, (total, limit) in self._overdrawn_counters(pool, node, users).items():
            involved = {
                user
                for name, found in users.items()
                if any(counter == consumed for consumed, _ in self._consumption((*pool, name), node))
                for user in found
            }
            detail = f"counter {counter[0]}/{counter[1]}: {total} consumed of {limit}"
            yield Violation("counter", "/".join(pool), self._names(involved), detail)

    def _owns(self, uid: str, device: DeviceID) -> bool:
        stored = self._stored(uid)
        return stored is not None and (device, None) in stored[1]

    def _shares(self, device: DeviceID) -> Iterator[tuple[str, Mapping[str, Quantity]]]:
        """The stored shares of the device: claim UID and consumed capacity."""
        use = self._usage.device(device)
        for uid, share in use.shares if use else ():
            stored = self._stored(uid)
            consumed = stored[1].get((device, share)) if stored is not None else None
            if consumed is not None:
                yield uid, consumed

    def _stored_users(self, device: DeviceID) -> Iterator[str]:
        use = self._usage.device(device)
        yield from (owner for owner in use.owners if self._owns(owner, device)) if use else ()
        yield from (user for user, _ in self._shares(device))

    def _devices_in(self, pool: PoolID) -> Iterable[str]:
        use = self._usage.pool(pool)
        return use.devices if use else ()

    def _names(self, uids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(stored[0].metadata.key for uid in uids if (stored := self._stored(uid)) is not None))

    def _may_be_overdrawn(self, device: DeviceID, use: DeviceUse, node: str | None) -> bool:
        """Whether all shares together, held ones included, consume more of a capacity than this node sees; without a
        node, whether they consume any.
        """
        published = self._device(device, node) if node is not None and use.consumed else None
        if published is None:
            return node is None and bool(use.consumed)
        limits = ((published.capacity.get(name), amount) for name, amount in use.consumed.items())
        return any(limit is not None and amount > limit.value.nano for limit, amount in limits)

    def _overdrawn_capacity(
        self, device: DeviceID, nodes: Iterable[str], users: set[str]
    ) -> list[tuple[str, Quantity, Quantity]]:
        """(name, consumed, value) of the capacities that the shares of `users` overdraw, by what these nodes see."""
        found = [self._device(device, node) for node in nodes]
        published = {id(item): item for item in found if item is not None}
        if not published or not users:
            return []
        totals: dict[str, Quantity] = {}
        for uid, consumed in self._shares(device):
            if uid in users:
                for name, amount in consumed.items():
                    totals[name] = totals[name] + amount if name in totals else amount
        return [
            (name, total, capacity.value)
            for item in published.values()
            for name, total in sorted(totals.items())
            if (capacity := item.capacity.get(name)) is not None and total > capacity.value
        ]

    def _consumption(self, device: DeviceID, node: str) -> Iterator[tuple[CounterID, Quantity]]:
        published = self._device(device, node)
        return counters_consumed(published) if published is not None else iter(())

    def _device(self, device: DeviceID, node: str) -> Device | None:
        pool = self._pool_of(device[:2])
        return pool.device(device[2], node) if pool is not None else None

    def _counter_sets(self, pool: PoolID, node: str) -> Iterable[CounterSet]:
        published = self._pool_of(pool)
        return published.counter_sets(node) if published is not None else ()

    def _overdrawn_in_use(self, pool: PoolID, node: str) -> frozenset[CounterID]:
        """The counters that all devices in use overdraw, held ones included."""
        use, published = self._usage.pool(pool), self._pool_of(pool)
        if use is None or published is None:
            return frozenset()
        slices = published.generations()
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
        for counter_set in self._counter_sets(pool, node) if consumed else ():
            for name, limit in counter_set.counters.items():
                amounts = consumed.get((counter_set.name, name))
                if amounts and sum(amount.nano for amount in amounts) > limit.value.nano:
                    overdrawn[counter_set.name, name] = reduce(Quantity.__add__, amounts), limit.value
        return overdrawn
