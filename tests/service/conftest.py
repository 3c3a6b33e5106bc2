"""A small cluster with devices and a service beside it, everything on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from app.embedded import EmbeddedAPIServer
from app.embedded.hardware import GPU_DRIVER, gpus, manifest, node, slices
from app.service.service import Service
from app.service.settings import load
from tests.support.patience import LONGEST

NODES = 3
DEVICES = 2

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

    def claim(self, name: str, count: int = 1) -> Json:
        exactly = {"deviceClassName": GPU_DRIVER, "allocationMode": "ExactCount", "count": count}
        return self.store.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
            }
        )

    def pod(self, name: str, claim: str = "") -> Json:
        claims = [{"name": "gpu", "resourceClaimName": claim}] if claim else []
        return self.store.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "c", "image": "pause"}], "resourceClaims": claims},
            }
        )

    def stored(self, plural: str, name: str) -> Json:
        found = self.store.get(plural, name, "default")
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


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with EmbeddedAPIServer(seed=1) as api, aiohttp.ClientSession() as session:
        made = World(api, session)
        made.populate()
        yield made


StartService = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def start_service(world: World) -> StartService:
    """A running service; extra settings as arguments."""

    @asynccontextmanager
    async def start(*, wait: bool = True, **settings: Any) -> AsyncIterator[Service]:
        given = {"listen": "127.0.0.1:0", "server": world.api.url, "shutdown_grace": 2.0} | settings
        async with Service(load(given)) as service:
            if wait:
                await service.until_ready(LONGEST)
            yield service

    return start


@pytest.fixture
async def service(start_service: StartService) -> AsyncIterator[Service]:
    async with start_service() as made:
        yield made
