"""What a node has for a pod beside devices, while pods move from node to node.

Promises: immutable, and pure. The rules are those of `noderules`, counted with the pods that are on a node by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.scheduling.noderules import Obstacle, Tenants, Wants, together
from dra_extender.scheduling.view import View

CHECKED: Final = (
    "devices, cordons, taints, node selector and node affinity, host ports, resources of the node, disruption budgets"
)
UNCHECKED: Final = "volumes, affinity to pods, topology spread, quotas"


class Surroundings:
    """As things are; `moved` gives what they are after a move."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._tenants = Tenants(view.pods)
        self._wants: dict[str, Wants] = {}
        self._gone: frozenset[str] = frozenset()
        self._come: Mapping[str, tuple[Pod, ...]] = {}

    def moved(self, pod: Pod, source: str, target: str = "") -> Surroundings:
        """As if the pod were not on the one node any more, and on the other if there is one."""
        after, come, uid = copy(self), dict(self._come), pod.metadata.uid
        if source:
            after._gone = self._gone | {uid}
            come[source] = tuple(other for other in come.get(source, ()) if other.metadata.uid != uid)
        if target:
            come[target] = (*come.get(target, ()), pod)
        after._come = come
        return after

    def suits(self, pod: Pod, name: str) -> bool:
        """True when nothing but devices could keep the pod from the node."""
        return next(self._obstacles(pod, name), None) is None

    def admits(self, pod: Pod, name: str) -> bool:
        """True when the node is for such pods, however full it is."""
        return next(self._wanted(pod).unsuited(self._view.cluster.nodes[name]), None) is None

    def _obstacles(self, pod: Pod, name: str) -> Iterator[Obstacle]:
        used = self._tenants.used(name, self._gone)
        come = self._come.get(name)
        if come:
            used = together(used, come)
        return self._wanted(pod).obstacles(self._view.cluster.nodes[name], *used)

    def _wanted(self, pod: Pod) -> Wants:
        uid = pod.metadata.uid
        known = self._wants.get(uid)
        if known is None or known.pod is not pod:
            wanted = self._view.wanted(pod)
            known = self._wants[uid] = Wants(pod, frozenset(wanted.classes) if wanted is not None else frozenset())
        return known
