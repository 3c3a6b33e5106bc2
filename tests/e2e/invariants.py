"""Looks at the cluster all the time and remembers everything that must never be: the tests' second opinion.

Devices held twice are found on every single change of a claim, in the order of the API server. What needs several
kinds of objects to be told (capacity, counters, pods and their claims) is found when two looks in a row agree, because
two lists are never of the same moment.

kube-controller-manager may create a claim twice when it loses the reply, and let the pod name the second one even after
the pod was bound. No scheduler can help that: such pods are left out.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from dra_extender.api.core import Node
from dra_extender.api.errors import ApiError
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from dra_extender.scheduling.claims import claim_names
from embedded_cluster.informer import Informer
from embedded_cluster.invariants import violations
from embedded_cluster.kubelet import obstacle
from embedded_cluster.objects import NODES, PODS, FullPod

PERIOD = 0.25
T = TypeVar("T")


class Invariants:
    """`found` grows; `looks` counts the looks that succeeded."""

    def __init__(self, client: KubeClient, claims: Informer[ResourceClaim], pods: Informer[FullPod]) -> None:
        self.found: list[str] = []
        self.looks = 0
        self._client = client
        self._claims = claims
        self._suspects: set[str] = set()
        self._renamed: set[str] = set()
        """UIDs of bound pods that name other claims than when they were bound."""
        claims.subscribe(self._claim_changed)
        pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                await self._look()
            except ApiError:
                pass  # an API server that is away breaks no promise
            await asyncio.sleep(PERIOD)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if new is not None and new.allocation is not None and (old is None or old.allocation != new.allocation):
            told = violations(self._claims.objects.values(), (), (), {})
            self._remember(sentence for sentence in told if "more than once" in sentence)

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        if old is not None and new is not None and old.spec.node_name and claim_names(old) != claim_names(new):
            self._renamed.add(new.metadata.uid)

    async def _look(self) -> None:
        # A pod is bound after its claims are reserved: claims listed later are never too old for it.
        pods = [pod for pod in await self._list(PODS) if pod.metadata.uid not in self._renamed]
        claims = await self._list(RESOURCE_CLAIMS)
        slices: list[ResourceSlice] = await self._list(RESOURCE_SLICES)
        nodes: dict[str, Node] = {node.metadata.name: node for node in await self._list(NODES)}
        told = set(violations(claims, pods, slices, nodes)) | set(_bound_without(pods, claims))
        self._remember(told & self._suspects)
        self._suspects = told
        self.looks += 1

    async def _list(self, resource: Resource[T]) -> list[T]:
        listed = msgspec.json.decode(await self._client.get(resource.path()), type=_List)
        return [resource.decode(item) for item in listed.items]

    def _remember(self, sentences: Any) -> None:
        self.found += [sentence for sentence in sentences if sentence not in self.found]


class _List(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


def _bound_without(pods: list[FullPod], claims: list[ResourceClaim]) -> list[str]:
    """Bound pods whose claims are not all allocated and reserved for them."""
    stored = {claim.metadata.key: claim for claim in claims}
    found = []
    for pod in pods:
        if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed") or pod.metadata.deletion_timestamp:
            continue
        missing = obstacle(pod, lambda namespace, name: stored.get(f"{namespace}/{name}"))
        if missing:
            found.append(f"pod {pod.metadata.key} is bound although {missing}")
    return found
