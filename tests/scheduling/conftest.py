"""A world for the verbs: virtual time, an API server in memory with faults, and services that watch it.

- `VirtualLoop`: time jumps to the next timer, so waits cost nothing and every run with the same seed is the same run.
  With a seed the order of callbacks that are ready at the same time is drawn from it.
- `Api`: claims, pods, nodes, slices and classes with resourceVersions, preconditions and the validation that matters.
  Faults are scripted per operation, before or after the commit, or with a commit that comes late. What must never
  happen is checked at every commit.
- `World`: the API server and any number of services (replicas), each with its own watch, lag and faults; services can
  be killed.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from app.allocation.decisions import Decisions
from app.api.core import Node, Pod
from app.api.decoding import convert, to_builtins
from app.api.errors import ApiError, ConflictError, NotFoundError, RejectedError
from app.api.extender import ExtenderArgs, ExtenderBindingArgs, ExtenderFilterResult
from app.api.features import FeatureGates
from app.api.meta import Object
from app.api.resource import (
    FINALIZER,
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceSlice,
)
from app.devices.cluster import Cluster
from app.scheduling.limits import Limits
from app.scheduling.scheduling import Scheduling

START = datetime(2026, 1, 1, tzinfo=UTC)
When = Literal["before", "after", "late"]
Json = dict[str, Any]


# --- time -------------------------------------------------------------------------------------------------------------


class _Jump(selectors.SelectSelector):
    """Instead of waiting, time moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: all tasks wait for each other")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual. `seed` shuffles callbacks that are ready together."""

    def __init__(self, seed: int | None = None) -> None:
        self._jump = _Jump()
        self._random = random.Random(seed) if seed is not None else None
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if self._random is not None and len(ready) > 1:
            mixed = list(ready)
            self._random.shuffle(mixed)
            ready.clear()
            ready.extend(mixed)
        super()._run_once()  # type: ignore[misc]


class VirtualClock:
    """The virtual loop's time; the time of day starts in 2026 and can be set off."""

    def __init__(self) -> None:
        self.offset = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.monotonic() + self.offset)


# --- objects ----------------------------------------------------------------------------------------------------------

DRIVER = "gpu.example.com"


def make_node(name: str, **allocatable: str) -> Node:
    return convert(Node, {"metadata": {"name": name, "uid": f"node-{name}"}, "status": {"allocatable": allocatable}})


def make_slice(node: str, devices: Sequence[str | Json], *, pool: str = "", generation: int = 1) -> ResourceSlice:
    """A pool of its own on one node (`node=""`: on all nodes); devices by name or as JSON."""
    ready = [device if isinstance(device, dict) else {"name": device} for device in devices]
    spec: Json = {
        "driver": DRIVER,
        "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": 1},
        "devices": ready,
    }
    spec |= {"nodeName": node} if node else {"allNodes": True}
    name = f"slice-{pool or node}"
    return convert(ResourceSlice, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec})


def make_class(name: str = "gpu", *, resource: str = "") -> DeviceClass:
    spec: Json = {"extendedResourceName": resource} if resource else {}
    return convert(DeviceClass, {"metadata": {"name": name, "uid": f"class-{name}"}, "spec": spec})


def make_claim(name: str, *, count: int = 1, requests: Sequence[Json] | None = None, pod: str = "") -> ResourceClaim:
    """A claim `default/NAME` for `count` devices of the class gpu, or for these requests; `pod` makes it owned."""
    meta: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if pod:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
        meta["ownerReferences"] = [owner]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": list(requests) if requests is not None else [{"name": "r", "exactly": exactly}]}}
    return convert(ResourceClaim, {"metadata": meta, "spec": spec})


def make_pod(name: str, *claims: str, node: str = "", uid: str = "", **more: Any) -> Pod:
    """A pod `default/NAME` that uses these claims by name. `more` is merged into the spec."""
    entries = [{"name": f"c{index}", "resourceClaimName": claim} for index, claim in enumerate(claims)]
    spec: Json = {"resourceClaims": entries, "schedulerName": "dra-scheduler", **more}
    if node:
        spec["nodeName"] = node
    return convert(Pod, {"metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"}, "spec": spec})


