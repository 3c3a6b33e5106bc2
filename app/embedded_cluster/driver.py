"""Resource drivers: publish the devices of nodes as ResourceSlices and keep them current when hardware changes.

Each change of a pool is a new generation, written slice by slice, so that a pool is incomplete for a moment as with
real drivers; `publish_in_steps` makes that moment as long as a test needs it. `Fabric` reports the binding conditions
of allocated devices in claim status.devices.

`DriverPods` promises: while a pod of the example driver runs on a node without GPUs, the node has as many GPUs as the
pod says (NUM_DEVICES, or 8), although no container runs. They go some time after the last such pod, so that a restarted
driver finds them. Nodes that come with GPUs keep those. Pods of other drivers run, and do nothing.

Rules: kubernetes-sigs/dra-example-driver (images and NUM_DEVICES); Kubernetes 1.36, pkg/kubelet/cm/dra, which deletes
the slices of a driver that is gone from its node for 30 seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dra_extender.api.decoding import encode
from dra_extender.api.errors import ConflictError, NotFoundError
from dra_extender.api.meta import format_time
from dra_extender.api.resource import Device, DeviceID, DeviceTaint, ResourceClaim
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from embedded_cluster import hardware
from embedded_cluster.apiserver.containers import is_driver
from embedded_cluster.hardware import DevicePool
from embedded_cluster.informer import Informer, RateLimitedQueue
from embedded_cluster.objects import FullContainer, FullNode, FullPod

_ATTEMPTS = 10
"""Status writes that may meet a conflict before it counts as an error."""


class UnknownDeviceError(LookupError):
    """No such pool, or no such device in it."""


class Driver:
    """All drivers of the embedded cluster in one: a pool is known by (driver, node)."""

    def __init__(
        self,
        client: KubeClient,
        *,
        most_per_slice: int = hardware.SLICE_DEVICES,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._most = most_per_slice
        self._now = now
        self._published: dict[tuple[str, str], tuple[DevicePool, int, int]] = {}
        self._owners: dict[str, dict[str, Any]] = {}

    # --- pools

    @property
    def pools(self) -> list[DevicePool]:
        """What is published now."""
        return [pool for pool, _, _ in self._published.values()]

    def adopt(
        self, pool: DevicePool, generation: int = 1, owner: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The slices of a pool for the caller to store; from now on this driver manages the pool."""
        if owner is not None:
            self._owners[pool.node] = dict(owner)
        parts = hardware.slices(pool, generation, most=self._most)
        self._published[pool.key] = (pool, generation, len(parts))
        return [hardware.manifest(part, self._owners.get(pool.node)) for part in parts]

    def publishes(self, driver: str, node: str) -> bool:
        """True when devices of this driver are published for the node."""
        return (driver, node) in self._published

    async def publish(self, pool: DevicePool, owner: Mapping[str, Any] | None = None) -> None:
        """Publish the pool as it is now, as a new generation; `owner`: its node, when that is to be an owner."""
        if owner is not None:
            self._owners[pool.node] = dict(owner)
        async for _ in self.publish_in_steps(pool):
            pass

    async def publish_in_steps(self, pool: DevicePool) -> AsyncIterator[int]:
        """As `publish`, stopping after every write: yields how many slices of the new generation exist."""
        _, generation, before = self._published.get(pool.key, (pool, 0, 0))
        generation += 1
        parts = hardware.slices(pool, generation, most=self._most)
        # The number of slices ever written is kept as it is until the last one is gone.
        self._published[pool.key] = (pool, generation, max(before, len(parts)))
        for number, part in enumerate(parts):
            await self._put(hardware.manifest(part, self._owners.get(pool.node)))
            yield number + 1
        for number in range(len(parts), before):
            await self._delete(hardware.slice_name(pool, number))
        self._published[pool.key] = (pool, generation, len(parts))

    async def withdraw(self, driver: str, node: str) -> None:
        """Delete all slices of a pool, as when the driver is uninstalled from the node."""
        pool, _, count = self._find(driver, node)
        for number in range(count):
            await self._delete(hardware.slice_name(pool, number))
        del self._published[pool.key]

    # --- devices

    async def add_device(self, node: str, device: Device, driver: str = hardware.GPU_DRIVER) -> None:
        """Plug a device into a node; it replaces one of the same name."""
        pool = self._published.get((driver, node), (DevicePool(driver, node, ()), 0, 0))[0]
        others = tuple(other for other in pool.devices if other.name != device.name)
        await self.publish(msgspec.structs.replace(pool, devices=(*others, device)))

    async def remove_device(self, node: str, name: str, driver: str = hardware.GPU_DRIVER) -> None:
        """Unplug a device. Raises UnknownDeviceError."""
        pool, device = self._device(driver, node, name)
        rest = tuple(other for other in pool.devices if other is not device)
        await self.publish(msgspec.structs.replace(pool, devices=rest))

    async def taint(
        self, node: str, name: str, key: str, effect: str, value: str = "", driver: str = hardware.GPU_DRIVER
    ) -> None:
        """Taint a device from now on. Raises UnknownDeviceError."""
        pool, device = self._device(driver, node, name)
        added = DeviceTaint(key=key, value=value, effect=effect, time_added=format_time(self._now()))
        taints = tuple(taint for taint in device.taints if (taint.key, taint.effect) != (key, effect))
        await self.publish(_with(pool, msgspec.structs.replace(device, taints=(*taints, added))))

    async def untaint(self, node: str, name: str, key: str, driver: str = hardware.GPU_DRIVER) -> None:
        """Take all taints with this key from a device. Raises UnknownDeviceError."""
        pool, device = self._device(driver, node, name)
        taints = tuple(taint for taint in device.taints if taint.key != key)
        await self.publish(_with(pool, msgspec.structs.replace(device, taints=taints)))

    # --- claims

    async def report(
        self, claim: ResourceClaim, device: DeviceID, conditions: Mapping[str, str], share: str | None = None
    ) -> None:
        """Set conditions (type -> status) of an allocated device in the claim's status.devices.

        Raises ApiError, NotFoundError when the claim is gone.
        """
        where = (claim.metadata.namespace, claim.metadata.name)
        for attempt in range(_ATTEMPTS):
            current = msgspec.json.decode(await self._client.get(RESOURCE_CLAIMS.path(*where)))
            body = with_conditions(current, device, conditions, share, format_time(self._now()))
            try:
                await self._client.replace(RESOURCE_CLAIMS.path(*where, "status"), msgspec.json.encode(body))
                return
            except ConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise

    # --- slices

    async def _put(self, manifest: Mapping[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        try:
            await self._client.replace(RESOURCE_SLICES.path(name=name), encode(manifest))
        except NotFoundError:
            await self._client.create(RESOURCE_SLICES.path(), encode(manifest))

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(RESOURCE_SLICES.path(name=name))
        except NotFoundError:
            pass

    def _find(self, driver: str, node: str) -> tuple[DevicePool, int, int]:
        found = self._published.get((driver, node))
        if found is None:
            raise UnknownDeviceError(f"driver {driver} publishes nothing for node {node}")
        return found

    def _device(self, driver: str, node: str, name: str) -> tuple[DevicePool, Device]:
        pool = self._find(driver, node)[0]
        for device in pool.devices:
            if device.name == name:
                return pool, device
        raise UnknownDeviceError(f"node {node} has no device {name} of driver {driver}")


class Fabric:
    """Makes allocated devices ready: reports their binding conditions as True some time after the allocation."""

    def __init__(self, driver: Driver, claims: Informer[ResourceClaim], *, delay: float = 1.0) -> None:
        self._driver = driver
        self._claims = claims
        self.delay = delay
        self.queue = RateLimitedQueue("fabric", self._attach)
        claims.subscribe(self._changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self.queue.run()

    def _changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if new is not None and next(iter(unready_devices(new)), None) is not None:
            self.queue.add_after(new.metadata.key, self.delay)

    async def _attach(self, key: str) -> None:
        claim = self._claims.objects.get(key)
        if claim is None:
            return
        for device, share, conditions in unready_devices(claim):
            await self._driver.report(claim, device, dict.fromkeys(conditions, "True"), share)
            await asyncio.sleep(0)


def unready_devices(claim: ResourceClaim) -> Iterable[tuple[DeviceID, str | None, tuple[str, ...]]]:
    """Allocated devices whose binding conditions have no report yet."""
    results = claim.allocation.devices.results if claim.allocation is not None else ()
    reported = {
        (status.driver, status.pool, status.device): {condition.type for condition in status.conditions}
        for status in claim.status.devices
    }
    for result in results:
        missing = tuple(name for name in result.binding_conditions if name not in reported.get(result.id, ()))
        failed = any(name in reported.get(result.id, ()) for name in result.binding_failure_conditions)
        if missing and not failed:
            yield result.id, result.share_id, missing


def with_conditions(
    claim: dict[str, Any], device: DeviceID, conditions: Mapping[str, str], share: str | None, now: str
) -> dict[str, Any]:
    """The claim (as JSON) with these conditions of the device; other conditions and devices stay."""
    identity = dict(zip(("driver", "pool", "device"), device, strict=True)) | ({"shareID": share} if share else {})
    status = dict(claim.get("status") or {})
    devices = [dict(entry) for entry in status.get("devices") or ()]
    entry = next((found for found in devices if all(found.get(k) == v for k, v in identity.items())), None)
    if entry is None:
        entry = dict(identity)
        devices.append(entry)
    kept = [condition for condition in entry.get("conditions") or () if condition["type"] not in conditions]
    entry["conditions"] = kept + [
        {"type": kind, "status": value, "reason": "Reported", "message": "", "lastTransitionTime": now}
        for kind, value in conditions.items()
    ]
    return claim | {"status": status | {"devices": devices}}


def _with(pool: DevicePool, device: Device) -> DevicePool:
    """The pool with a device replaced by a newer state of it."""
    devices = tuple(device if other.name == device.name else other for other in pool.devices)
    return msgspec.structs.replace(pool, devices=devices)


COUNT: Final = "NUM_DEVICES"
_USUAL: Final = 8
_MOST: Final = hardware.SLICE_DEVICES


def devices_of(pod: FullPod) -> int | None:
    """How many GPUs the pod publishes; None when it is not one of the example driver."""
    found = next((container for container in pod.spec.containers if is_driver(container.image)), None)
    return None if found is None else _count(found)


def _count(container: FullContainer) -> int:
    told = next((variable.value for variable in container.env if variable.name == COUNT), "")
    return min(int(told), _MOST) if told.isdecimal() else _USUAL


class DriverPods:
    """`run` never returns. `linger`: seconds that devices outlive the last pod of the driver."""

    def __init__(
        self, driver: Driver, pods: Informer[FullPod], nodes: Informer[FullNode], *, linger: float = 30.0
    ) -> None:
        """`pods` must have the index "node"."""
        self._driver = driver
        self._pods = pods
        self._nodes = nodes
        self.linger = linger
        self._installed: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self.queue: RateLimitedQueue[str] = RateLimitedQueue("driverpods", self._sync)
        pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._pods.synced.wait(), self._nodes.synced.wait())
        await self.queue.run()

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        pod = new or old
        if pod is not None and pod.spec.node_name and devices_of(pod) is not None:
            self.queue.add(pod.spec.node_name)

    async def _sync(self, node: str) -> None:
        running = [pod for pod in self._pods.find("node", node) if pod.status.phase == "Running"]
        counts = [count for pod in running if (count := devices_of(pod)) is not None]
        if not counts:
            await self._leave(node)
            return
        self._left.pop(node, None)
        have = self._installed.get(node)
        if have == counts[0] or (have is None and self._driver.publishes(hardware.GPU_DRIVER, node)):
            return
        self._installed[node] = counts[0]
        found = self._nodes.get("", node)
        owner = None if found is None else {
            "apiVersion": "v1", "kind": "Node", "name": node, "uid": found.metadata.uid,
        }  # fmt: skip
        await self._driver.publish(hardware.example_gpus(node, counts[0]), owner)

    async def _leave(self, node: str) -> None:
        """Withdraw the devices when the driver has been away for long enough."""
        if node not in self._installed:
            return
        now = asyncio.get_running_loop().time()
        due = self._left.setdefault(node, now + self.linger)
        if now < due:
            self.queue.add_after(node, due - now)
            return
        del self._installed[node], self._left[node]
        await self._driver.withdraw(hardware.GPU_DRIVER, node)
