"""An API server in memory: claims, pods, nodes, slices and classes with resourceVersions.

What must never happen is checked at every commit and collected in `violations`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.api.meta import format_time
from dra_extender.api.resource import FINALIZER, ResourceClaim, ResourceClaimStatus
from dra_extender.api.scheduling import PodGroup
from tests.support.simulation.objects import KubernetesObject
from tests.support.simulation.strategy import with_pod_status
from tests.support.simulation.virtualtime import VirtualClock

EXTENDED = "example.com/gpu"
"""The extended resource that pods of these tests ask for."""


GRACE_SECONDS = 30
"""The grace period of pods."""


def _grace(pod: Pod) -> int:
    period = pod.spec.termination_grace_period_seconds
    return GRACE_SECONDS if period is None else period


def deleted(moment: datetime, grace: int) -> dict[str, Any]:
    """The metadata of a pod that is deleted at this moment."""
    due = format_time(moment + timedelta(seconds=grace))
    return {"deletion_timestamp": due, "deletion_grace_period_seconds": grace}


K = TypeVar("K", bound=KubernetesObject)


class Follower(Protocol):
    """Who is sent every commit."""

    def send(self, obj: KubernetesObject, *, removed: bool) -> None: ...


class Backup(msgspec.Struct, frozen=True):
    """What the server stores at one moment."""

    version: int
    objects: dict[tuple[type, str], Any]
    intrusions: frozenset[tuple[str, str]]
    nominated_ahead: dict[str, str]
    unreadable: frozenset[tuple[type, str]]


class Api:
    """Objects by (kind, key). Every commit gets the next resourceVersion and is sent to all watches in order."""

    def __init__(self) -> None:
        self.objects: dict[tuple[type, str], Any] = {}
        self.version = 100
        self.log: list[tuple[str, str]] = []
        """(operation, key) of every commit."""
        self.violations: list[str] = []
        self.watches: list[Follower] = []
        self.hooks: dict[str, Callable[[], object]] = {}
        """Called once, in the moment before the named operation is looked at."""
        self.judges: list[Callable[[str, Any, Any], str]] = []
        """More rules: each gets operation, object before and object after, and says what is wrong, or nothing."""
        self.readers: list[Callable[[str, Iterable[str]], str]] = []
        """Rules for texts: each gets the namespace of who reads them, and says what is wrong, or nothing."""
        self.intrusions: set[tuple[str, str]] = set()
        """(claim, claim) by UID: a stranger took a device of the second one although it was stored already."""
        self.unreadable: set[tuple[type, str]] = set()
        """Objects that the service cannot decode as they are stored now."""
        self.sites: set[str] = set()
        """Names of all nodes that ever were: pools of these names are theirs."""
        self.nominated_ahead: dict[str, str] = {}
        """By UID of the pod: the node that it was nominated for ahead of the queue, last."""
        self.protected: set[str] = set()
        """Names of pods that a budget keeps from being evicted."""
        self.kept: set[str] = set()
        """Names of pods that a webhook keeps from being evicted. It does not refuse a dry run."""
        self.too_large: set[str] = set()
        """Names of pods that etcd does not store with one more condition or nominated node."""
        self.bound_with: dict[str, set[str | None]] = {}
        """By UID: the claims that the pod named when it was bound. Kubelet starts it with these."""
        self.restores = 0
        """How often it was set back."""
        self.evicted: list[str] = []
        """Names of pods, in the order in which they were."""
        self.stopping: dict[str, float] = {}
        """Seconds that pods of these names need to end, when they are evicted; a moment is what others need."""

    # commits

    def put(self, obj: K, operation: str = "put") -> K:
        """Store a version of an object, without any precondition: what others do."""
        self.version += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        stored = msgspec.structs.replace(obj, metadata=meta)
        key = (type(obj), stored.metadata.key)
        before = self.objects.get(key)
        self.objects[key] = stored
        if not isinstance(stored, ResourceClaim):  # who changes the status of a claim leaves what is wrong in its spec
            self.unreadable.discard(key)
        self.log.append((operation, stored.metadata.key))
        if isinstance(stored, Node):
            self.sites.add(stored.name)
        self._check(before, stored)
        self.violations += filter(None, (judge(operation, before, stored) for judge in self.judges))
        self._send(stored)
        return stored

    def spoil(self, obj: KubernetesObject) -> None:
        """Somebody stores a version of the object that cannot be decoded, until it is put again, or mended if it is a
        claim.
        """
        key = (type(obj), obj.metadata.key)
        if key in self.objects:
            self.version += 1
            meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
            self.objects[key] = stored = msgspec.structs.replace(obj, metadata=meta)
            self.unreadable.add(key)
            self.log.append(("spoil", obj.metadata.key))
            self._send(stored)

    def mend(self, claim: ResourceClaim) -> None:
        """Somebody corrects what could not be decoded in the claim, whatever else has changed in it since."""
        key = (ResourceClaim, claim.metadata.key)
        if key in self.unreadable:
            self.unreadable.discard(key)
            self.put(self.objects[key], "mend")

    def _send(self, obj: KubernetesObject, *, removed: bool = False) -> None:
        for watch in self.watches:
            watch.send(obj, removed=removed)

    def drop(self, obj: KubernetesObject, operation: str = "drop") -> None:
        stored = self.objects.pop((type(obj), obj.metadata.key), None)
        if stored is not None:
            self.version += 1
            self.unreadable.discard((type(obj), obj.metadata.key))
            self.log.append((operation, obj.metadata.key))
            meta = msgspec.structs.replace(stored.metadata, resource_version=str(self.version))
            self._send(msgspec.structs.replace(stored, metadata=meta), removed=True)

    def claim(self, name: str) -> ResourceClaim:
        """By its name in the namespace default, or namespace/name."""
        found: ResourceClaim = self.objects[ResourceClaim, name if "/" in name else f"default/{name}"]
        return found

    def pod(self, name: str) -> Pod:
        """As `claim`."""
        found: Pod = self.objects[Pod, name if "/" in name else f"default/{name}"]
        return found

    def tell(self, namespace: str, texts: Iterable[str]) -> None:
        """Users of the namespace read this."""
        self.violations += filter(None, (judge(namespace, texts) for judge in self.readers))

    def all(self, kind: type[K]) -> list[K]:
        return [obj for (known, _), obj in self.objects.items() if known is kind]

    def set_back(self, backup: Backup, *kinds: type) -> None:
        """Somebody restores objects of these kinds from an older backup, versions included. Others are stored again as
        they are, later.
        """
        others = [obj for (kind, _), obj in self.objects.items() if kind not in kinds]
        self.version = backup.version
        self.objects = {key: obj for key, obj in backup.objects.items() if key[0] in kinds}
        self.intrusions, self.nominated_ahead = set(backup.intrusions), dict(backup.nominated_ahead)
        self.unreadable = {key for key in backup.unreadable if key[0] in kinds}
        self.restores += 1
        self.log.append(("set back", str(backup.version)))
        for obj in others:
            self.put(obj)

    def backup(self) -> Backup:
        intrusions, unreadable = frozenset(self.intrusions), frozenset(self.unreadable)
        return Backup(self.version, dict(self.objects), intrusions, dict(self.nominated_ahead), unreadable)

    # what others do

    def set_status(self, name: str, **status: Any) -> ResourceClaim:
        """A foreign write of these fields of a claim's status."""
        claim = self.claim(name)
        changed: ResourceClaim = self.put(
            msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, **status)), "foreign"
        )
        return changed

    def touch(self, name: str) -> None:
        """A foreign write that changes nothing but the version."""
        self.put(self.claim(name), "foreign")

    def delete_pod(self, name: str) -> None:
        """The pod goes, and the claim controller and the garbage collector do their work."""
        self.drop(self.pod(name))
        self.clean_up()

    def evict(self, pod: Pod) -> None:
        """The pod is being deleted, and after its time is gone."""
        self.evicted.append(pod.metadata.name)
        if pod.metadata.deletion_timestamp:
            return
        meta = msgspec.structs.replace(pod.metadata, **deleted(VirtualClock().wall(), _grace(pod)))
        leaving = self.put(msgspec.structs.replace(pod, metadata=meta), "evict")
        seconds = self.stopping.get(pod.metadata.name, 0.1)
        asyncio.get_running_loop().call_later(seconds, self._end, leaving.metadata.key, leaving.metadata.uid)

    def _end(self, key: str, uid: str) -> None:
        stored: Pod | None = self.objects.get((Pod, key))
        if stored is not None and stored.metadata.uid == uid:
            self.drop(stored)
            self.clean_up()

    def refuse_pod(self, name: str) -> None:
        """What the scheduler reports after an attempt without a node."""
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        self.put(with_pod_status(self.pod(name), {"conditions": [told]}))

    def finish_pod(self, name: str) -> None:
        """The containers of a bound pod have ended."""
        pod = self.pod(name)
        status = msgspec.structs.replace(pod.status, phase="Succeeded")
        self.put(msgspec.structs.replace(pod, status=status))

    def delete_claim(self, claim: ResourceClaim, operation: str = "delete_claim") -> None:
        """What a deletion does: the finalizer keeps the claim until no pod uses it."""
        if not claim.metadata.finalizers:
            self.drop(claim, operation)
        elif not claim.metadata.deletion_timestamp:
            meta = msgspec.structs.replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            self.put(msgspec.structs.replace(claim, metadata=meta), operation)

    def clean_up(self) -> None:
        """What the claim controller and the garbage collector do about pods that are gone or finished."""
        pods = [pod for pod in self.all(Pod) if not pod.finished]
        users = {pod.metadata.uid for pod in pods if pod.spec.node_name or not pod.metadata.deletion_timestamp}
        users |= set(self.groups.values())
        owners = {pod.metadata.uid for pod in pods}.union(self.groups.values())
        for claim in self.all(ResourceClaim):
            self._release(claim, users)
            stored = self.objects.get((ResourceClaim, claim.metadata.key))
            owner = claim.metadata.controller
            if stored is not None and owner is not None and owner.uid not in owners:
                self.delete_claim(stored, "collector")
                self._let_go(stored.metadata.key)

    def _release(self, claim: ResourceClaim, users: set[str]) -> None:
        """TentativePlans of pods that are gone go; with the last one go allocation and finalizer, in two writes."""
        rest = tuple(entry for entry in claim.status.reserved_for if entry.uid in users)
        if rest != claim.status.reserved_for:
            kept = msgspec.structs.replace(claim.status, reserved_for=rest)
            status = kept if rest else ResourceClaimStatus()
            claim = self.put(msgspec.structs.replace(claim, status=status), "controller")
            if not rest and not claim.metadata.deletion_timestamp:
                self._unprotect(claim)
        self._let_go(claim.metadata.key)

    def _unprotect(self, claim: ResourceClaim) -> None:
        kept = tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
        meta = msgspec.structs.replace(claim.metadata, finalizers=kept)
        self.put(msgspec.structs.replace(claim, metadata=meta), "controller")

    def _let_go(self, key: str) -> None:
        """A claim that is being deleted goes when no pod uses it any more."""
        claim = self.objects.get((ResourceClaim, key))
        if claim is None or not claim.metadata.deletion_timestamp or claim.status.reserved_for:
            return
        if claim.allocation is not None:
            claim = self.put(msgspec.structs.replace(claim, status=ResourceClaimStatus()), "controller")
        self.drop(claim, "controller")

    # invariants

    def _check(self, before: Any, after: KubernetesObject) -> None:
        if isinstance(after, ResourceClaim):
            self._check_claim(before, after)
        if isinstance(after, Pod) and after.spec.node_name and not (before and before.spec.node_name):
            told = after.status.extended_resource_claim_status
            made = [told.resource_claim_name] if told is not None else []
            self.bound_with[after.metadata.uid] = {*claim_names(after), *made}
            self._check_binding(after)

    def _check_claim(self, before: ResourceClaim | None, after: ResourceClaim) -> None:
        name, consumers = after.metadata.name, after.status.reserved_for
        if len({entry.uid for entry in consumers}) != len(consumers) or len(consumers) > 256:
            self.violations.append(f"{name}: consumers {consumers}")
        if after.allocation is not None and FINALIZER not in after.metadata.finalizers:
            self.violations.append(f"{name}: allocated without finalizer")
        if before is None:
            return
        if before.allocation is not None and after.allocation is not None and before.allocation != after.allocation:
            self.violations.append(f"{name}: allocation changed in place")
        if before.metadata.uid == after.metadata.uid and before.allocation is not None and after.allocation is None:
            if users := {uid for uid in self.running(before) if name in self.bound_with.get(uid, {name})}:
                self.violations.append(f"{name}: deallocated under bound pods {users}")
            self.intrusions = {pair for pair in self.intrusions if after.metadata.uid not in pair}

    def running(self, claim: ResourceClaim) -> set[str]:
        """UIDs of the consumers of this claim that run: pods, and groups of pods that run with it."""
        pods = [pod for pod in self.all(Pod) if pod.spec.node_name and not pod.finished]
        found = {pod.metadata.uid for pod in pods} | {self.group_of(pod) for pod in pods if _names(pod, claim)}
        return {entry.uid for entry in claim.status.reserved_for} & found

    def is_unused(self, claim: ResourceClaim) -> bool:
        """True when the claim is reserved for a group and none of its pods names it: docs/reliability.md says who
        releases its devices.
        """
        users = {entry.uid for entry in claim.status.reserved_for} & set(self.groups.values())
        return bool(users) and users.isdisjoint(self.group_of(pod) for pod in self.all(Pod) if _names(pod, claim))

    @property
    def groups(self) -> dict[str, str]:
        """UIDs of the PodGroups that exist, by namespace/name."""
        return {group.metadata.key: group.metadata.uid for group in self.all(PodGroup)}

    def group_of(self, pod: Pod) -> str:
        """The UID of the pod's PodGroup; empty without one."""
        group = self.objects.get((PodGroup, f"{pod.metadata.namespace}/{pod.group_name}"))
        return group.metadata.uid if group is not None else ""

    def lacks_group(self, pod: Pod) -> bool:
        """True while the pod waits for its PodGroup to exist."""
        return bool(pod.group_name) and not self.group_of(pod)

    def _check_binding(self, pod: Pod) -> None:
        names = claim_names(pod)
        node: Node | None = self.objects.get((Node, pod.spec.node_name))
        asks = any(EXTENDED in container.resources.requests for container in pod.spec.containers)
        if asks and (node is None or EXTENDED not in node.status.allocatable):
            told = pod.status.extended_resource_claim_status
            names.append(told.resource_claim_name if told is not None else None)
        for name in names:
            claim = self.objects.get((ResourceClaim, f"{pod.metadata.namespace}/{name}"))
            users = {entry.uid for entry in claim.status.reserved_for} if claim is not None else set()
            if claim is None or claim.allocation is None or not users & {pod.metadata.uid, self.group_of(pod)}:
                self.violations.append(f"{pod.metadata.name} bound without {name}")
                continue
            for result in claim.allocation.devices.results:
                if result.pool in self.sites and result.pool != pod.spec.node_name:
                    self.violations.append(f"{pod.metadata.name} bound away from {result.pool}")
            for other in self.rivals(claim):
                if (other.metadata.uid, claim.metadata.uid) in self.intrusions:
                    continue
                if self.running(other):
                    self.violations.append(f"{pod.metadata.name} bound with a device of {other.metadata.name}")

    def rivals(self, claim: ResourceClaim) -> list[ResourceClaim]:
        """Claims that have a device of this one."""
        mine = devices(claim)
        others = [other for other in self.all(ResourceClaim) if other.metadata.uid != claim.metadata.uid]
        return [other for other in others if mine & devices(other)]

    def doubles(self, counts: Callable[[ResourceClaim], bool] = lambda claim: True) -> list[tuple[str, ...]]:
        """Devices that are in two claims that count."""
        claims = [claim for claim in self.all(ResourceClaim) if counts(claim)]
        taken = [device for claim in claims for device in devices(claim)]
        return sorted({device for device in taken if taken.count(device) > 1})


def devices(claim: ResourceClaim) -> set[tuple[str, str, str]]:
    if claim.allocation is None:
        return set()
    results = claim.allocation.devices.results
    return {result.id for result in results if not result.admin_access and result.share_id is None}


def _names(pod: Pod, claim: ResourceClaim) -> bool:
    return pod.metadata.namespace == claim.metadata.namespace and claim.metadata.name in claim_names(pod)


def claim_names(pod: Pod) -> list[str | None]:
    """The names of the claims in the pod's spec; None for one that a template has not been made into yet."""
    told = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    return [entry.resource_claim_name or told.get(entry.name) for entry in pod.spec.resource_claims]