# --- the API server ---------------------------------------------------------------------------------------------------


class Fault(msgspec.Struct):
    """The `skip`+1st call of `operation` fails with `error`; "late": the commit comes `delay` seconds afterwards."""

    operation: str
    error: ApiError
    when: When = "before"
    skip: int = 0
    times: int = 1
    delay: float = 0.5


class Api:
    """Objects by (kind, key). Every commit gets the next resourceVersion and is sent to all watches in order."""

    def __init__(self) -> None:
        self.objects: dict[tuple[type, str], Any] = {}
        self.version = 100
        self.log: list[tuple[str, str]] = []
        """(operation, key) of every commit."""
        self.violations: list[str] = []
        self.watches: list[Watch] = []
        self.hooks: dict[str, Callable[[], None]] = {}
        """Called once, in the moment before the named operation is looked at."""

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
        pod = self.pod(name)
        self.drop(pod)
        for claim in self.all(ResourceClaim):
            owner = claim.metadata.controller
            rest = tuple(entry for entry in claim.status.reserved_for if entry.uid != pod.metadata.uid)
            if rest != claim.status.reserved_for:
                allocation = claim.status.allocation if rest else None
                status = ResourceClaimStatus(allocation=allocation, reserved_for=rest)
                claim = self.put(msgspec.structs.replace(claim, status=status), "controller")
            if owner is not None and owner.uid == pod.metadata.uid:
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

    def _is_bound(self, pod_uid: str) -> bool:
        return any(pod.metadata.uid == pod_uid and pod.spec.node_name for pod in self.all(Pod))

    def _check_binding(self, pod: Pod) -> None:
        created = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            name = entry.resource_claim_name or created.get(entry.name)
            claim = self.objects.get((ResourceClaim, f"default/{name}"))
            if claim is None or claim.allocation is None or not claim.reserved_for(pod.metadata.uid):
                self.violations.append(f"{pod.metadata.name} bound without {name}")
                continue
            for result in claim.allocation.devices.results:
                if result.pool in (node.metadata.name for node in self.all(Node)) and result.pool != pod.spec.node_name:
                    self.violations.append(f"{pod.metadata.name} bound away from {result.pool}")
            for other in self.rivals(claim):
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
    return {result.id for result in claim.allocation.devices.results if not result.admin_access}


# --- one service's connection -----------------------------------------------------------------------------------------


class Watch:
    """Brings commits to one service, `lag` seconds later and in order. `cut` stops it."""

    def __init__(self, sink: Scheduling, lag: float) -> None:
        self.sink = sink
        self.lag = lag
        self.alive = True
        self._at = 0.0
        self._paused: list[tuple[Any, bool]] | None = None

    def pause(self) -> None:
        self._paused = self._paused or []

    def resume(self) -> None:
        waiting, self._paused = self._paused or [], None
        for obj, removed in waiting:
            self._deliver(obj, removed)

    def send(self, obj: Any, *, removed: bool) -> None:
        loop = asyncio.get_running_loop()
        self._at = max(self._at + 1e-9, loop.time() + self.lag)
        loop.call_at(self._at, self._deliver, obj, removed)

    def _deliver(self, obj: Any, removed: bool) -> None:
        if not self.alive:
            return
        if self._paused is not None:
            self._paused.append((obj, removed))
        elif removed:
            self.sink.remove(obj)
        else:
            self.sink.apply(obj)


