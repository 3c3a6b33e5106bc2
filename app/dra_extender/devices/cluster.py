"""All state that decisions read: the devices (inventory), the claims that hold them (ledger), and the pods.

Promises: only `apply` changes the state, except for the holds of binds; only the event loop writes. An undecodable
object is reported as a problem and counts as absent. Claims and pods keep their last readable version instead, and a
claim also keeps the devices that can be read of its allocation.

An undecodable claim (`UndecodableObjects`) may hold devices. The devices that can be read of its allocation are added
as a placeholder allocation, whose claim has a name that no pod can use. If a device of a pool cannot be identified, no
device of that pool is offered. If the pool cannot be identified, no device is offered of the own pools of the
allocation's nodes, including pools that are published later.

`Continuity` says whether a list of claims or pods can follow what the state has of them. A list is a consistent read:
it shows everything that the API server had shown or confirmed before the list was requested. If a list does not, the
API server has been set back, for example by a backup that was restored. Only a reply that arrives while the list is
read may be ahead of it. Versions of different kinds are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from dra_extender.api.core import Node, Pod, PodDisruptionBudget
from dra_extender.api.errors import SetBackError
from dra_extender.api.events import Applied, ClusterEvent, PartialAllocation, Removed, Undecodable
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey, ObjectMeta
from dra_extender.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from dra_extender.api.scheduling import CoschedulingPodGroup, PodGroup
from dra_extender.devices.inventory import Inventory
from dra_extender.devices.ledger import Ledger, identity
from dra_extender.devices.pods import PodGroups, Pods
from dra_extender.devices.usage import EVERY_DEVICE, PoolID
from dra_extender.devices.validity import ObjectProblem

_MARK: Final = " (unreadable)"
"""No name of an object has a space in it."""

_ADVICE: Final[Mapping[str, str]] = {
    "ResourceSlice": "its devices are left out: the driver that publishes it has to correct or delete it",
    "DeviceClass": "claims that name it are refused: correct or delete it",
    "ResourceClaim": "pods that need it wait, and it keeps the devices that can be read of it: correct or delete it",
    "DeviceTaintRule": "its taints do not apply: correct or delete it",
    "Node": "pods with claims are not placed there: correct it",
    "Pod": "its last readable version still counts: correct or delete it",
    "PodDisruptionBudget": "its last readable version still counts: correct or delete it",
    "PodGroup": "it counts as absent: correct or delete it",
    "CoschedulingPodGroup": "it counts as absent: correct or delete it",
}


class UndecodableObjects(dict[ObjectKey, Undecodable]):
    """The last event of each object. `pools_of` has the pools in which a node has slices of its own."""

    def __init__(self, ledger: Ledger, pools_of: Callable[[str], Iterable[PoolID]]) -> None:
        super().__init__()
        self._ledger = ledger
        self._pools_of = pools_of
        self._placeholders: dict[ObjectKey, ResourceClaim] = {}
        self._of_node: dict[str, dict[ObjectKey, PartialAllocation]] = {}
        """By node, what may hold devices of pools in which the node has slices."""
        self.pods: Counter[str] = Counter()
        """How many of the objects are pods of a namespace."""

    @property
    def incomplete(self) -> int:
        """The number of claims that may hold devices that cannot be identified."""
        return sum(not partial.complete for _, partial in self._partials())

    @property
    def problems(self) -> Iterator[ObjectProblem]:
        return (
            ObjectProblem(key, f"cannot be read: {event.problem}{_withheld(event.partial)}", _ADVICE.get(key.kind, ""))
            for key, event in self.items()
        )

    def put(self, event: Undecodable) -> bool:
        """True when devices became free."""
        if event.key.kind == Pod.__name__ and event.key not in self:
            self.pods[event.key.name.partition("/")[0]] += 1
        self._forget_nodes(event.key)
        self[event.key], partial = event, event.partial
        if partial is None:
            return False
        for node in partial.nodes:
            self._of_node.setdefault(node, {})[event.key] = partial
        return self._hold(event.key, partial)

    def drop(self, key: ObjectKey) -> tuple[bool, bool]:
        """The object can be decoded, or is gone. Returns whether it was undecodable, and whether it freed devices."""
        self._forget_nodes(key)
        known = self.pop(key, None) is not None
        if known and key.kind == Pod.__name__:
            self.pods[key.name.partition("/")[0]] -= 1
        return known, self._release(key)

    def slice_published(self, node: str) -> None:
        """A slice of the node's own is published."""
        for key, partial in self._of_node.get(node, {}).items():
            self._hold(key, partial)

    def _forget_nodes(self, key: ObjectKey) -> None:
        known = self.get(key)
        for node in known.partial.nodes if known is not None and known.partial is not None else ():
            del self._of_node[node][key]
            if not self._of_node[node]:
                del self._of_node[node]

    def _partials(self) -> Iterator[tuple[ObjectKey, PartialAllocation]]:
        return ((key, event.partial) for key, event in self.items() if event.partial is not None)

    def _hold(self, key: ObjectKey, partial: PartialAllocation) -> bool:
        """Put a placeholder in the ledger for the devices that the last readable version does not have."""
        pools = dict.fromkeys([*partial.pools, *chain.from_iterable(map(self._pools_of, partial.nodes))])
        results = [*partial.results, *(DeviceRequestAllocationResult("", *pool, EVERY_DEVICE) for pool in pools)]
        if not partial.complete:
            results += _results(self._placeholders.get(key))
        readable = {result.id for result in _results(self._ledger.by_key(key.name))}
        left = tuple({result.id: result for result in results if result.id not in readable}.values())
        if not left:
            return self._release(key)
        namespace, _, name = key.name.rpartition("/")
        meta = ObjectMeta(name=name + _MARK, namespace=namespace, uid=(partial.uid or key.name) + _MARK)
        status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=left)))
        claim = self._placeholders[key] = ResourceClaim(metadata=meta, status=status)
        return self._ledger.observe(claim, watched=True)

    def _release(self, key: ObjectKey) -> bool:
        claim = self._placeholders.pop(key, None)
        return claim is not None and self._ledger.forget(claim.metadata.key)


