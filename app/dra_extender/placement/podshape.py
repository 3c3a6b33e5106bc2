"""Pods and nodes as policies compare them: the shapes of pods, the load of nodes, and free devices as pods need them.

Promises: pure. Pods that ask for the same have equal shapes. Requests with admin access take nothing and are left out.
Amounts of CPU and memory are whole millicores and bytes. `Loads` costs a few dictionary entries per bound pod; a pod
counts on the node it names until it has ended or is gone. Nodes with equal partition groups, in any order, share one
`FreeDevices`, so what it supplies to a need and what a pod may leave of it are computed once. A need whose requests
compete for the same groups is treated as if each came first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.requests import Ask, DeviceFilter, PreparedClaims
from dra_extender.api.core import Node, Pod, requested
from dra_extender.api.quantity import Quantity
from dra_extender.placement.partitiongroups import PartitionGroup
from dra_extender.plurals import counted

_MILLI: Final = 1_000_000
_WHOLE: Final = 1_000_000_000
_GIB: Final = 2**30

MOST_REMAINDERS: Final = 32
"""How many different remainders are compared for a pod; those most in one piece, if there are more."""
REMEMBERED: Final = 512
PER_UNIT: Final = 8
"""Groups that are put in order per unit of work."""


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


EVERY: Final = -1
"""The count of mode All."""


class DeviceDemand(msgspec.Struct, frozen=True):
    """One request: its alternatives in order of preference, as (filter, count)."""

    alternatives: tuple[tuple[DeviceFilter, int], ...]


Need = tuple[DeviceDemand, ...]
"""The devices of a pod."""


class PodShape(msgspec.Struct, frozen=True):
    """`cpu` in millicores, `memory` in bytes."""

    cpu: int
    memory: int
    need: Need = ()


def shape_of(load: Load, prepared: Sequence[PreparedClaims]) -> PodShape:
    """The shape of a pod with this load and these claims."""
    need = tuple(
        DeviceDemand(tuple(_alternative(ask) for ask in request.asks))
        for claims in prepared
        for request in claims.requests
        if not all(ask.admin for ask in request.asks)
    )
    return PodShape(load.cpu, load.memory, need)


def filters_of(shape: PodShape) -> frozenset[DeviceFilter]:
    """All filters of its requests."""
    return frozenset(filter for demand in shape.need for filter, _ in demand.alternatives)


def _alternative(ask: Ask) -> tuple[DeviceFilter, int]:
    return ask.filter, EVERY if ask.all else ask.count


def described(cpu: int, memory: int, need: Need) -> str:
    """A pod shape for people."""
    parts = []
    if cpu:
        parts.append(f"{cpu / 1000:g} CPU")
    if memory:
        parts.append(f"{memory / _GIB:.3g}Gi")
    for demand in need:
        filter, count = demand.alternatives[0]
        amounts = "".join(f" with {name} {amount}" for name, amount in filter.capacity.items())
        parts.append(("all devices" if count == EVERY else counted(count, "device")) + amounts)
        if filter.selectors:
            parts[-1] += f" where {' && '.join(filter.selectors)}"
    return ", ".join(parts) or "nothing"


# --- free devices -----------------------------------------------------------------------------------------------------


class Supply(NamedTuple):
    """What free devices have for a need. `touch`: how much of them the need selects, in whole groups; `copies`: how
    many pods with this need they could serve, fractions included.
    """

    touch: float
    copies: float


class FreeDevices:
    """Groups sorted by number. `free`: how much of them is left, of `whole`; `unfragmented`: how much in one piece."""

    __slots__ = ("_remainders", "_sets", "_supplies", "free", "groups", "number", "unfragmented", "whole")

    def __init__(self, number: int, groups: tuple[PartitionGroup, ...], sets: FreeDeviceSets) -> None:
        self.number = number
        self.groups = groups
        self.free = sum(group.free for group in groups)
        self.whole = sum(group.whole for group in groups)
        self.unfragmented = sum(group.unfragmented for group in groups)
        self._sets = sets
        self._supplies: dict[Need, Supply | None] = {}
        self._remainders: dict[Need, tuple[FreeDevices, ...]] = {}

    def supply(self, need: Need, budget: WorkBudget) -> Supply | None:
        """None when the need cannot be met. Raises TooCostly and TurnSpent."""
        try:
            return self._supplies[need]
        except KeyError:
            if len(self._supplies) >= REMEMBERED:
                self._supplies.clear()
            found = self._supplies[need] = self._supply(need, budget)
            return found

    def _supply(self, need: Need, budget: WorkBudget) -> Supply | None:
        touch, copies = 0.0, float("inf")
        for demand in need:
            for filter, count in demand.alternatives:
                found = self._supply_of(filter, count, budget)
                if found is not None:
                    touch += found.touch
                    copies = min(copies, found.copies)
                    break
            else:
                return None
        return Supply(touch, copies)

    def _supply_of(self, filter: DeviceFilter, count: int, budget: WorkBudget) -> Supply | None:
        touch, copies, at_once = 0.0, 0, 0
        for group in self.groups:
            rate = group.rate(filter, budget)
            touch += rate.touch
            copies += rate.copies
            at_once += min(rate.copies, 1) if group.once else rate.copies
        if not at_once or at_once < count:
            return None
        return Supply(touch, copies / count if count > 0 else 1.0)

    def remainders(self, need: Need, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        """What a pod with this need may leave of it, each once; the same devices when the pod cannot come. Charges each
        device that is taken from each remainder. Raises TooCostly and TurnSpent.
        """
        found = self._remainders.get(need)
        if found is None:
            if len(self._remainders) >= REMEMBERED:
                self._remainders.clear()
            found = self._remainders[need] = self._remaining(need, budget)
        return found

    def _remaining(self, need: Need, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        sets: tuple[FreeDevices, ...] = (self,)
        for demand in need:
            found = {left.number: left for devices in sets for left in devices.after(demand, budget)}
            if not found:
                return (self,)
            sets = _fullest(found.values())
        return sets

    def after(self, demand: DeviceDemand, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        """What may be left of it after one request; none when the request cannot be met."""
        for filter, count in demand.alternatives:
            if self._supply_of(filter, count, budget) is not None:
                return self._all_gone(filter, budget) if count == EVERY else self._some_gone(filter, count, budget)
        return ()

    def _all_gone(self, filter: DeviceFilter, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        groups: list[PartitionGroup] = []
        for group in self.groups:
            left = group
            while rate := left.rate(filter, budget).after:
                left = rate[0]
                if group.once:
                    break
            groups.append(left)
        return (self._sets.of(groups),)

    def _some_gone(self, filter: DeviceFilter, count: int, budget: WorkBudget) -> tuple[FreeDevices, ...]:
        """Device by device. One request takes a device once, so groups it has taken from are kept aside."""
        stages: list[tuple[FreeDevices, tuple[PartitionGroup, ...]]] = [(self, ())]
        for _ in range(count):
            found: dict[tuple[int, tuple[int, ...]], tuple[FreeDevices, tuple[PartitionGroup, ...]]] = {}
            for devices, done in stages:
                for rest, aside in devices._one_gone(filter, budget):
                    both = (*done, *aside)
                    found[rest.number, tuple(sorted(group.number for group in both))] = rest, both
            stages = sorted(found.values(), key=_fullness)[:MOST_REMAINDERS]
        left = {(devices := self._sets.of((*rest.groups, *done))).number: devices for rest, done in stages}
        return tuple(left.values())

    def _one_gone(
        self, filter: DeviceFilter, budget: WorkBudget
    ) -> Iterator[tuple[FreeDevices, tuple[PartitionGroup, ...]]]:
        last = None
        for index, group in enumerate(self.groups):
            if group is last:
                continue
            last = group
            budget.spend(1 + len(self.groups) // PER_UNIT)
            rest = self.groups[:index] + self.groups[index + 1 :]
            for after in group.rate(filter, budget).after:
                if group.once:
                    yield self._sets.of(rest), (after,)
                else:
                    yield self._sets.of((*rest, after)), ()


def _fullness(stage: tuple[FreeDevices, tuple[PartitionGroup, ...]]) -> tuple[float, int]:
    devices, done = stage
    return -devices.unfragmented - sum(group.unfragmented for group in done), devices.number


def _fullest(sets: Iterable[FreeDevices]) -> tuple[FreeDevices, ...]:
    return tuple(sorted(sets, key=lambda devices: (-devices.unfragmented, devices.number))[:MOST_REMAINDERS])


class FreeDeviceSets:
    """One `FreeDevices` for equal groups."""

    def __init__(self) -> None:
        self._by_groups: dict[tuple[int, ...], FreeDevices] = {}

    def __len__(self) -> int:
        return len(self._by_groups)

    def of(self, groups: Iterable[PartitionGroup]) -> FreeDevices:
        """The free devices of these groups, in any order."""
        ordered = tuple(sorted(groups, key=_number))
        key = tuple([group.number for group in ordered])
        found = self._by_groups.get(key)
        if found is None:
            found = self._by_groups[key] = FreeDevices(len(self._by_groups), ordered, self)
        return found


def _number(group: PartitionGroup) -> int:
    return group.number
