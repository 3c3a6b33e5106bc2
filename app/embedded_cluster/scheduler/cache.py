"""What the scheduler knows about pods and nodes: bound pods, and assumed ones that are being bound.

An assumed pod takes its room at once and keeps it until the watch shows where it really is, or until it is forgotten.
A `PodRecord` is a pod typed for the scheduler's own use, and whole for the extenders.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dra_extender.api.core import requested
from dra_extender.api.decoding import decode
from dra_extender.api.meta import ObjectMeta
from dra_extender.kube.resources import Resource
from embedded_cluster.objects import PODS, FullNode, FullPod
from embedded_cluster.scheduler.fit import Amounts, NodeUsage


class PodRecord(msgspec.Struct, frozen=True):
    """A pod, and its JSON as served while it has no node (extenders are asked about pods without a node only)."""

    pod: FullPod
    raw: bytes

    @property
    def metadata(self) -> ObjectMeta:
        return self.pod.metadata


def _decode(data: bytes | msgspec.Raw) -> PodRecord:
    pod = decode(FullPod, data)
    return PodRecord(pod, b"" if pod.spec.node_name else bytes(data))


def pod_records() -> Resource[PodRecord]:
    """The pods resource, decoded into records."""
    return Resource(PODS.group, PODS.version, PODS.plural, PODS.kind, _decode)


class PodInfo(msgspec.Struct, frozen=True):
    """Where a pod is and what it takes there."""

    pod: FullPod
    node: str
    asked: Amounts
    assumed: bool


class Cache:
    """Nodes in a stable order, and the room taken on each. Pods may be bound to nodes that are not known (yet)."""

    def __init__(self) -> None:
        self.nodes: dict[str, FullNode] = {}
        self._rooms: dict[str, NodeUsage] = {}
        self._places: dict[str, PodInfo] = {}
        self._names: list[str] | None = None
        self._on_node: dict[str, dict[str, FullPod]] = {}
        self._nominated: dict[str, PodInfo] = {}
        """Pods for which others were evicted: their room must not go to less important ones."""

    def names(self) -> list[str]:
        """The nodes in the order in which they came; shared, not to be changed."""
        if self._names is None:
            self._names = list(self.nodes)
        return self._names

    def room(self, node: str) -> NodeUsage:
        found = self._rooms.get(node)
        if found is None:
            found = self._rooms[node] = NodeUsage()
        return found

    def node_changed(self, old: FullNode | None, new: FullNode | None) -> None:
        if new is not None:
            if new.name not in self.nodes:
                self._names = None
            self.nodes[new.name] = new
        elif old is not None:
            self.nodes.pop(old.name, None)
            self._names = None

    def bound(self, pod: FullPod) -> None:
        """The watch shows the pod on a node."""
        self._put(PodInfo(pod, pod.spec.node_name, requested(pod), assumed=False))

    def assume(self, pod: FullPod, node: str, asked: Amounts) -> None:
        """A node was found for the pod and it will be bound there."""
        self._put(PodInfo(pod, node, asked, assumed=True))

    def pods_on(self, node: str) -> list[FullPod]:
        """The pods that are bound, or being bound, to a node."""
        return list(self._on_node.get(node, {}).values())

    def nominate(self, pod: FullPod, node: str, asked: Amounts) -> None:
        """Room is being made for the pod on this node; an empty node takes that back."""
        self._nominated.pop(pod.metadata.uid, None)
        if node:
            self._nominated[pod.metadata.uid] = PodInfo(pod, node, asked, assumed=True)

    def room_for(self, pod: FullPod, node: str) -> NodeUsage:
        """The room on a node as this pod sees it: what is kept for others as important as it is taken."""
        room = self.room(node)
        kept = [
            place
            for uid, place in self._nominated.items()
            if place.node == node and uid != pod.metadata.uid and place.pod.spec.priority >= pod.spec.priority
        ]
        if kept:
            room = NodeUsage(dict(room.amounts), room.pods)
            for place in kept:
                room.take(place.asked)
        return room

    def assumed(self, uid: str) -> bool:
        place = self._places.get(uid)
        return place is not None and place.assumed

    def forget(self, uid: str) -> bool:
        """The pod was not bound after all. False when the watch has shown that it was."""
        if not self.assumed(uid):
            return False
        self.gone(uid)
        return True

    def gone(self, uid: str) -> None:
        """The pod has ended or was deleted."""
        self._nominated.pop(uid, None)
        place = self._places.pop(uid, None)
        if place is not None:
            self.room(place.node).give(place.asked)
            self._on_node[place.node].pop(uid, None)

    def _put(self, place: PodInfo) -> None:
        uid = place.pod.metadata.uid
        self.gone(uid)
        self._places[uid] = place
        self.room(place.node).take(place.asked)
        self._on_node.setdefault(place.node, {})[uid] = place.pod


class Rotation:
    """Where the search for feasible nodes starts: behind the last one looked at, so that all nodes get their turn."""

    def __init__(self) -> None:
        self._start = 0

    def feasible(self, names: list[str], wanted: int, fits: Callable[[str], bool]) -> list[str]:
        """The first `wanted` nodes that fit, in rotated order."""
        count = len(names)
        start = self._start % count if count else 0
        found: list[str] = []
        looked_at = 0
        for offset in range(count):
            name = names[(start + offset) % count]
            looked_at += 1
            if fits(name):
                found.append(name)
                if len(found) >= wanted:
                    break
        self._start = (start + looked_at) % count if count else 0
        return found
