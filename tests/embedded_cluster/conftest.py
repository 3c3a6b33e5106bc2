"""A small embedded cluster, and an extender that does what a test tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dra_extender.api.decoding import encode
from dra_extender.api.resource import FINALIZER, ResourceClaim
from embedded_cluster.cluster import EmbeddedCluster
from tests.support.embedded.extender import ScriptedExtender
from tests.support.embedded.manifests import Make, claim_manifest, pod_manifest


@pytest.fixture
async def extender() -> AsyncIterator[ScriptedExtender]:
    scripted = ScriptedExtender()
    application = web.Application(client_max_size=2**26)
    application.router.add_post("/scheduler/{verb}", scripted.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    scripted.url = f"http://{host}:{port}"
    yield scripted
    await runner.cleanup()


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three nodes with two GPUs each; no scheduler yet."""
    async with EmbeddedCluster(nodes=3, devices=2, seed=1, fabric_delay=0.02) as running:
        yield running
        running.check()


Allocate = Callable[..., Awaitable[None]]


@pytest.fixture
def allocate(cluster: EmbeddedCluster) -> Allocate:
    """Write an allocation as a scheduler would: the finalizer, then devices and reservations in one status write."""

    async def write(
        namespace: str,
        name: str,
        device: str = "gpu-0",
        node: str = "node-1",
        pods: tuple[str, ...] = (),
        result: dict[str, Any] | None = None,
        reserve: bool = True,
    ) -> None:
        claim = cluster.claim(namespace, name)
        assert claim is not None
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
        await cluster.client.patch(path, encode({"metadata": {"finalizers": [FINALIZER]}}))
        found = [cluster.pod(namespace, pod) for pod in pods]
        consumers = [
            {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in found if pod is not None
        ]
        request = claim.spec.devices.requests[0].name
        entry = {"request": request, "driver": "gpu.example.com", "pool": node, "device": device, **(result or {})}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation = {
            "devices": {"results": [entry]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
        status = {"allocation": allocation, "reservedFor": consumers if reserve else []}
        await cluster.client.patch(f"{path}/status", encode({"status": status}))

    return write


Bind = Callable[[str, str, str], Awaitable[None]]


@pytest.fixture
def bind(cluster: EmbeddedCluster) -> Bind:
    """Bind a pod to a node."""

    async def write(namespace: str, name: str, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        }
        await cluster.client.create(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", msgspec.json.encode(body))

    return write


@pytest.fixture
def pod() -> Make:
    return pod_manifest


@pytest.fixture
def claim() -> Make:
    return claim_manifest


@pytest.fixture
def claim_of() -> Callable[[EmbeddedCluster, str, str], ResourceClaim]:
    """The claim of this key; without it, the test fails."""

    def find(cluster: EmbeddedCluster, namespace: str, name: str) -> ResourceClaim:
        found = cluster.claim(namespace, name)
        assert found is not None, f"no claim {namespace}/{name}"
        return found

    return find
