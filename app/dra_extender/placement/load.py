"""CPU and memory: what a pod requests, and what nodes have free.

Promises: pure. `Loads` costs a few dictionary entries per bound pod; a pod counts on the node it names until it has
ended or is gone. Amounts are whole millicores and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dra_extender.api.core import Node, Pod, requested
from dra_extender.api.quantity import Quantity

_MILLI: Final = 1_000_000
_WHOLE: Final = 1_000_000_000


class Load(NamedTuple):
    """Millicores and bytes."""

    cpu: int
    memory: int


NO_LOAD: Final = Load(0, 0)


def load_of(pod: Pod) -> Load:
    """What the scheduler counts for the pod."""
    asked = requested(pod)
    return Load(_rounded(asked.get("cpu", 0), _MILLI), _rounded(asked.get("memory", 0), _WHOLE))


def allocatable(node: Node) -> Load:
    """What the node has for pods."""
    return load_from(node.status.allocatable)


def load_from(amounts: Mapping[str, Quantity]) -> Load:
    """The amounts of `cpu` and `memory`, rounded up; 0 for what is not there."""
    return Load(_amount(amounts, "cpu", _MILLI), _amount(amounts, "memory", _WHOLE))


def _amount(amounts: Mapping[str, Quantity], resource: str, unit: int) -> int:
    found = amounts.get(resource)
    return _rounded(found.nano, unit) if found is not None else 0


def _rounded(nano: int, unit: int) -> int:
    return -(-nano // unit)


class Loads:
    """The sum of the requests of each node's pods. It calls `changed` with the name of each node whose sum changes."""

    def __init__(self) -> None:
        self.changed: Callable[[str], None] = lambda node: None
        self._by_pod: dict[str, tuple[str, Load]] = {}
        self._by_node: dict[str, Load] = {}

    def put(self, pod: Pod) -> None:
        """A version of the pod."""
        name = "" if pod.finished else pod.spec.node_name
        known = self._by_pod.get(pod.metadata.uid)
        if known is not None and known[0] == name:
            return
        self.drop(pod.metadata.uid)
        if name:
            load = load_of(pod)
            self._by_pod[pod.metadata.uid] = name, load
            self._add(name, load.cpu, load.memory)

    def drop(self, uid: str) -> None:
        """The pod is gone."""
        known = self._by_pod.pop(uid, None)
        if known is not None:
            name, load = known
            self._add(name, -load.cpu, -load.memory)

    def on(self, node: str) -> Load:
        """What the pods of the node ask for."""
        return self._by_node.get(node, NO_LOAD)

    def _add(self, name: str, cpu: int, memory: int) -> None:
        before = self._by_node.get(name, NO_LOAD)
        after = Load(before.cpu + cpu, before.memory + memory)
        if after == NO_LOAD:
            self._by_node.pop(name, None)
        else:
            self._by_node[name] = after
        self.changed(name)