class Client:
    """The ports of one service. Each operation awaits before and after its commit."""

    def __init__(self, api: Api, latency: float = 0.001) -> None:
        self.api = api
        self.latency = latency
        self.faults: list[Fault] = []
        self.calls: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.rings = 0
        self.kill_at: tuple[int, When] | None = None
        """(number of the call, when): from then on nothing this client does has any effect, and nothing returns."""
        self.dead = False

    def fail(
        self,
        operation: str,
        error: ApiError,
        when: When = "before",
        *,
        skip: int = 0,
        times: int = 1,
        delay: float = 0.5,
    ) -> None:
        self.faults.append(Fault(operation, error, when, skip, times, delay))

    async def _call(self, operation: str, commit: Callable[[], Any]) -> Any:
        number = len(self.calls)
        self.calls.append(operation)
        fault = self._fault(operation)
        await self._pause(number, "before")
        hook = self.api.hooks.pop(operation, None)
        if hook is not None:
            hook()
        if fault is not None and fault.when == "before":
            raise fault.error
        if fault is not None and fault.when == "late":
            asyncio.get_running_loop().call_later(fault.delay, self._commit_late, commit)
            raise fault.error
        result = commit()
        await self._pause(number, "after")
        if fault is not None:
            raise fault.error
        return result

    @staticmethod
    def _commit_late(commit: Callable[[], Any]) -> None:
        try:
            commit()
        except ApiError:
            return

    def _fault(self, operation: str) -> Fault | None:
        for fault in self.faults:
            if fault.operation in (operation, "*") and fault.times > 0:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    async def _pause(self, number: int, when: When) -> None:
        if self.dead or self.kill_at == (number, when):
            self.dead = True
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self.latency / 2)
        if self.dead:
            await asyncio.get_running_loop().create_future()

    # claims

    def _stored(self, claim: ResourceClaim, *, version: bool = True) -> ResourceClaim:
        stored: ResourceClaim | None = self.api.objects.get((ResourceClaim, claim.metadata.key))
        if stored is None:
            raise NotFoundError(404, "NotFound", claim.metadata.key)
        if stored.metadata.uid != claim.metadata.uid:
            raise RejectedError(422, "Invalid", "uid")
        if version and stored.metadata.resource_version != claim.metadata.resource_version:
            raise ConflictError(409, "Conflict", "resourceVersion")
        return stored

    def _put_status(self, stored: ResourceClaim, status: ResourceClaimStatus, operation: str) -> ResourceClaim:
        before = stored.status
        if before.allocation is not None and status.allocation is not None and before.allocation != status.allocation:
            raise RejectedError(422, "Invalid", "allocation is immutable")
        if status.reserved_for and status.allocation is None:
            raise RejectedError(422, "Invalid", "reservedFor without allocation")
        uids = [entry.uid for entry in status.reserved_for]
        if len(uids) > 256 or len(set(uids)) != len(uids):
            raise RejectedError(422, "Invalid", "reservedFor")
        if status == before:
            return stored
        changed: ResourceClaim = self.api.put(msgspec.structs.replace(stored, status=status), operation)
        return changed

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        result: ResourceClaim | None = await self._call(
            "read_claim", lambda: self.api.objects.get((ResourceClaim, f"{namespace}/{name}"))
        )
        return result

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        def commit() -> ResourceClaim:
            stored = self._stored(claim)
            meta = msgspec.structs.replace(stored.metadata, finalizers=(*claim.metadata.finalizers, FINALIZER))
            changed: ResourceClaim = self.api.put(msgspec.structs.replace(stored, metadata=meta), "add_finalizer")
            return changed

        result: ResourceClaim = await self._call("add_finalizer", commit)
        return result

    async def remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        def commit() -> ResourceClaim:
            stored = self._stored(claim)
            rest = tuple(name for name in stored.metadata.finalizers if name != FINALIZER)
            meta = msgspec.structs.replace(stored.metadata, finalizers=rest)
            changed: ResourceClaim = self.api.put(msgspec.structs.replace(stored, metadata=meta), "remove_finalizer")
            return changed

        result: ResourceClaim = await self._call("remove_finalizer", commit)
        return result

    async def write_status(
        self,
        claim: ResourceClaim,
        *,
        allocation: AllocationResult | UnsetType | None = UNSET,
        reserved_for: Sequence[ResourceClaimConsumerReference],
    ) -> ResourceClaim:
        def commit() -> ResourceClaim:
            stored = self._stored(claim)
            kept = stored.status.allocation if isinstance(allocation, UnsetType) else allocation
            status = msgspec.structs.replace(stored.status, allocation=kept, reserved_for=tuple(reserved_for))
            return self._put_status(stored, status, "write_status")

        result: ResourceClaim = await self._call("write_status", commit)
        return result

    async def remove_reservation(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim:
        def commit() -> ResourceClaim:
            stored = self._stored(claim, version=False)
            rest = tuple(entry for entry in stored.status.reserved_for if entry.uid != pod_uid)
            return self._put_status(stored, msgspec.structs.replace(stored.status, reserved_for=rest), "unreserve")

        result: ResourceClaim = await self._call("remove_reservation", commit)
        return result

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        result: ResourceClaim = await self._call(
            "deallocate", lambda: self._put_status(self._stored(claim), ResourceClaimStatus(), "deallocate")
        )
        return result

    async def create_claim(self, namespace: str, body: Mapping[str, Any]) -> ResourceClaim:
        def commit() -> ResourceClaim:
            claim = convert(ResourceClaim, to_builtins(body))
            if (ResourceClaim, claim.metadata.key) in self.api.objects:
                raise ConflictError(409, "AlreadyExists", claim.metadata.key)
            meta = msgspec.structs.replace(claim.metadata, uid=f"uid-created-{self.api.version}")
            created: ResourceClaim = self.api.put(msgspec.structs.replace(claim, metadata=meta), "create_claim")
            return created

        result: ResourceClaim = await self._call("create_claim", commit)
        return result

    async def delete_claim(self, claim: ResourceClaim) -> None:
        def commit() -> None:
            try:
                stored = self._stored(claim, version=False)
            except NotFoundError:
                return
            if stored.metadata.finalizers:
                meta = msgspec.structs.replace(stored.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
                self.api.put(msgspec.structs.replace(stored, metadata=meta), "delete_claim")
            else:
                self.api.drop(stored, "delete_claim")

        await self._call("delete_claim", commit)

    # pods

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        result: Pod | None = await self._call("read_pod", lambda: self.api.objects.get((Pod, f"{namespace}/{name}")))
        return result

    async def bind_pod(self, namespace: str, name: str, uid: str, node: str) -> None:
        def commit() -> None:
            pod: Pod | None = self.api.objects.get((Pod, f"{namespace}/{name}"))
            if pod is None:
                raise NotFoundError(404, "NotFound", name)
            if pod.metadata.uid != uid or pod.spec.node_name or pod.metadata.deletion_timestamp:
                raise ConflictError(409, "Conflict", name)
            self.api.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)), "bind")

        await self._call("bind_pod", commit)

    async def patch_pod_status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        def commit() -> None:
            stored: Pod | None = self.api.objects.get((Pod, pod.metadata.key))
            if stored is None:
                raise NotFoundError(404, "NotFound", pod.metadata.key)
            if stored.metadata.uid != pod.metadata.uid:
                raise ConflictError(409, "Conflict", pod.metadata.key)
            merged = convert(Pod, to_builtins(stored) | {"status": to_builtins(stored.status) | to_builtins(status)})
            self.api.put(merged, "patch_pod_status")

        await self._call("patch_pod_status", commit)

    # telling

    def record_event(self, regarding: Object, kind: str, reason: str, note: str, *, action: str = "Scheduling") -> None:
        self.events.append((reason, note))

    async def ring(self) -> None:
        await self._call("ring", lambda: None)
        self.rings += 1


