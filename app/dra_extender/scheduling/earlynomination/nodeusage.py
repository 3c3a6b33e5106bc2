"""The resources and ports in use on each node, by pods that run there and by pods that are expected there.

Promises: a watch event of a pod costs two look-ups. The pods of a node are added up when a caller asks, once until a
pod comes or goes.
"""

from __future__ import annotations

from collections.abc import Mapping

from dra_extender.api.core import Node, Pod, requested
from dra_extender.scheduling.noderules import Port, Wants, taken_by

_Used = tuple[Mapping[str, int], int, frozenset[Port]]
"""(requests of all pods, in nano units; number of pods; their host ports)"""


class ResourcesInUse:
    """`put` and `drop` report bound pods, `expect` and `give_up` pods that will probably be bound."""

    def __init__(self) -> None:
        self._node: dict[str, str] = {}
        self._expected: set[str] = set()
        self._pods: dict[str, dict[str, Pod]] = {}
        self._used: dict[str, _Used] = {}

    def put(self, pod: Pod) -> None:
        """The watch shows the pod. It counts on its node, if it has one."""
        uid = pod.metadata.uid
        if pod.finished:
            self.drop(uid)
        elif pod.spec.node_name:
            self._expected.discard(uid)
            self._place(pod, pod.spec.node_name)

    def drop(self, uid: str) -> None:
        """The pod was deleted."""
        self._expected.discard(uid)
        node = self._node.pop(uid, None)
        if node is not None:
            pods = self._pods[node]
            del pods[uid]
            self._used.pop(node, None)
            if not pods:
                del self._pods[node]

    def expect(self, pod: Pod, node: str) -> None:
        """The pod will probably be bound to the node."""
        self._expected.add(pod.metadata.uid)
        self._place(pod, node)

    def give_up(self, uid: str) -> None:
        """The pod is no longer expected. It stays when it has been bound."""
        if uid in self._expected:
            self.drop(uid)

    def _place(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        if self._node.get(uid) != node:
            expected = uid in self._expected
            self.drop(uid)
            if expected:
                self._expected.add(uid)
            self._node[uid] = node
            self._pods.setdefault(node, {})[uid] = pod
            self._used.pop(node, None)

    def keeps_away(self, wants: Wants, node: Node) -> bool:
        """True when a rule about something other than devices keeps the pod from the node, or kube-scheduler would
        prefer another node because of a PreferNoSchedule taint.
        """
        uid = wants.pod.metadata.uid
        used = self._known(node.name) if self._node.get(uid) != node.name else self._add_up(node.name, without=uid)
        if any(True for _ in wants.obstacles(node, *used)):
            return True
        return any(taint.effect == "PreferNoSchedule" and not wants.tolerates(taint) for taint in node.spec.taints)

    def _known(self, node: str) -> _Used:
        known = self._used.get(node)
        if known is None:
            known = self._used[node] = self._add_up(node)
        return known

    def _add_up(self, node: str, without: str = "") -> _Used:
        """Linear in the containers of the pods on the node."""
        total: dict[str, int] = {}
        count = 0
        taken: set[Port] = set()
        for uid, pod in self._pods.get(node, {}).items():
            if uid == without:
                continue
            count += 1
            for name, amount in requested(pod).items():
                total[name] = total.get(name, 0) + amount
            taken |= taken_by(pod)
        return total, count, frozenset(taken)
