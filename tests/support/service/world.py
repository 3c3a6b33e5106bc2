"""An API server with a small cluster in it, and a service as kube-scheduler calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import aiohttp

from dra_extender.api.resource import FINALIZER
from dra_extender.service.service import Service
from dra_extender.service.settings import load
from embedded_cluster import EmbeddedAPIServer
from embedded_cluster.hardware import GPU_DRIVER, gpus, manifest, node, slices
from tests.support.patience import LONGEST

NODES = 3


DEVICES = 2


ELECTION: dict[str, Any] = {
    "leader_election": True,
    "retry_period": LONGEST,
    "renew_deadline": LONGEST + 1,
    "lease_duration": LONGEST + 2,
}
"""Nothing that happens in time is found by asking from time to time."""


Json = dict[str, Any]


class World:
    """The API server's contents as tests need them, and calls to a service as kube-scheduler makes them."""

    def __init__(self, api: EmbeddedAPIServer, session: aiohttp.ClientSession) -> None:
        self.api = api
        self.store = api.store
        self._session = session

    def populate(self) -> None:
        self.store.create(
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": GPU_DRIVER}, "spec": {}}
        )
        for index in range(NODES):
            self.store.create(node(index))
            for published in slices(gpus(index, DEVICES), 1):
                self.store.create(manifest(published))

    @property
    def nodes(self) -> list[str]:
        return [str(node(index)["metadata"]["name"]) for index in range(NODES)]

    def claim(self, name: str, count: int = 1, request: str = "gpu") -> Json:
        exactly = {"deviceClassName": GPU_DRIVER, "allocationMode": "ExactCount", "count": count}
        return self.store.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [{"name": request, "exactly": exactly}]}},
            }
        )

    def pod(self, name: str, claim: str = "", *, node: str = "") -> Json:
        """A pod that uses the claim; with `node` it is bound already."""
        claims = [{"name": "gpu", "resourceClaimName": claim}] if claim else []
        return self.store.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "c", "image": "pause"}], "resourceClaims": claims}
                | ({"nodeName": node} if node else {}),
            }
        )

    def published(self, node: str) -> Json:
        """The slice of the node; store it again to change it."""
        name = next(s["metadata"]["name"] for s in self.store.list("resourceslices") if s["spec"]["nodeName"] == node)
        return self.stored("resourceslices", name, "")

    def allocate(self, claim: str, pod: str, node: str, device: str = "") -> None:
        """The claim as another allocator left it: it has this device of the node, or its first, for the pod."""
        stored = self.stored("resourceclaims", claim)
        stored["metadata"]["finalizers"] = [FINALIZER]
        self.store.update(stored)
        stored = self.stored("resourceclaims", claim)
        spec = self.published(node)["spec"]
        device = device or spec["devices"][0]["name"]
        result = {"request": "gpu", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device}
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        stored["status"] = {
            "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": self.stored("pods", pod)["metadata"]["uid"]}],
        }
        self.store.update(stored, subresource="status")

    def stored(self, plural: str, name: str, namespace: str = "default") -> Json:
        found = self.store.get(plural, name, namespace)
        assert found is not None
        return found

    async def call(self, url: str, verb: str, body: Json) -> Json:
        async with self._session.post(f"{url}/scheduler/{verb}", json=body) as reply:
            assert reply.status == 200, await reply.text()
            answer: Json = await reply.json()
            return answer

    async def filter(self, service: Service, pod: Json, nodes: list[str] | None = None) -> Json:
        names = self.nodes if nodes is None else nodes
        return await self.call(service.url, "filter", {"Pod": pod, "Nodes": None, "NodeNames": names})

    async def bind(self, service: Service, pod: Json, node: str) -> str:
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": node}
        return str((await self.call(service.url, "bind", body))["Error"])

    async def get(self, url: str) -> tuple[int, Any]:
        async with self._session.get(url) as reply:
            return reply.status, await (reply.json() if "json" in reply.content_type else reply.text())


@asynccontextmanager
async def populated() -> AsyncIterator[World]:
    """Three nodes with two GPUs each, and nothing else."""
    async with EmbeddedAPIServer(seed=1) as api, aiohttp.ClientSession() as session:
        made = World(api, session)
        made.populate()
        yield made


class StartService(Protocol):
    """A running service; extra settings as arguments. With `wait` it is ready."""

    def __call__(self, *, wait: bool = True, **settings: Any) -> AbstractAsyncContextManager[Service]: ...


def serve(url: str) -> Service:
    """A service that is not started yet."""
    return Service(load({"listen": "127.0.0.1:0", "server": url}))


def leader(world: World) -> str:
    """The holder of the lease; empty without one."""
    return str(world.stored("leases", "dra-extender", "dra-system")["spec"]["holderIdentity"])
