"""The actors of the embedded cluster, the service and all samples on a real API server: what they send is valid."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.resources import discover
from dra_extender.service.service import Service
from dra_extender.service.settings import load
from embedded_cluster import hardware, manifests
from embedded_cluster.cluster import SCHEDULER_NAMES
from embedded_cluster.controllers.manager import Controllers
from embedded_cluster.driver import Driver
from embedded_cluster.manifests import Manifest
from embedded_cluster.scheduler import Scheduler, takeover
from tests.e2e.components import NotBuiltError
from tests.e2e.controlplane import ControlPlane
from tests.support.patience import until
from tests.support.service.readiness import until_ready

pytestmark = pytest.mark.e2e

SAMPLES = sorted(path.stem for path in manifests.samples().glob("*.yaml"))


def namespaces() -> set[str]:
    """Those of the samples and of the service."""
    documents = (each for name in SAMPLES for each in manifests.read(manifests.samples() / f"{name}.yaml"))
    return {each["metadata"]["name"] for each in documents if each["kind"] == "Namespace"} | {"dra-system"}


class RealCluster:
    """Our actors around a real API server without kube-controller-manager and kube-scheduler."""

    def __init__(self, kubeconfig: str, stack: AsyncExitStack) -> None:
        self._kubeconfig = kubeconfig
        self._stack = stack

    async def connect(self, who: str) -> KubeClient:
        settings = ClientSettings(kubeconfig=self._kubeconfig, user_agent=who)
        return await self._stack.enter_async_context(await KubeClient.connect(settings))

    async def start(self) -> None:
        self.client = await self.connect("test")
        served = await discover(self.client)
        for name in sorted(namespaces()):
            await self._create("/api/v1/namespaces", "Namespace", name)
            # Without kube-controller-manager nobody else makes the account that every pod gets.
            await self._create(f"/api/v1/namespaces/{name}/serviceaccounts", "ServiceAccount", "default")
        self.driver = Driver(await self.connect("driver"))
        for index in range(4):
            await self.client.create("/api/v1/nodes", msgspec.json.encode(hardware.node(index)))
            await self.driver.publish(hardware.gpus(index, 8))
        self.controllers = Controllers(await self.connect("controllers"), served, self.driver, fabric_delay=0.2)
        self._run(self.controllers.run())
        await self.controllers.synced()
        flags = {
            "kubeconfig": self._kubeconfig,
            "listen": "127.0.0.1:0",
            "scheduler_names": ",".join(SCHEDULER_NAMES),
            "preemption": "on",
        }
        service = await self._stack.enter_async_context(Service(load(flags)))
        await until_ready(service)
        scheduler = Scheduler(await self.connect("scheduler"), takeover(service.url, SCHEDULER_NAMES))
        self._stack.push_async_callback(scheduler.close)
        self._run(scheduler.run())

    async def _create(self, path: str, kind: str, name: str) -> None:
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
        await self.client.create(path, msgspec.json.encode(body))

    def _run(self, forever: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(forever)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    def states(self) -> dict[str, str]:
        """Pod -> phase, or the reason why it is not scheduled."""
        return {
            pod.metadata.name: pod.condition.reason
            if pod.condition is not None and pod.condition.status == "False"
            else pod.status.phase
            for pod in self.controllers.pods.objects.values()
        }

    def has_come_to(self, expected: dict[str, str]) -> bool:
        """True when as many of these pods are in each state: which of them is first, nobody promises."""
        states = self.states()
        return Counter(states.get(name, "") for name in expected) == Counter(expected.values())


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealCluster]:
    try:
        plane = ControlPlane(tmp_path, controllers=False)
    except NotBuiltError as problem:
        pytest.skip(str(problem))
    with plane:
        async with AsyncExitStack() as stack:
            cluster = RealCluster(str(plane.admin_kubeconfig), stack)
            await cluster.start()
            yield cluster


async def test_all_samples_live_and_die_on_a_real_api_server(real: RealCluster) -> None:
    expected: list[dict[str, str]] = []
    for name in ("tutorial", "all", *(name for name in SAMPLES if name not in ("tutorial", "all"))):
        documents = manifests.read(manifests.samples() / f"{name}.yaml")
        await manifests.apply(real.client, documents)
        pods = [document["metadata"] for document in documents if document["kind"] == "Pod"]
        key = "dra-extender.dev/expected"
        if name != "preemption":  # the urgent pod takes the place of one of these
            expected.append({pod["name"]: pod.get("annotations", {}).get(key, "Running") for pod in pods})
        await until(lambda: all(map(real.has_come_to, expected)), real.states)
    await until(lambda: list(real.states().values()).count("Running") >= 3, real.states)
    assert len([pod for pod in ("training-a", "training-b") if real.states().get(pod) == "Running"]) == 1

    (taker,) = (pod for pod in real.controllers.pods.objects.values() if pod.metadata.name == "takes-all")
    await real.driver.taint(taker.spec.node_name, "gpu-0", "broken", "NoExecute")
    await until(lambda: "takes-all" not in real.states(), real.states)

    await real.client.delete("/api/v1/namespaces/dra-tutorial/pods/pod0", b"{}")
    claims = real.controllers.claims
    await until(lambda: claims.objects["dra-tutorial/some-gpu"].metadata.finalizers == (), real.states)
    assert claims.objects["dra-tutorial/some-gpu"].allocation is None


def workloads() -> list[Manifest]:
    """Daemons and a Deployment."""
    labels = {"app": "many"}
    pod = {"containers": [{"name": "main", "image": "a"}]}
    many = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    meta = {"name": "many", "namespace": "dra-samples"}
    return [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": many},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {**many, "replicas": 3}},
    ]


async def test_sets_of_pods_are_what_a_real_api_server_takes(real: RealCluster) -> None:
    await manifests.apply(real.client, workloads())
    await until(lambda: sum(_running(real).values()) >= 7, real.states)
    assert _running(real) == {"DaemonSet": 4, "ReplicaSet": 3}


def _running(real: RealCluster) -> dict[str, int]:
    """How many pods of each kind of set run."""
    pods = [pod for pod in real.controllers.pods.objects.values() if pod.status.phase == "Running"]
    return dict(Counter(owner.kind for pod in pods if (owner := pod.metadata.controller) is not None))
