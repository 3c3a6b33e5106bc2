"""Pods as policies compare them: their shapes, and the load of nodes.

Promises: pure. Pods that ask for the same have equal shapes. Requests with admin access take nothing and are left out.
Amounts of CPU and memory are whole millicores and bytes. `Loads` costs a few dictionary entries per bound pod; a pod
counts on the node it names until it has ended or is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocation.requests import DeviceFilter, PreparedClaims
from dra_extender.api.core import Node, Pod, requested
from dra_extender.api.quantity import Quantity

_MILLI: Final = 1_000_000
_WHOLE: Final = 1_000_000_000
_MOST: Final = 2**63 - 1
"""As much as kube-scheduler counts. More, as in "1e400", would be too large for a float."""


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
    amounts = node.status.allocatable
    return Load(_amount(amounts, "cpu", _MILLI), _amount(amounts, "memory", _WHOLE))


def _amount(amounts: Mapping[str, Quantity], resource: str, unit: int) -> int:
    found = amounts.get(resource)
    return _rounded(found.nano, unit) if found is not None else 0


def _rounded(nano: int, unit: int) -> int:
    return min(-(-nano // unit), _MOST)


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


REMEMBERED_BYTES: Final = 2**25
"""What the filters of remembered shapes may keep, with their compiled selectors; and those of the workload."""

EVERY: Final = -1
"""The count of mode All."""


DeviceDemand = tuple[tuple[DeviceFilter, int], ...]
"""One request: its alternatives in order of preference, as (filter, count)."""


class Need(msgspec.Struct, frozen=True, weakref=True):
    """The devices of a pod. A cache has weak references to needs and shapes as keys, so that filters do not stay."""

    demands: tuple[DeviceDemand, ...] = ()


class PodShape(msgspec.Struct, frozen=True, weakref=True):
    """`cpu` in millicores, `memory` in bytes. `size`: how many bytes it counts for, with its filters."""

    cpu: int
    memory: int
    need: Need = Need()
    size: int = 0


def shape_of(load: Load, prepared: PreparedClaims) -> PodShape:
    """The shape of a pod with this load and these claims."""
    demands = tuple(
        tuple((ask.filter, EVERY if ask.all else ask.count) for ask in request.asks)
        for request in prepared.requests
        if not all(ask.admin for ask in request.asks)
    )
    filters = {filter for demand in demands for filter, _ in demand}
    size = min(REMEMBERED_BYTES, 1_000 + sum(filter.size for filter in filters))
    return PodShape(load.cpu, load.memory, Need(demands), size)


def filters_of(shape: PodShape) -> frozenset[DeviceFilter]:
    """All filters of its requests."""
    return frozenset(filter for demand in shape.need.demands for filter, _ in demand)