def _results(claim: ResourceClaim | None) -> tuple[DeviceRequestAllocationResult, ...]:
    return claim.allocation.devices.results if claim is not None and claim.allocation is not None else ()


def _withheld(partial: PartialAllocation | None) -> str:
    """The part of a problem about devices that cannot be identified."""
    if partial is None or partial.complete:
        return ""
    pools = (f"pool {'/'.join(pool)}" for pool in partial.pools)
    withheld = ", ".join(chain(pools, (f"the pools of node {name}" for name in partial.nodes)))
    if withheld:
        return f"; some of its devices cannot be identified, so nothing is offered of {withheld}"
    return "; its allocation cannot be read, so its devices may be allocated a second time"


class Continuity:
    """`begin_list`, then `listed` for each object before it is applied, then `end_list`. Both raise SetBackError."""

    def __init__(self, ledger: Ledger, pods: Pods) -> None:
        self._ledger = ledger
        self._known: dict[str, Ledger | Pods] = {ResourceClaim.__name__: ledger, Pod.__name__: pods}
        self._floor: dict[str, int] = {}
        """By kind: the highest resourceVersion that was known when the list was requested."""
        self._gone: dict[str, set[str]] = {}
        """By kind that is being listed: the objects that a reply has shown to be gone since."""

    def gone(self, key: ObjectKey) -> None:
        """A reply has shown that the object does not exist."""
        if key.kind in self._gone:
            self._gone[key.kind].add(key.name)

    def begin_list(self, kind: str) -> None:
        """The list is requested now."""
        if kind in self._known:
            self._gone[kind], self._floor[kind] = set(), self._known[kind].newest

    def listed(self, obj: Any, complete: int) -> None:
        """The list has this object. `complete`: the watch has shown all versions up to this one."""
        kind, meta = type(obj).__name__, obj.metadata
        if kind not in self._known or meta.key in self._gone[kind]:
            return
        known = self._known[kind].by_key(meta.key)
        if known is not None and known.metadata.version > self._floor[kind]:
            return
        if 0 < meta.version <= complete:
            follows = known == obj
        elif known is not None and known.metadata.uid == meta.uid:
            follows = not 0 < meta.version < known.metadata.version
        else:
            follows = not isinstance(obj, ResourceClaim) or not self._ledger.was_deleted(identity(obj), meta.version)
        if not follows:
            before = f"version {known.metadata.resource_version}" if known is not None else "no such object"
            raise SetBackError(f"{kind} {meta.key} has version {meta.resource_version}; before: {before}")

    def end_list(self, kind: str, version: int) -> None:
        """The list is complete, at this resourceVersion."""
        self._gone.pop(kind, None)
        floor = self._floor.get(kind, 0)
        if 0 < version < floor:
            raise SetBackError(f"{kind}: a list has version {version}; version {floor} was known before")


CLAIM: Final = ResourceClaim.__name__


class Effects(msgspec.Struct, frozen=True):
    """What follows from an event."""

    requeue: bool = False
    """A refused pod may fit now. False for a new claim: it helps only pods that wait for it."""
    recovered: bool = False
    """The object could not be decoded before; it can be now, or is gone."""
    bound: bool = False
    """The pod has a node now, and had none before."""


