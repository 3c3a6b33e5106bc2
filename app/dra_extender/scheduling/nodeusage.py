"""What the pods on each node use besides devices, kept up to date by the watch of pods.

Promises: a watch event of a pod costs two look-ups. The resources and ports in use on a node are added up when a caller
asks, once until a pod comes or goes. Pods that will probably be bound count when the caller expects them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dra_extender.api.core import Node, Pod
from dra_extender.scheduling.noderules import NOTHING_USED, Used, Wants, together


class ResourcesInUse:
    """`put` and `drop` report bound pods, `expect` and `give_up` pods that will probably be bound."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._node: dict[str, str] = {}
        self._expected: set[str] = set()
        self._pods: dict[str, dict[str, Pod]] = {}
        self._used: dict[str, Used] = {}
        for pod in pods:
            self.put(pod)

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

    def on(self, node: str) -> Sequence[Pod]:
        """The pods on the node."""
        return list(self._pods.get(node, {}).values())

    def keeps_away(self, wants: Wants, node: Node) -> bool:
        """True when a rule about something other than devices keeps the pod from the node, or kube-scheduler would
        prefer another node because of a PreferNoSchedule taint.
        """
        if any(True for _ in wants.obstacles(node, *self.used(node.name, (wants.pod.metadata.uid,)))):
            return True
        return any(taint.effect == "PreferNoSchedule" and not wants.tolerates(taint) for taint in node.spec.taints)

    def used(self, node: str, without: Collection[str] = ()) -> Used:
        """By the pods on the node, those of these UIDs left out. Linear in the containers of the pods on the node."""
        pods = self._pods.get(node, {})
        if any(uid in pods for uid in without):
            return together(NOTHING_USED, (pod for uid, pod in pods.items() if uid not in without))
        known = self._used.get(node)
        if known is None:
            known = self._used[node] = together(NOTHING_USED, pods.values())
        return known
