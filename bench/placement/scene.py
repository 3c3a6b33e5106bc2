"""A cluster with an API server in which pods of a workload are placed one by one by the scheduler under test.

Promises: one attempt for each pod. A refused pod is deleted with its claim before the next pod comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from bench.placement.trace import Job, Machine
from bench.placement.world import node_of, slices_of, spec_of
from dra_extender.api.core import Pod
from dra_extender.api.decoding import decode, to_builtins
from dra_extender.api.errors import NotFoundError
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import PODS
from dra_extender.placement.policies import ANNOTATION, PolicyName

RESOURCE: Final = "/apis/resource.k8s.io/v1"
LONGEST: Final = 60.0
"""Seconds after which an undecided pod is an error."""
_SECONDS: Final = 0.02
"""Between two looks at a pod."""


class Ended(msgspec.Struct, frozen=True):
    """What came of a workload: milli of GPUs, and pods."""

    asked: int
    allocated: int
    arrived: int
    placed: int


class Scene(msgspec.Struct, frozen=True):
    """Where pods come to. `prefix` begins all names."""

    client: KubeClient
    namespace: str
    scheduler: str
    policy: PolicyName
    device_class: str
    prefix: str = ""

    async def play(self, jobs: Iterable[Job]) -> Ended:
        """The pods come, each when the one before it was decided on."""
        asked = allocated = arrived = placed = 0
        for number, job in enumerate(jobs):
            asked, arrived = asked + job.demand, arrived + 1
            if await self.place(f"{self.prefix}pod-{number}", job):
                allocated, placed = allocated + job.demand, placed + 1
        return Ended(asked, allocated, arrived, placed)

    async def place(self, name: str, job: Job) -> str:
        """The node of the pod; empty when it was refused, and is gone."""
        claims = f"{RESOURCE}/namespaces/{self.namespace}/resourceclaims"
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        if job.gpus:
            await self.client.create(claims, msgspec.json.encode(self._claim(name, job)))
        await self.client.create(pods, msgspec.json.encode(self._pod(name, job)))
        node = await self._decided(name)
        if not node:
            await self.client.delete(f"{pods}/{name}", msgspec.json.encode({"gracePeriodSeconds": 0}))
            if job.gpus:
                await self.client.delete(f"{claims}/{name}")
            await self._gone(name)
        return node

    async def _decided(self, name: str) -> str:
        """Raises TimeoutError when no scheduler decides."""
        async with asyncio.timeout(LONGEST):
            while True:
                pod = await self._look(name)
                if pod.spec.node_name:
                    return pod.spec.node_name
                if any(item.type == "PodScheduled" and item.status == "False" for item in pod.status.conditions):
                    return ""
                await asyncio.sleep(_SECONDS)

    async def _gone(self, name: str) -> None:
        async with asyncio.timeout(LONGEST):
            while True:
                try:
                    await self._look(name)
                except NotFoundError:
                    return
                await asyncio.sleep(_SECONDS)

    async def _look(self, name: str) -> Pod:
        return decode(Pod, await self.client.get(PODS.path(self.namespace, name)))

    def _claim(self, name: str, job: Job) -> dict[str, Any]:
        spec = spec_of(job)
        for request in spec["devices"]["requests"]:
            request["exactly"]["deviceClassName"] = self.device_class
        return {"metadata": {"name": name}, "spec": spec}

    def _pod(self, name: str, job: Job) -> dict[str, Any]:
        requests = {"cpu": f"{job.cpu}m", "memory": f"{job.memory}Mi"}
        container = {"name": "main", "image": "none", "resources": {"requests": requests}}
        spec: dict[str, Any] = {
            "containers": [container], "schedulerName": self.scheduler, "terminationGracePeriodSeconds": 0,
        }  # fmt: skip
        if job.gpus:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
        return {"metadata": {"name": name, "annotations": {ANNOTATION: self.policy}}, "spec": spec}


def nodes(machines: Sequence[Machine]) -> Iterator[dict[str, Any]]:
    """Nodes that are ready and have what the machines have."""
    for machine in machines:
        made: dict[str, Any] = to_builtins(node_of(machine.name, machine))
        made["metadata"]["labels"] = {"kubernetes.io/hostname": machine.name}
        made["status"]["capacity"] = made["status"]["allocatable"]
        made["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        yield {"apiVersion": "v1", "kind": "Node", **made}


def slices(machines: Sequence[Machine]) -> Iterator[dict[str, Any]]:
    """What drivers publish for them."""
    for machine in machines:
        for item in slices_of(machine.name, machine):
            made: dict[str, Any] = to_builtins(item)
            made["metadata"] = {"name": made["metadata"]["name"]}
            yield {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **made}


def device_class(name: str, driver: str) -> dict[str, Any]:
    """All devices of the driver."""
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    body = {"metadata": {"name": name}, "spec": {"selectors": selectors}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **body}