# --- the world --------------------------------------------------------------------------------------------------------


class Service:
    """One replica: its scheduling, its connection, its watch and its background work."""

    def __init__(self, world: World, lag: float, limits: Limits, features: FeatureGates) -> None:
        self.client = Client(world.api)
        self.counted: dict[tuple[str, str], int] = {}
        cluster = Cluster(features)
        serial = iter(range(10**9))
        decisions = Decisions(cluster, share_ids=lambda: f"00000000-0000-4000-8000-{next(serial):012d}")
        self.scheduling = Scheduling(cluster, decisions, self.client, limits=limits, clock=world.clock, observer=self)
        for obj in list(world.api.objects.values()):
            self.scheduling.apply(obj)
        self.watch = Watch(self.scheduling, lag)
        world.api.watches.append(self.watch)
        self._world = world
        self._tasks: list[asyncio.Task[Any]] = []

    def count(self, name: str, label: str = "") -> None:
        self.counted[name, label] = self.counted.get((name, label), 0) + 1

    def took(self, name: str, seconds: float) -> None:
        assert seconds >= 0, name

    def start(self) -> None:
        """Begin the work without a caller."""
        self.spawn(self.scheduling.run())

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def filter(self, pod: Pod, *names: str) -> ExtenderFilterResult:
        names = names or tuple(node.metadata.name for node in self._world.api.all(Node))
        return await self.scheduling.filter(ExtenderArgs(Pod=pod, NodeNames=names))

    async def bind(self, pod: Pod, node: str) -> str:
        args = ExtenderBindingArgs(
            PodName=pod.metadata.name, PodNamespace=pod.metadata.namespace, PodUID=pod.metadata.uid, Node=node
        )
        return (await self.scheduling.bind(args)).Error

    async def kill(self) -> None:
        """End as a killed process does: nothing more is sent, nothing more is received."""
        self.client.dead = True
        self.watch.alive = False
        self._world.api.watches.remove(self.watch)
        await self.stop()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.scheduling.drain(0.0)
        await asyncio.gather(*self._tasks, return_exceptions=True)


