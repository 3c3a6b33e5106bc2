"""A steady stream of pods with a claim each, and when they were bound.

They do not run, and go as soon as they are bound: the devices are for those behind them, and a cluster of any size
holds the stream. On a machine that cannot keep up fewer come, so that it is not buried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from dra_extender.kube.client import KubeClient
from embedded_cluster.informer import Informer
from embedded_cluster.objects import PODS, FullPod

STREAMED = "streamed"
"""The name in the labels of the pods: no kubelet runs them."""
RATE = 20
"""Pods a second, whether or not those before them are bound, as long as no more than these wait."""
MOST_WAITING = 20


class Stream:
    """`run` it as a task, `stop` lets the last pods be bound. Times are those of the event loop."""

    def __init__(self, client: KubeClient, namespace: str, device_class: str, scheduler: str) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self._client = client
        self._namespace = namespace
        self._class = device_class
        self._scheduler = scheduler
        self._going_on = True
        self._tasks: asyncio.TaskGroup | None = None
        self._pods: Informer[FullPod] = Informer(
            client, PODS, selector={"fieldSelector": f"metadata.namespace={namespace}"}
        )
        self._pods.subscribe(self._changed)

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        started = clock()
        async with asyncio.TaskGroup() as self._tasks:
            group = self._tasks
            watching = group.create_task(self._pods.run())
            number = 0
            while self._going_on:
                if len(self.waiting) < MOST_WAITING:
                    self.created[f"s{len(self.created)}"] = clock()
                    group.create_task(self._create(f"s{len(self.created) - 1}"))
                number += 1
                await asyncio.sleep(max(0.0, started + number / RATE - clock()))
            while self.waiting:
                await asyncio.sleep(0.05)
            watching.cancel()

    def stop(self) -> None:
        self._going_on = False

    @property
    def waiting(self) -> list[str]:
        """Pods that are not bound, oldest first. Another thread may ask while more come."""
        return [name for name in tuple(self.created) if name not in self.bound]

    def gap(self, since: float, until: float) -> float:
        """The longest time in which no pod was bound."""
        return max(later - earlier for earlier, later in pairwise(self._times(since, until)))

    def _times(self, since: float, until: float) -> Iterator[float]:
        yield since
        yield from (time for time in sorted(self.bound.values()) if since < time < until)
        yield until

    def _changed(self, _: FullPod | None, pod: FullPod | None) -> None:
        if pod is None or not pod.spec.node_name or pod.metadata.name in self.bound:
            return
        self.bound[pod.metadata.name] = asyncio.get_running_loop().time()
        if self._tasks is not None:
            self._tasks.create_task(self._delete(pod.metadata.name))

    async def _delete(self, name: str) -> None:
        at_once = msgspec.json.encode({"gracePeriodSeconds": 0})
        root = f"namespaces/{self._namespace}"
        await self._client.delete(f"/api/v1/{root}/pods/{name}", at_once)
        await self._client.delete(f"/apis/resource.k8s.io/v1/{root}/resourceclaims/{name}")

    async def _create(self, name: str) -> None:
        claim: dict[str, Any] = {
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": self._class}}]}},
        }
        pod: dict[str, Any] = {
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": STREAMED}},
            "spec": {
                "schedulerName": self._scheduler,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "none"}],
                "resourceClaims": [{"name": "c", "resourceClaimName": name}],
            },
        }
        root = f"namespaces/{self._namespace}"
        await self._client.create(f"/apis/resource.k8s.io/v1/{root}/resourceclaims", msgspec.json.encode(claim))
        await self._client.create(f"/api/v1/{root}/pods", msgspec.json.encode(pod))
