"""An API server in memory: claims, pods, nodes, slices and classes with resourceVersions.

What must never happen is checked at every commit and collected in `violations`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from app.api.core import Node, Pod
from app.api.resource import FINALIZER, ResourceClaim, ResourceClaimStatus
from app.scheduling.scheduling import Scheduling

EXTENDED = "example.com/gpu"
"""The extended resource that pods of these tests ask for."""


class Api:
    """Objects by (kind, key). Every commit gets the next resourceVersion and is sent to all watches in order."""

    def __init__(self) -> None:
        self.objects: dict[tuple[type, str], Any] = {}
        self.version = 100
        self.log: list[tuple[str, str]] = []
        """(operation, key) of every commit."""
        self.violations: list[str] = []
        self.watches: list[Watch] = []
        self.hooks: dict[str, Callable[[], object]] = {}
        """Called once, in the moment before the named operation is looked at."""
        self.judges: list[Callable[[str, Any, Any], str]] = []
        """More rules: each gets operation, object before and object after, and says what is wrong, or nothing."""
        self.intrusions: set[tuple[str, str]] = set()
        """(claim, claim) by UID: a stranger took a device of the second one although it was stored already."""

    # commits

    def put(self, obj: Any, operation: str = "put") -> Any:
        """Store a version of an object, without any precondition: what others do."""
        self.version += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        stored = msgspec.structs.replace(obj, metadata=meta)
        key = (type(obj), stored.metadata.key)
        before = self.objects.get(key)
        self.objects[key] = stored
        self.log.append((operation, stored.metadata.key))
        self._check(before, stored)
        self.violations += filter(None, (judge(operation, before, stored) for judge in self.judges))
        for watch in self.watches:
            watch.send(stored, removed=False)
        return stored

    def drop(self, obj: Any, operation: str = "drop") -> None:
        stored = self.objects.pop((type(obj), obj.metadata.key), None)
        if stored is not None:
            self.version += 1
            self.log.append((operation, obj.metadata.key))
            for watch in self.watches:
                watch.send(stored, removed=True)

    def claim(self, name: str) -> ResourceClaim:
        found: ResourceClaim = self.objects[ResourceClaim, f"default/{name}"]
        return found

    def pod(self, name: str) -> Pod:
        found: Pod = self.objects[Pod, f"default/{name}"]
        return found

    def all(self, kind: type) -> list[Any]:
        return [obj for (known, _), obj in self.objects.items() if known is kind]

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

    def clean_up(self) -> None:
        """What the claim controller and the garbage collector do about pods that are gone."""
        alive = {pod.metadata.uid for pod in self.all(Pod)}
        for claim in self.all(ResourceClaim):
            owner = claim.metadata.controller
            rest = tuple(entry for entry in claim.status.reserved_for if entry.uid in alive)
            if rest != claim.status.reserved_for:
                kept = msgspec.structs.replace(claim.status, reserved_for=rest)
                status = kept if rest else ResourceClaimStatus()
                self.put(msgspec.structs.replace(claim, status=status), "controller")
            if owner is not None and owner.uid not in alive:
                self.drop(claim, "controller")

    # invariants

    def _check(self, before: Any, after: Any) -> None:
        if isinstance(after, ResourceClaim):
            self._check_claim(before, after)
        if isinstance(after, Pod) and after.spec.node_name and not (before and before.spec.node_name):
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
            bound = [entry.name for entry in before.status.reserved_for if self._is_bound(entry.uid)]
            if bound:
                self.violations.append(f"{name}: deallocated under bound pods {bound}")
            self.intrusions = {pair for pair in self.intrusions if after.metadata.uid not in pair}

    def _is_bound(self, pod_uid: str) -> bool:
        return any(pod.metadata.uid == pod_uid and pod.spec.node_name for pod in self.all(Pod))

    def _check_binding(self, pod: Pod) -> None:
        names = [entry.resource_claim_name for entry in pod.spec.resource_claims]
        node: Node | None = self.objects.get((Node, pod.spec.node_name))
        asks = any(EXTENDED in container.resources.requests for container in pod.spec.containers)
        if asks and node is not None and EXTENDED not in node.status.allocatable:
            told = pod.status.extended_resource_claim_status
            names.append(told.resource_claim_name if told is not None else None)
        for name in names:
            claim = self.objects.get((ResourceClaim, f"default/{name}"))
            if claim is None or claim.allocation is None or not claim.reserved_for(pod.metadata.uid):
                self.violations.append(f"{pod.metadata.name} bound without {name}")
                continue
            for result in claim.allocation.devices.results:
                if result.pool in (node.metadata.name for node in self.all(Node)) and result.pool != pod.spec.node_name:
                    self.violations.append(f"{pod.metadata.name} bound away from {result.pool}")
            for other in self.rivals(claim):
                if (other.metadata.uid, claim.metadata.uid) in self.intrusions:
                    continue
                if any(self._is_bound(entry.uid) for entry in other.status.reserved_for):
                    self.violations.append(f"{pod.metadata.name} bound with a device of {other.metadata.name}")

    def rivals(self, claim: ResourceClaim) -> list[ResourceClaim]:
        """Claims that have a device of this one."""
        mine = devices(claim)
        others = [other for other in self.all(ResourceClaim) if other.metadata.uid != claim.metadata.uid]
        return [other for other in others if mine & devices(other)]

    def doubles(self) -> list[tuple[str, ...]]:
        """Devices that are in two claims."""
        claims = self.all(ResourceClaim)
        taken = [device for claim in claims for device in devices(claim)]
        return sorted({device for device in taken if taken.count(device) > 1})


def devices(claim: ResourceClaim) -> set[tuple[str, str, str]]:
    if claim.allocation is None:
        return set()
    results = claim.allocation.devices.results
    return {result.id for result in results if not result.admin_access and result.share_id is None}


class Watch:
    """Brings commits to one service, `lag` seconds later (or as `lags` says for a kind), those of one kind in order.

    `alive = False` stops it for good. `repeat` brings each event so many times more. `disconnect` loses what happens
    from then on, `reconnect` brings the difference between what was seen and what is there, in one step.
    """

    def __init__(self, api: Api, sink: Scheduling, lag: float) -> None:
        self.sink = sink
        self.lag = lag
        self.lags: dict[type, float] = {}
        self.alive = True
        self.repeat = 0
        self.relists = 0
        self._api = api
        self._at: dict[type, float] = {}
        self._paused: list[tuple[Any, bool]] | None = None
        self._connection: int | None = 0
        self._connections = 0
        self._seen = dict(api.objects)

    def pause(self) -> None:
        self._paused = self._paused or []

    def resume(self) -> None:
        waiting, self._paused = self._paused or [], None
        for obj, removed in waiting:
            self._deliver(obj, removed, self._connection)

    def disconnect(self) -> None:
        self._connection = None

    def reconnect(self) -> None:
        if self._connection is not None:
            return
        self.relists += 1
        self._connections += 1
        self._connection = self._connections
        now = dict(self._api.objects)
        for key, obj in list(self._seen.items()):
            if key not in now or now[key].metadata.uid != obj.metadata.uid:
                self._bring(obj, removed=True)
        for key, obj in now.items():
            if self._seen.get(key) is not obj:
                self._bring(obj, removed=False)

    def send(self, obj: Any, *, removed: bool) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + self.lags.get(type(obj), self.lag)
        self._at[type(obj)] = at = max(self._at.get(type(obj), 0.0) + 1e-9, at)
        loop.call_at(at, self._deliver, obj, removed, self._connection)

    def _deliver(self, obj: Any, removed: bool, connection: int | None) -> None:
        if not self.alive or connection is None or connection != self._connection:
            return
        if self._paused is not None:
            self._paused.append((obj, removed))
            return
        for _ in range(1 + self.repeat):
            self._bring(obj, removed)

    def _bring(self, obj: Any, removed: bool) -> None:
        key = (type(obj), obj.metadata.key)
        if removed:
            self._seen.pop(key, None)
            self.sink.remove(obj)
        else:
            self._seen[key] = obj
            self.sink.apply(obj)