class Cluster:
    """Questions read its attributes; only `apply` and binds change them."""

    def __init__(self, features: FeatureGates) -> None:
        self.features = features
        self.inventory = Inventory(features)
        self.classes: Mapping[str, DeviceClass] = self.inventory.classes
        self.nodes: Mapping[str, Node] = self.inventory.nodes
        self.knows: Callable[[str], bool] = self.inventory.nodes.index.__contains__
        """Whether the node exists. Faster than `in nodes`: filter asks for thousands of nodes."""
        self.ledger = Ledger(features, self.inventory.pools.get, self.inventory.nodes.use_changed)
        self.pods = Pods()
        groups = self.pod_groups = PodGroups()
        self.continuity = Continuity(self.ledger, self.pods)
        self.budgets: dict[str, dict[str, PodDisruptionBudget]] = {}
        """By namespace, then by `namespace/name`; empty unless PodDisruptionBudgets are watched."""
        self.undecodable = UndecodableObjects(self.ledger, self.inventory.nodes.own_pools)
        self.undecodable_pods: Mapping[str, int] = self.undecodable.pods
        self._drops: dict[str, Callable[[str], bool]] = {
            Node.__name__: self.inventory.nodes.drop,
            ResourceSlice.__name__: self.inventory.drop_slice,
            DeviceClass.__name__: self.inventory.classes.drop,
            DeviceTaintRule.__name__: self.inventory.drop_rule,
            PodGroup.__name__: lambda key: groups.drop(PodGroup.api_group, key),
            CoschedulingPodGroup.__name__: lambda key: groups.drop(CoschedulingPodGroup.api_group, key),
        }

    def claim(self, key: str) -> ResourceClaim | None:
        """The last readable version of a claim that exists in the API server, by `namespace/name`."""
        return None if key.endswith(_MARK) else self.ledger.by_key(key)

    @property
    def problems(self) -> Sequence[ObjectProblem]:
        """Undecodable objects, and slices that make pools unusable, sorted by object."""
        return sorted(chain(self.undecodable.problems, self.inventory.problems()))

    def apply(self, event: ClusterEvent) -> Effects:
        """Apply an event of a watch, a list or a reply."""
        if isinstance(event, Undecodable):
            freed = self.undecodable.put(event)
            return Effects(freed or self._drop(event.key))
        recovered = freed = False
        if event.source != "reply":
            recovered, freed = self.undecodable.drop(event.key)
        elif isinstance(event, Removed):
            self.continuity.gone(event.key)
        if isinstance(event, Applied) and isinstance(event.object, Pod):
            bound = self.pods.apply(event.object, reply=event.source == "reply")
            if event.source == "watch":
                self.pods.watched = max(self.pods.watched, event.object.metadata.version)
            return Effects(recovered=recovered, bound=bound)
        improved = self._put(event) if isinstance(event, Applied) else self._remove(event)
        waited_for = recovered and event.key.kind == CLAIM
        return Effects(improved or freed or waited_for, recovered)

    def _put(self, event: Applied) -> bool:
        match event.object:
            case ResourceClaim() as claim:
                return self._observe(claim, event)
            case PodDisruptionBudget() as budget:
                self.budgets.setdefault(budget.metadata.namespace, {})[budget.metadata.key] = budget
            case ResourceSlice() as item:
                improved = self.inventory.put_slice(item)
                if item.spec.node_name:
                    self.undecodable.slice_published(item.spec.node_name)
                return improved
            case Node() as node:
                return self.inventory.nodes.put(node)
            case DeviceClass() as device_class:
                return self.inventory.classes.put(device_class)
            case DeviceTaintRule() as rule:
                return self.inventory.put_rule(rule)
            case PodGroup() as group:
                return self.pod_groups.put(group)
            case _:
                raise TypeError(f"{event.key} is not of a kind that the state contains")
        return False

    def _remove(self, event: Removed) -> bool:
        if event.uid is None:
            return False
        if event.key.kind == CLAIM:
            return self.ledger.forget(event.key.name, event.uid)
        if event.key.kind == Pod.__name__:
            self.pods.remove(event.uid)
        elif event.key.kind == PodDisruptionBudget.__name__:
            namespace = event.key.name.partition("/")[0]
            remaining = self.budgets.get(namespace, {})
            remaining.pop(event.key.name, None)
            if not remaining:
                self.budgets.pop(namespace, None)
        return self._drop(event.key)

    def _drop(self, key: ObjectKey) -> bool:
        drop = self._drops.get(key.kind)
        return drop is not None and drop(key.name)

    def _observe(self, claim: ResourceClaim, event: Applied) -> bool:
        """True when devices became free, when a shared claim was allocated, or when more pods can use the claim. A
        version older than the known one changes nothing: a watch can deliver an old version after our write was
        answered.
        """
        uid = claim.metadata.uid
        before, in_flight = self.ledger.by_uid(uid), self.ledger.held(uid)
        freed = self.ledger.observe(claim, watched=event.source != "reply", after_gap=event.source == "list")
        if before is None:
            return False
        now = self.ledger.by_uid(uid) or claim
        settled = in_flight is not None and self.ledger.held(uid) is None
        allocated = before.allocation is None and now.allocation is not None
        shared = now.metadata.controller is None
        fewer = len(now.status.reserved_for) < len(before.status.reserved_for)  # another can share or deallocate it
        return freed or (shared and (settled or allocated)) or fewer or _got_ready(before, now)


def _got_ready(before: ResourceClaim, after: ResourceClaim) -> bool:
    """Whether a driver has changed the binding conditions of the devices."""
    if after.allocation is None or before.status.devices == after.status.devices:
        return False
    return any(result.binding_conditions for result in after.allocation.devices.results)