class World:
    """The API server and the services. `lag`: seconds from a commit to its arrival at the watches."""

    def __init__(self) -> None:
        self.api = Api()
        self.clock = VirtualClock()
        self.services: list[Service] = []

    def service(
        self,
        *,
        lag: float = 0.002,
        limits: Limits | None = None,
        features: FeatureGates | None = None,
    ) -> Service:
        made = Service(self, lag, limits or Limits(), features or FeatureGates())
        self.services.append(made)
        return made

    def add(self, *objects: Any) -> None:
        for obj in objects:
            self.api.put(obj)

    async def settle(self, seconds: float = 1.0) -> None:
        await asyncio.sleep(seconds)

    async def end(self) -> None:
        for service in self.services:
            await service.stop()


Story = Callable[[World], Awaitable[None]]


def replay(story: Story, seed: int | None = None) -> World:
    """Tell a story in virtual time. Afterwards nothing that must never happen has happened."""
    loop = VirtualLoop(seed)
    world = World()

    async def tell() -> None:
        try:
            await asyncio.wait_for(story(world), timeout=100_000)
        finally:
            await world.end()

    try:
        loop.run_until_complete(tell())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    assert world.api.violations == []
    return world


class Make:
    """The builders."""

    node = staticmethod(make_node)
    slice = staticmethod(make_slice)
    device_class = staticmethod(make_class)
    claim = staticmethod(make_claim)
    pod = staticmethod(make_pod)


@pytest.fixture(name="replay")
def replay_fixture() -> Callable[..., World]:
    return replay


@pytest.fixture
def make() -> type[Make]:
    return Make


@pytest.fixture(name="devices")
def devices_fixture() -> Callable[[ResourceClaim], set[tuple[str, str, str]]]:
    return devices


@pytest.fixture
def small(make: type[Make]) -> Iterator[list[Any]]:
    """Two nodes with two devices each, and the class."""
    yield [
        make.device_class(),
        make.node("n1"),
        make.node("n2"),
        make.slice("n1", ["a", "b"]),
        make.slice("n2", ["a", "b"]),
    ]
