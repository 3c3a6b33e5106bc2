"""What a node has for a pod beside devices: CPU and memory, and whether the pod may be there at all.

Promises: pure. Looks at unschedulable nodes, taints, node selector and required node affinity, as far as the objects
say; a selector that cannot be parsed keeps the pod where it is.

Rules: Kubernetes 1.36, plugins/{nodeunschedulable,tainttoleration,nodeaffinity,noderesources}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from app.api.core import Node, Pod, Taint
from app.api.restrictions import tolerates
from app.devices.nodeselector import NodeSelectorError, matches
from app.placement.load import NO_LOAD, Load, Loads, allocatable, load_of

CHECKED: Final = "devices, CPU and memory, node selector and node affinity, taints, disruption budgets"
UNCHECKED: Final = "volumes, host ports, other resources, affinity to pods, topology spread, quotas"

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_HARD: Final = ("NoSchedule", "NoExecute")


class Surroundings:
    """Immutable: `moved` gives a new one."""

    def __init__(self, nodes: Mapping[str, Node], pods: Iterable[Pod]) -> None:
        self._nodes = nodes
        self._loads = Loads()
        for pod in pods:
            self._loads.put(pod)
        self._more: Mapping[str, Load] = {}

    def moved(self, pod: Pod, source: str, target: str = "") -> Surroundings:
        """As if the pod were not on the one node any more, and on the other if there is one."""
        load = load_of(pod)
        found = Surroundings(self._nodes, ())
        found._loads = self._loads
        found._more = dict(self._more)
        for name, sign in ((source, -1), (target, 1)):
            if name:
                known = found._more.get(name, NO_LOAD)
                found._more[name] = Load(known.cpu + sign * load.cpu, known.memory + sign * load.memory)
        return found

    def suits(self, pod: Pod, name: str) -> bool:
        """Whether the pod may be on the node, and finds CPU and memory there."""
        return self.admits(pod, name) and self.has_room(load_of(pod), name)

    def admits(self, pod: Pod, name: str) -> bool:
        """Whether the pod may be on the node."""
        return may_be_on(pod, self._nodes[name])

    def has_room(self, load: Load, name: str) -> bool:
        """Whether the node has that much CPU and memory left. A node that does not say what it has has enough."""
        whole, used, more = allocatable(self._nodes[name]), self._loads.on(name), self._more.get(name, NO_LOAD)
        return (not whole.cpu or used.cpu + more.cpu + load.cpu <= whole.cpu or not load.cpu) and (
            not whole.memory or used.memory + more.memory + load.memory <= whole.memory or not load.memory
        )


def may_be_on(pod: Pod, node: Node) -> bool:
    """Whether nothing that the two say keeps the pod from the node."""
    taints = [taint for taint in _taints(node) if taint.effect in _HARD]
    if not all(any(tolerates(toleration, taint) for toleration in pod.spec.tolerations) for taint in taints):
        return False
    return _is_selected(pod, node)


def _taints(node: Node) -> Iterable[Taint]:
    if node.spec.unschedulable:
        yield Taint(_UNSCHEDULABLE, effect="NoSchedule")
    yield from node.spec.taints


def _is_selected(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    try:
        return required is None or matches(required, node.name, labels)
    except NodeSelectorError:
        return False
