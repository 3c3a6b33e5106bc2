"""All state that decisions read: what exists (inventory) and who holds it (ledger).

Promises: one writer, the event loop. Every change tells whether a pod that was refused may fit now. Objects that cannot
be read are remembered in `problems` and count as absent, except claims: their last readable version keeps its devices,
and so does what can be read of their allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from dra_extender.api.core import Node
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.api.partial import PartialAllocation
from dra_extender.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dra_extender.devices.inventory import Inventory
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.placeholders import Placeholders, is_placeholder
from dra_extender.devices.problems import Problem, unreadable

Watched = Node | ResourceSlice | DeviceClass | DeviceTaintRule | ResourceClaim


class Cluster:
    """See the module."""

    def __init__(self, features: FeatureGates) -> None:
        self.features = features
        self.inventory = Inventory(features)
        self.ledger = Ledger(features, self.inventory, self.inventory.nodes.use_changed)
        self._unreadable: dict[ObjectKey, str] = {}
        self._placeholders = Placeholders(self.ledger, self.inventory.pools_of)

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        return self.inventory.classes

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self.inventory.nodes

    @property
    def knows(self) -> Callable[[str], bool]:
        """Whether there is a node of this name. Faster than looking into `nodes`, which filter does for thousands."""
        return self.inventory.nodes.index.__contains__

    def apply(self, obj: Watched, *, after_gap: bool = False) -> bool:
        """An object as the watch shows it. True when a pod that was refused may fit now. `after_gap`: versions of the
        object before this one may have been missed.
        """
        recovered = self._unreadable.pop(ObjectKey(type(obj).__name__, obj.metadata.key), None) is not None
        match obj:
            case ResourceClaim():
                improved = self._observe(obj, watched=True, after_gap=after_gap)
                return self._placeholders.drop(obj.metadata.key) or improved or recovered
            case ResourceSlice():
                improved = self.inventory.put_slice(obj)
                if obj.spec.node_name:
                    self._placeholders.published(obj.spec.node_name)
                return improved
            case Node():
                return self.inventory.put_node(obj)
            case DeviceClass():
                return self.inventory.put_class(obj)
            case DeviceTaintRule():
                return self.inventory.put_rule(obj)

    def learn(self, claim: ResourceClaim) -> bool:
        """A claim as the reply to a read or write of ours shows it. True when a pod that was refused may fit now."""
        return self._observe(claim)

    def remove(self, obj: Watched) -> bool:
        """An object is gone. True when a pod that was refused may fit now."""
        self._unreadable.pop(ObjectKey(type(obj).__name__, obj.metadata.key), None)
        return self._remove(type(obj), obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)

    def poison(self, kind: str, key: str, problem: str, partial: PartialAllocation | None = None) -> bool:
        """An object (`namespace/name` or `name`) that cannot be read. True when a refused pod may fit without it.
        `partial`: what it holds, if it is a claim.
        """
        if partial is not None:
            problem += _withheld(partial)
        self._unreadable[ObjectKey(kind, key)] = problem
        if partial is not None:
            return self._placeholders.put(key, partial)
        for known in (Node, ResourceSlice, DeviceClass, DeviceTaintRule):
            if known.__name__ == kind:
                return self._remove(known, "", key, "")
        return False

    def heal(self, kind: str, key: str) -> bool:
        """An object that could not be read can be again, or is gone: there is nothing to say about it any more. True
        when a pod that was refused may fit now.
        """
        known = self._unreadable.pop(ObjectKey(kind, key), None) is not None
        return kind == ResourceClaim.__name__ and (self._placeholders.drop(key) or known)

    def claim(self, key: str) -> ResourceClaim | None:
        """A claim that somebody made, by `namespace/name`, as it could be read last."""
        return None if is_placeholder(key) else self.ledger.by_key(key)

    def _remove(self, kind: type[Watched], namespace: str, name: str, uid: str) -> bool:
        if kind is ResourceClaim:
            return self.ledger.forget(namespace, name, uid)
        if kind is ResourceSlice:
            return self.inventory.drop_slice(name)
        if kind is Node:
            return self.inventory.drop_node(name)
        if kind is DeviceClass:
            return self.inventory.drop_class(name)
        return self.inventory.drop_rule(name)

    def _observe(self, claim: ResourceClaim, *, watched: bool = False, after_gap: bool = False) -> bool:
        """Besides freed devices: a claim somebody may wait for exists now, or has been allocated, or has room again.

        A version that is older than the one known, as watches bring after our own replies, is news to nobody.
        """
        before, in_flight = self.ledger.by_uid(claim.metadata.uid), self.ledger.held(claim.metadata.uid)
        freed = self.ledger.observe(claim, watched=watched, after_gap=after_gap)
        if before is None:
            return True
        now = self.ledger.by_uid(claim.metadata.uid) or claim
        settled = in_flight is not None and self.ledger.held(claim.metadata.uid) is None
        allocated = before.allocation is None and now.allocation is not None
        shared = now.metadata.controller is None
        return freed or (shared and (settled or allocated)) or _shrunk(before, now) or _got_ready(before, now)

    @property
    def unreadable(self) -> Mapping[ObjectKey, str]:
        """Why these objects cannot be read."""
        return self._unreadable

    @property
    def placeholders(self) -> Placeholders:
        """Who holds the devices of claims that cannot be read."""
        return self._placeholders

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong with objects, by object: those that cannot be read, and slices that make pools unusable."""
        found = [unreadable(key, why) for key, why in self._unreadable.items()]
        return sorted(chain(found, self.inventory.problems()))


def _withheld(partial: PartialAllocation) -> str:
    """What has to be said of devices that cannot be told."""
    if partial.complete:
        return ""
    pools = (f"pool {'/'.join(pool)}" for pool in partial.pools)
    kept = ", ".join(chain(pools, (f"the pools of node {name}" for name in partial.nodes)))
    if kept:
        return f"; it may hold devices that cannot be told, so nothing is offered of {kept}"
    return "; it may hold devices that cannot be told, and that others are given"


def _shrunk(before: ResourceClaim, after: ResourceClaim) -> bool:
    """Whether the claim has fewer consumers: it may be at its limit, or be free to go elsewhere."""
    return len(after.status.reserved_for) < len(before.status.reserved_for)


def _got_ready(before: ResourceClaim, after: ResourceClaim) -> bool:
    """Whether a driver has reported something of devices that have to become ready, after their time perhaps."""
    if after.allocation is None or before.status.devices == after.status.devices:
        return False
    return any(result.binding_conditions for result in after.allocation.devices.results)
