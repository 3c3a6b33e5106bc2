"""A whole cluster in this process: API server, nodes with devices, controllers, kubelet, and a scheduler on request.

    async with EmbeddedCluster(nodes=4, devices=8) as cluster:
        await cluster.schedule_with(extender_url)
        await cluster.apply("...yaml...")
        await cluster.wait_until(lambda: cluster.running("default", "pod0"))

All actors speak HTTP with the API server, so `cluster.faults` reaches all of them. Only the seed goes past it:
thousands of nodes and slices are stored in one go.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.errors import NotFoundError
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.resources import discover
from embedded_cluster import hardware, invariants, manifests
from embedded_cluster.apiserver import EmbeddedAPIServer, Faults, Store
from embedded_cluster.apiserver.kinds import RESOURCE_VERSIONS
from embedded_cluster.controllers.manager import Controllers
from embedded_cluster.driver import Driver
from embedded_cluster.informer import Informer
from embedded_cluster.kubelet import Kubelet
from embedded_cluster.manifests import Manifest
from embedded_cluster.objects import FullPod
from embedded_cluster.scheduler import ExtenderCall, Scheduler, SchedulerConfig, takeover

SCHEDULER_NAMES = ("dra-scheduler", "default-scheduler")
_HISTORY = 100_000
"""Events kept per kind: watches of a slow client resume."""


class EmbeddedCluster:
    """Enter it to start it. `nodes` with `devices` GPUs each.

    With `installed=False` there is no driver yet: no DeviceClasses, no devices until a pod of the example driver runs.
    """

    def __init__(
        self,
        nodes: int = 4,
        devices: int = 8,
        *,
        installed: bool = True,
        port: int = 0,
        seed: int | None = None,
        fabric_delay: float = 1.0,
    ) -> None:
        self._nodes, self._devices = nodes, devices if installed else 0
        self._installed = installed
        self._fabric_delay = fabric_delay
        self.server = EmbeddedAPIServer(port, RESOURCE_VERSIONS, seed=seed, window=_HISTORY)
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[KubeClient] = []
        self._scheduling: asyncio.Task[None] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.scheduler: Scheduler | None = None
        self.kubeconfig = Path()

    # --- life

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _start(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="dra-extender-")
        self.kubeconfig = self.server.write_kubeconfig(Path(self._temporary.name) / "kubeconfig")
        self.client = await self._connect("embedded-user")
        self._served = await discover(self.client)
        self.driver = Driver(await self._connect("gpu-driver"))
        self._seed()
        await self.restart_controllers()

    async def restart_controllers(self) -> None:
        """They and the kubelet forget what they knew, as they must when a backup of the API server was restored."""
        await self._stop_controllers()
        manager = await self._connect("kube-controller-manager")
        self.controllers = Controllers(manager, self._served, self.driver, fabric_delay=self._fabric_delay)
        self._tasks.append(asyncio.create_task(self.controllers.run(), name="controllers"))
        await self.controllers.synced()

    async def stop(self) -> None:
        """End everything; what was stored is gone."""
        await self.stop_scheduler()
        await self._stop_controllers()
        for client in self._clients:
            await client.close()
        self._clients.clear()
        await self.server.__aexit__(None, None, None)
        if self._temporary is not None:
            self._temporary.cleanup()

    async def _stop_controllers(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _connect(self, who: str) -> KubeClient:
        client = await KubeClient.connect(ClientSettings(server=self.server.url, user_agent=who))
        self._clients.append(client)
        return client

    def _seed(self) -> None:
        """Namespaces exist; store classes, nodes and slices past HTTP."""
        store = self.server.store
        if self._installed:
            store.create(_device_class(hardware.GPU_DRIVER))
        now = datetime.now(UTC)
        for index in range(self._nodes):
            stored = store.create_stored(hardware.node(index, now)).object
            owner = {
                "apiVersion": "v1",
                "kind": "Node",
                "name": stored["metadata"]["name"],
                "uid": stored["metadata"]["uid"],
            }
            # Small clusters have small GPUs too, so that selectors matter: on the last of two or three nodes.
            small = True if 1 < self._nodes < 4 and index == self._nodes - 1 else None
            if self._devices:
                store.create_all(self.driver.adopt(hardware.gpus(index, self._devices, small=small), owner=owner))

    # --- scheduling

    async def schedule_with(
        self,
        extender: str,
        config: SchedulerConfig | None = None,
        *,
        pop_from_backoff: bool = True,
        on_call: Callable[[ExtenderCall], object] = lambda call: None,
    ) -> Scheduler:
        """Start a scheduler that calls the extender at this address; it replaces one that runs already."""
        await self.stop_scheduler()
        scheduler = Scheduler(
            await self._connect("kube-scheduler"),
            config or takeover(extender, SCHEDULER_NAMES),
            pop_from_backoff=pop_from_backoff,
            on_call=on_call,
        )
        self.scheduler = scheduler
        self._scheduling = asyncio.create_task(scheduler.run(), name="scheduler")
        return scheduler

    async def stop_scheduler(self) -> None:
        """Stop the scheduler in the middle of whatever it does."""
        if self._scheduling is not None:
            self._scheduling.cancel()
            await asyncio.gather(self._scheduling, return_exceptions=True)
            self._scheduling = None
        if self.scheduler is not None:
            await self.scheduler.close()
            self.scheduler = None

    def check(self) -> None:
        """Raise what ended one of the actors; they never end by themselves."""
        for task in (*self._tasks, *((self._scheduling,) if self._scheduling is not None else ())):
            if task.done() and not task.cancelled() and (problem := task.exception()) is not None:
                raise problem

    # --- what is in it

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def store(self) -> Store:
        return self.server.store

    @property
    def faults(self) -> Faults:
        return self.server.faults

    @property
    def kubelet(self) -> Kubelet:
        return self.controllers.kubelet

    def pod(self, namespace: str, name: str) -> FullPod | None:
        found = self.store.get("pods", name, namespace)
        return convert(FullPod, found) if found is not None else None

    def pods(self, namespace: str = "") -> list[FullPod]:
        return [convert(FullPod, found) for found in self.store.list("pods", namespace)]

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        found = self.store.get("resourceclaims", name, namespace)
        return convert(ResourceClaim, found) if found is not None else None

    def claims(self, namespace: str = "") -> list[ResourceClaim]:
        return [convert(ResourceClaim, found) for found in self.store.list("resourceclaims", namespace)]

    def slices(self) -> list[ResourceSlice]:
        return [convert(ResourceSlice, found) for found in self.store.list("resourceslices")]

    def running(self, namespace: str, *names: str) -> bool:
        """True when all these pods run."""
        pods = [self.pod(namespace, name) for name in names]
        return all(pod is not None and pod.status.phase == "Running" for pod in pods)

    def events(self, namespace: str, name: str) -> list[tuple[str, str]]:
        """(reason, message) of the events about an object, oldest first."""
        found = self.store.list("events", namespace, fields=f"involvedObject.name={name}")
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event.get("reason", ""), event.get("message", "")) for event in found]

    def audit(self) -> list[str]:
        """What is wrong with the cluster as stored now (see `invariants`); empty when all is well."""
        nodes = {found["metadata"]["name"]: convert(Node, found) for found in self.store.list("nodes")}
        return invariants.violations(self.claims(), self.pods(), self.slices(), nodes)

    # --- what is done to it

    async def apply(self, source: str | Path | Iterable[Manifest]) -> list[Manifest]:
        """Server-side apply of YAML text, of a file, or of documents."""
        documents = manifests.read(source) if isinstance(source, str | Path) else list(source)
        return await manifests.apply(self.client, documents)

    async def apply_samples(self, *names: str) -> list[Manifest]:
        """Apply samples by name (without .yaml); all of the demo when none is named."""
        directory = manifests.samples()
        applied = []
        for name in names or manifests.FIRST_SAMPLES:
            applied += await self.apply(directory / f"{name}.yaml")
        return applied

    async def delete(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object as `kubectl delete --wait=false` does; gone already is fine."""
        resource = self.server.registry.stored_form(plural)
        root = f"/apis/{resource.api_version}" if "/" in resource.api_version else f"/api/{resource.api_version}"
        where = f"/namespaces/{namespace or 'default'}" if resource.kind.namespaced else ""
        try:
            await self.client.delete(f"{root}{where}/{plural}/{name}", msgspec.json.encode({}))
        except NotFoundError:
            return

    async def add_node(self, index: int, *, devices: int | None = None) -> str:
        """Add the node with this number (from 0) over HTTP, its GPUs afterwards as in life; returns its name."""
        await self.client.create("/api/v1/nodes", msgspec.json.encode(hardware.node(index, datetime.now(UTC))))
        count = self._devices if devices is None else devices
        if count:
            await self.driver.publish(hardware.gpus(index, count))
        return hardware.node_name(index)

    def settled(self) -> bool:
        """True when all actors know what is stored and have nothing to do until something changes or its time comes."""
        actors = (self.controllers, *((self.scheduler,) if self.scheduler is not None else ()))
        return all(actor.idle() and all(map(self._is_known, actor.informers)) for actor in actors)

    def _is_known(self, informer: Informer[Any]) -> bool:
        stored = {
            found["metadata"]["uid"]: found["metadata"]["resourceVersion"]
            for found in self.store.list(informer.resource.plural)
        }
        known = {obj.metadata.uid: obj.metadata.resource_version for obj in informer.objects.values()}
        return stored == known

    async def wait_until(
        self, predicate: Callable[[], Any], timeout: float = 90.0, what: str = "", *, interval: float = 0.02
    ) -> None:
        """Look again and again until it holds. Raises TimeoutError that says what did not happen, and how pods are."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not predicate():
            self.check()
            if loop.time() > deadline:
                raise TimeoutError(
                    f"{what or 'what was waited for'} did not happen in {timeout:g} s; {self._summary()}"
                )
            await asyncio.sleep(interval)

    def _summary(self) -> str:
        lines = []
        for pod in self.pods()[:20]:
            known = pod.condition
            reason = f" ({known.reason}: {known.message})" if known is not None and known.status == "False" else ""
            lines.append(f"{pod.metadata.key} {pod.status.phase} on {pod.spec.node_name or 'no node'}{reason}")
        return "pods: " + ("; ".join(lines) or "none")


def _device_class(driver: str) -> Manifest:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
    }
