"""A small HTTP client for the tests of the embedded API server, and the objects they use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
import orjson

from embedded_cluster.apiserver import EmbeddedAPIServer
from tests.support.patience import LONGEST

JSON = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> JSON:
    obj: JSON = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return {**obj, "data": data} if data is not None else obj


def pod(name: str, spec: JSON | None = None, **metadata: Any) -> JSON:
    containers = [{"name": "main", "image": "busybox:1"}]
    metadata = {"name": name, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **(spec or {})}}


def claim(name: str, **metadata: Any) -> JSON:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": requests}},
    }


def resource_slice(name: str, node: str = "n1", devices: int = 1) -> JSON:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"gpu-{index}",
                    "attributes": {"model": {"string": "A100"}, "index": {"int": index}},
                    "capacity": {"memory": {"value": "40Gi"}},
                }
                for index in range(devices)
            ],
        },
    }


ALLOCATION: JSON = {
    "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]}
}


class Watching:
    """The events of one watch, in order."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> JSON:
        """The next event; raises EOFError when the watch has ended."""
        async with asyncio.timeout(LONGEST):
            line = await self._response.content.readline()
        if not line:
            raise EOFError
        event: JSON = orjson.loads(line)
        return event

    async def told(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next `count` events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


class Client:
    """Sends requests to one server; answers are (code, JSON)."""

    def __init__(self, server: EmbeddedAPIServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", accept: str = ""
    ) -> tuple[int, JSON]:
        headers = {"Content-Type": content_type, **({"Accept": accept} if accept else {})}
        data = None if body is None else BytesIO(body if isinstance(body, bytes) else orjson.dumps(body))
        async with self.session.request(method, self.server.url + path, data=data, headers=headers) as response:
            return response.status, orjson.loads(await response.read())

    async def get(self, path: str, accept: str = "") -> JSON:
        code, body = await self.request("GET", path, accept=accept)
        assert code == 200, body
        return body

    async def post(self, path: str, body: JSON) -> JSON:
        code, answer = await self.request("POST", path, body)
        assert code == 201, answer
        return answer

    async def patch(self, path: str, body: Any, content_type: str = MERGE) -> JSON:
        code, answer = await self.request("PATCH", path, body, content_type=content_type)
        assert code in (200, 201), answer
        return answer

    async def apply(self, path: str, body: JSON, manager: str, *, force: bool = False) -> tuple[int, JSON]:
        query = f"?fieldManager={manager}" + ("&force=true" if force else "")
        return await self.request("PATCH", path + query, body, content_type=APPLY)

    async def delete(self, path: str, body: JSON | None = None) -> JSON:
        code, answer = await self.request("DELETE", path, body)
        assert code == 200, answer
        return answer

    @asynccontextmanager
    async def watch(self, path: str, query: str = "") -> AsyncIterator[Watching]:
        """Watch from now on, or from where `query` says."""
        if "resourceVersion=" not in query:
            query = f"resourceVersion={self.server.store.revision}&{query}"
        async with self.session.get(f"{self.server.url}{path}?watch=1&{query}") as response:
            assert response.status == 200
            yield Watching(response)
