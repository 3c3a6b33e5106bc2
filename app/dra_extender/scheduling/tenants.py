"""The pods by node, and what they use of it besides devices.

Promises: pure, and looked up once: what the pods of a node use is added up at the first question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dra_extender.api.core import Pod, requested
from dra_extender.scheduling.noderules import Port, ports

Used = tuple[Mapping[str, int], int, frozenset[Port]]
"""(What pods ask for by resource, in nano units; how many they are; their host ports.)"""

_NOTHING: Final[Used] = ({}, 0, frozenset())


class Tenants:
    """Of one state of the cluster; those that have ended are left out."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._by_node: dict[str, list[Pod]] = {}
        self._known: dict[str, Used] = {}
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> None:
        """One more pod, unless it has no node or has finished."""
        if pod.spec.node_name and not pod.finished:
            self._by_node.setdefault(pod.spec.node_name, []).append(pod)
            self._known.pop(pod.spec.node_name, None)

    def drop(self, pod: Pod) -> None:
        """A pod, as it was put, is gone."""
        pods = self._by_node.get(pod.spec.node_name, ())
        self._by_node[pod.spec.node_name] = [other for other in pods if other.metadata.uid != pod.metadata.uid]
        self._known.pop(pod.spec.node_name, None)

    def on(self, node: str) -> Sequence[Pod]:
        return self._by_node.get(node, ())

    def used(self, node: str, removed: frozenset[str] = frozenset()) -> Used:
        """By the pods of the node, those of the removed UIDs left out."""
        if removed and any(pod.metadata.uid in removed for pod in self.on(node)):
            return together(_NOTHING, (pod for pod in self.on(node) if pod.metadata.uid not in removed))
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = together(_NOTHING, self.on(node))
        return known


def together(used: Used, pods: Iterable[Pod]) -> Used:
    """What was used before, and by these pods."""
    amounts, count, taken = dict(used[0]), used[1], set(used[2])
    for pod in pods:
        count += 1
        for name, amount in requested(pod).items():
            amounts[name] = amounts.get(name, 0) + amount
        taken |= ports(pod)
    return amounts, count, frozenset(taken)
