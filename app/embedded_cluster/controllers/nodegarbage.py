"""Pods of nodes that are gone are deleted, at once: nobody is there who would end them.

Rules: Kubernetes 1.36, pkg/controller/podgc (gcOrphaned), without its quarantine of 40 seconds.
"""

from __future__ import annotations

import asyncio

import msgspec

from dra_extender.api.errors import ConflictError, NotFoundError
from dra_extender.kube.client import KubeClient
from embedded_cluster.informer import Informer
from embedded_cluster.objects import FullNode, FullPod
from embedded_cluster.workqueue import RateLimitedQueue


class NodeGarbage:
    """`run` never returns. `pods` must have the index "node"."""

    def __init__(self, client: KubeClient, nodes: Informer[FullNode], pods: Informer[FullPod]) -> None:
        self._client = client
        self._nodes = nodes
        self._pods = pods
        self.queue = RateLimitedQueue("podgc", self._sync)
        nodes.subscribe(self._node_changed)
        pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._nodes.synced.wait(), self._pods.synced.wait())
        await self.queue.run()

    def _node_changed(self, old: FullNode | None, new: FullNode | None) -> None:
        if old is not None and new is None:
            for pod in self._pods.find("node", old.name):
                self.queue.add(pod.metadata.key)

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        if new is not None and new.spec.node_name and self._nodes.get("", new.spec.node_name) is None:
            self.queue.add(new.metadata.key)

    async def _sync(self, key: str) -> None:
        pod = self._pods.objects.get(key)
        if pod is None or not pod.spec.node_name:
            return
        if self._nodes.get("", pod.spec.node_name) is not None or not await self._is_gone(pod.spec.node_name):
            return
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode(options))
        except (NotFoundError, ConflictError):
            return

    async def _is_gone(self, node: str) -> bool:
        """True when the API server does not know it either: a new node may be seen after its first pod."""
        try:
            await self._client.get(self._nodes.resource.path("", node))
        except NotFoundError:
            return True
        return False
