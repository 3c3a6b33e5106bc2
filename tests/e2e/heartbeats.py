"""Signs of life of nodes that have no kubelet, for clusters whose controllers look for them.

The node lifecycle controller takes a node whose lease is not renewed for dead, and taints it. Here every node is alive
except nodes with their own kubelet: it is ready as soon as it is seen, and its lease goes on while `run` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import msgspec

from dra_extender.api.errors import ApiError, NotFoundError
from dra_extender.kube.client import STRATEGIC_PATCH, KubeClient
from embedded_cluster import manifests
from embedded_cluster.informer import Informer
from embedded_cluster.objects import FullNode

PERIOD = 10.0
"""Seconds between two renewals, and the duration of a lease: those of kubelet."""
DURATION = 40
TAKEN_FOR_DEAD = frozenset(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"))


class Heartbeats:
    """The caller runs `nodes`; `others`: the names of nodes that are left alone."""

    def __init__(self, client: KubeClient, nodes: Informer[FullNode], others: Collection[str]) -> None:
        self._client = client
        self._nodes = nodes
        self._others = frozenset(others)
        self._due = asyncio.Event()
        nodes.subscribe(self._changed)

    async def run(self) -> None:
        """For ever."""
        await self._nodes.synced.wait()
        while True:
            self._due.clear()
            for node in list(self._nodes.objects.values()):
                if node.name not in self._others:
                    await self._beat(node)
            try:
                async with asyncio.timeout(PERIOD):
                    await self._due.wait()
            except TimeoutError:
                pass  # nothing new: time for the next beat

    def schedulable(self) -> bool:
        """Whether no node of ours is taken for dead, or is still new to the controllers."""
        return not any(_taken_for_dead(node) for name, node in self._nodes.objects.items() if name not in self._others)

    def _changed(self, old: FullNode | None, new: FullNode | None) -> None:
        if new is not None and (old is None or (_taken_for_dead(new) and not _taken_for_dead(old))):
            self._due.set()

    async def _beat(self, node: FullNode) -> None:
        try:
            await manifests.apply(self._client, [_lease(node)])
            if _taken_for_dead(node):
                ready = msgspec.json.encode({"status": {"conditions": [_ready()]}})
                await self._client.patch(f"/api/v1/nodes/{node.name}/status", ready, STRATEGIC_PATCH)
        except NotFoundError:
            pass  # deleted since
        except ApiError:
            pass  # the next beat is soon enough


def _taken_for_dead(node: FullNode) -> bool:
    return any(taint.key in TAKEN_FOR_DEAD for taint in node.spec.taints)


def _lease(node: FullNode) -> dict[str, Any]:
    # The lease goes with its node.
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.metadata.uid}
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node.name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {"holderIdentity": node.name, "leaseDurationSeconds": DURATION, "renewTime": now},
    }


def _ready() -> dict[str, str]:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "there is no kubelet", **times}
