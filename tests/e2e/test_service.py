"""The service against a real control plane, with the rights of the manifests and no others."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from app.service import Service
from app.settings import load
from tests.e2e.controlplane import ControlPlane

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
DRIVER = "service.example.com"


class Cluster:
    """Objects in a namespace of their own, by kubectl."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.name = f"service-{uuid.uuid4().hex[:8]}"

    def set_up(self) -> None:
        self.plane.kubectl("create", "namespace", self.name)
        self.plane.kubectl(
            "wait", "--for=create", "--timeout=30s", f"--namespace={self.name}", "serviceaccount/default"
        )
        resource = "resource.k8s.io/v1"
        self.plane.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}},
            {"apiVersion": resource, "kind": "DeviceClass", "metadata": {"name": self.name}, "spec": {}},
            {
                "apiVersion": resource,
                "kind": "ResourceSlice",
                "metadata": {"name": self.name},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": self.name,
                    "pool": {"name": self.name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "device-0"}],
                },
            },
        )

    def tear_down(self) -> None:
        self.plane.kubectl("delete", "namespace", self.name, "--wait=false")
        self.plane.kubectl("delete", "node,deviceclass,resourceslice", self.name)

    def publish(self, devices: int) -> None:
        """The node's pool, with that many devices."""
        known = json.loads(self.plane.kubectl("get", "resourceslice", self.name, "--output=json"))
        generation = known["spec"]["pool"]["generation"] + 1
        known["spec"]["pool"]["generation"] = generation
        known["spec"]["devices"] = [{"name": f"device-{index}"} for index in range(devices)]
        self.plane.kubectl("replace", "--filename=-", stdin=json.dumps(known))

    def pod_with_claim(self, name: str, scheduler: str = "nobody") -> dict[str, Any]:
        where = {"name": name, "namespace": self.name}
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": self.name}}]}}
        self.plane.apply(
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": where, "spec": spec},
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": where,
                "spec": {
                    "schedulerName": scheduler,
                    "containers": [{"name": "c", "image": "none"}],
                    "resourceClaims": [{"name": "d", "resourceClaimName": name}],
                },
            },
        )
        return self.get("pod", name)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.plane.kubectl("get", kind, name, f"--namespace={self.name}", "--output=json")
        )
        return found


@pytest.fixture
def cluster(plane: ControlPlane) -> Any:
    made = Cluster(plane)
    made.set_up()
    yield made
    made.tear_down()


@pytest.fixture
async def service(plane: ControlPlane, cluster: Cluster) -> AsyncIterator[Service]:
    for file in ("namespace.yaml", "rbac/extender.yaml"):
        plane.kubectl("apply", f"--filename={MANIFESTS / file}")
    kubeconfig = str(plane.service_account_kubeconfig("dra-system", "dra-extender"))
    settings = load({"listen": "127.0.0.1:0", "kubeconfig": kubeconfig, "leader_election": True})
    async with Service(settings) as made:
        await made.until_ready(60)
        yield made


async def call(service: Service, verb: str, body: dict[str, Any]) -> Any:
    async with aiohttp.ClientSession() as session, session.post(f"{service.url}/scheduler/{verb}", json=body) as reply:
        assert reply.status == 200, await reply.text()
        return await reply.json()


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.1)


async def test_the_rights_of_the_manifests_are_enough_from_filter_to_bind_and_back(
    cluster: Cluster, service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    pod, waiting = cluster.pod_with_claim("one"), cluster.pod_with_claim("two")
    names = {"Nodes": None, "NodeNames": [cluster.name]}
    await eventually(lambda: service.engine and service.engine.scheduling.pods.named(cluster.name, "one"))
    assert (await call(service, "filter", {"Pod": pod} | names))["NodeNames"] == [cluster.name]
    meta = pod["metadata"]
    binding = {"PodName": "one", "PodNamespace": cluster.name, "PodUID": meta["uid"], "Node": cluster.name}
    assert await call(service, "bind", binding) == {"Error": ""}
    claim = cluster.get("resourceclaim", "one")
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "device-0"
    assert claim["status"]["reservedFor"][0]["uid"] == meta["uid"]
    assert cluster.get("pod", "one")["spec"]["nodeName"] == cluster.name
    refused = await call(service, "filter", {"Pod": waiting} | names)
    assert refused["FailedAndUnresolvableNodes"] == {cluster.name: "cannot allocate all claims"}
    rung = cluster.plane.kubectl("get", "resourceclaims", "--namespace=dra-system", "--output=name")
    assert "dra-extender-doorbell" in rung
    # The controller frees the claim of a deleted pod; we see it and let the other pod have the device.
    cluster.plane.kubectl("delete", "pod", "one", f"--namespace={cluster.name}", "--force", "--grace-period=0")
    await eventually(lambda: "allocation" not in cluster.get("resourceclaim", "one").get("status", {}))
    async with asyncio.timeout(30):
        while not (await call(service, "filter", {"Pod": waiting} | names))["NodeNames"]:
            await asyncio.sleep(0.1)
    log = capfd.readouterr()
    assert "right missing" not in log.out + log.err


@pytest.fixture
async def scheduler(plane: ControlPlane, service: Service) -> AsyncIterator[str]:
    """A stock kube-scheduler with the shipped configuration, its extenders pointed at the service."""
    config = yaml.safe_load((ROOT / "scheduler_config" / "secondary-scheduler.yaml").read_text())
    config["leaderElection"] = {"leaderElect": False}
    for extender in config["extenders"]:
        extender["urlPrefix"] = service.url + "/scheduler"
        del extender["enableHTTPS"], extender["tlsConfig"]
    # Starting and stopping it takes seconds, in which the service has to go on.
    await asyncio.to_thread(
        plane.start_scheduler, "dra-scheduler", config, {**plane.feature_gates, "SchedulerPopFromBackoffQ": False}
    )
    yield config["profiles"][0]["schedulerName"]
    await asyncio.to_thread(plane.stop_component, "dra-scheduler")


async def test_a_stock_scheduler_places_pods_through_us_and_wakes_the_refused(
    cluster: Cluster, service: Service, scheduler: str
) -> None:
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    patch = json.dumps({"status": {"allocatable": resources, "capacity": resources}})
    await asyncio.to_thread(
        cluster.plane.kubectl, "patch", "node", cluster.name, "--subresource=status", f"--patch={patch}"
    )
    names = ["one", "two", "three"]
    for name in names:
        await asyncio.to_thread(cluster.pod_with_claim, name, scheduler)

    async def bound(number: int) -> list[str]:
        async with asyncio.timeout(60):
            while True:
                pods = [await asyncio.to_thread(cluster.get, "pod", name) for name in names]
                placed = [str(pod["metadata"]["name"]) for pod in pods if pod["spec"].get("nodeName")]
                if len(placed) == number:
                    return placed
                await asyncio.sleep(0.1)

    await bound(1)
    # Slices wake nobody in kube-scheduler: the doorbell has to.
    await asyncio.to_thread(cluster.publish, 2)
    first = (await bound(2))[0]
    # A deleted pod frees its claim's device for the last one.
    await asyncio.to_thread(
        cluster.plane.kubectl, "delete", "pod", first, f"--namespace={cluster.name}", "--force", "--grace-period=0"
    )
    names.remove(first)
    assert await bound(2) == names
    claims = [await asyncio.to_thread(cluster.get, "resourceclaim", name) for name in names]
    devices = {claim["status"]["allocation"]["devices"]["results"][0]["device"] for claim in claims}
    assert devices == {"device-0", "device-1"}
