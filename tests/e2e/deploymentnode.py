"""Nodes for the pods of one Deployment, each a process, and the Service that leads to them.

`DeploymentNode` is kubelet for every pod with a label. `ServiceProxy` is kube-proxy for one Service: a new connection
goes to any of the endpoints that are ready, as the EndpointSlices say, or when none is ready, to those that still serve
while they leave; a connection that is made stays.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dra_extender.api.decoding import decode
from dra_extender.api.meta import Object, ObjectMeta
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import Resource
from embedded_cluster.informer import Informer
from embedded_cluster.objects import PODS, FullPod
from tests.e2e.podprocess import PodProcess, real, shown


class EndpointConditions(Object, frozen=True, gc=False):
    ready: bool | None = None
    serving: bool | None = None


class Endpoint(Object, frozen=True, gc=False):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()


class EndpointPort(Object, frozen=True, gc=False):
    name: str = ""
    port: int = 0


class EndpointSlice(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


def _slice(data: bytes | msgspec.Raw) -> EndpointSlice:
    return decode(EndpointSlice, bytes(data))


SLICES: Resource[EndpointSlice] = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", _slice)


class DeploymentNode:
    """Runs every pod that is bound. `run` is a task; `pods`: the running pods by name."""

    def __init__(self, client: KubeClient, label: str, folder: Path, machine: Mapping[str, str]) -> None:
        self.pods: dict[str, PodProcess] = {}
        self.ended_badly: list[int] = []
        self._client = client
        self._folder = folder
        self._machine = machine
        self._known: Informer[FullPod] = Informer(client, PODS, selector={"labelSelector": label})
        self._network = random.randrange(2, 255)
        self._number = 0
        self._played: set[str] = set()
        self._group: asyncio.TaskGroup | None = None
        self._known.subscribe(self._changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._known.run())

    def _changed(self, before: FullPod | None, pod: FullPod | None) -> None:
        """A pod is played once: news of one whose node was lost, still on their way then, must not start it again."""
        if pod is None:
            if before is not None and before.metadata.name in self.pods:
                self.pods[before.metadata.name].leave()
            return
        if not pod.spec.node_name or self._group is None:
            return
        name = pod.metadata.name
        if pod.metadata.uid not in self._played and not pod.metadata.deletion_timestamp:
            self._played.add(pod.metadata.uid)
            self._number += 1
            address = shown(self._network, self._number)
            made = PodProcess(self._client, pod.metadata.namespace, name, address, self._folder, self._machine)
            self.pods[name] = made
            self._group.create_task(self._play(made))
        elif name in self.pods and pod.metadata.deletion_timestamp:
            self.pods[name].leave()

    async def _play(self, pod: PodProcess) -> None:
        await pod.run()
        self.ended_badly += pod.refused
        del self.pods[pod.name]


class ServiceProxy:
    """`url` is where port `verbs` of the Service is reached. `refused` counts connections without any endpoint."""

    def __init__(self, client: KubeClient, namespace: str, service: str) -> None:
        self.url = ""
        self.refused = 0
        selector = {
            "fieldSelector": f"metadata.namespace={namespace}",
            "labelSelector": f"kubernetes.io/service-name={service}",
        }
        self._slices: Informer[EndpointSlice] = Informer(client, SLICES, selector=selector)
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled; `url` is there before the first await ends."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            await self._slices.run()
        finally:
            server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _endpoint(self) -> tuple[str, int] | None:
        found: dict[bool, list[tuple[str, int]]] = {True: [], False: []}
        for item in self._slices.objects.values():
            (port,) = (port for port in item.ports or () if port.name == "verbs")
            for endpoint in item.endpoints or ():
                ready, serving = endpoint.conditions.ready, endpoint.conditions.serving
                if ready or serving:
                    found[bool(ready)].append((endpoint.addresses[0], port.port))
        chosen = found[True] or found[False]
        return random.choice(chosen) if chosen else None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            endpoint = self._endpoint()
            if endpoint is None:
                self.refused += 1
                return
            there = await asyncio.open_connection(real(endpoint[0]), endpoint[1])
            try:
                await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
            finally:
                there[1].close()
        except OSError:
            pass  # as a packet to a pod that is not there any more
        finally:
            self._connections.discard(task)
            writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything, then the end of it."""
    try:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
