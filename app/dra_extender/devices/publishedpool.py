"""The published slices of one pool: all generations, by name, with the taints of DeviceTaintRules added.

Promises: a rule appends its taint; the order of rules does not matter. A rule without `deviceSelector` selects no
device, a rule with an empty one selects every device (API documentation of Kubernetes 1.36; its tracker,
dynamic-resource-allocation/resourceslice/tracker/tracker.go, selects every device in both cases). A slice is a node's
own if it has `nodeName` and, with the rules of Kubernetes 1.36, no shared counters; every other slice is open: each
node checks whether it sees it (structured/internal/incubating/pools_incubating.go). The event of a rule does not touch
devices, because it may reach all of the cluster: the next reader of a slice adds the taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Final

import msgspec

from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import (
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    ResourceSlice,
)
from dra_extender.devices.assembly import Generations, is_own
from dra_extender.devices.models import DeviceList, DeviceLists
from dra_extender.devices.nodeselection import NodeSelection, Visibility, visibility_of, visibility_size
from dra_extender.devices.usage import PoolID
from dra_extender.devices.validity import is_complete

TAINTED_DEVICE: Final = 8
"""Units of work for a device that gets taints: its content is compared with that of all others."""
RULES_PER_UNIT: Final = 16
"""Rules that are read for a slice in a unit of work."""


def reaches(spec: DeviceTaintRuleSpec, pool: PoolID) -> bool:
    """Whether the rule may taint a device of the pool."""
    selector = spec.device_selector
    return (
        selector is not None
        and (not selector.driver or selector.driver == pool[0])
        and (not selector.pool or selector.pool == pool[1])
    )


class TaintRules(dict[str, DeviceTaintRule]):
    """The known rules by name. Changed by the inventory only."""

    def tainted(self, pool: PoolID, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        rules = [
            (rule.spec.device_selector.device, rule.spec.taint)
            for _, rule in sorted(self.items())
            if rule.spec.device_selector is not None and reaches(rule.spec, pool)
        ]
        return tuple(_tainted(device, rules) for device in devices) if rules else devices


def _tainted(device: Device, rules: list[tuple[str | None, DeviceTaint]]) -> Device:
    added = tuple(taint for name, taint in rules if not name or name == device.name)
    return msgspec.structs.replace(device, taints=device.taints + added) if added else device


class PublishedPool:
    """The slices of one (driver, pool). Changed by the inventory only."""

    def __init__(self, pool: PoolID, features: FeatureGates, lists: DeviceLists, rules: TaintRules) -> None:
        self.id = pool
        self._features = features
        self._lists = lists
        self._rules = rules
        self._published: dict[str, tuple[ResourceSlice, DeviceList]] = {}
        """By name, with shared values."""
        self._tainted: dict[str, tuple[ResourceSlice, DeviceList]] = {}
        """The same with the taints of rules; without slices whose taints have to be added."""
        self.taint_work = 0
        """Units of work for all taints that were added so far."""
        self._own: dict[str, dict[str, None]] = {}
        self._open: dict[str, tuple[int, int]] = {}
        """The requirements of each open slice, and units of work for its other selections."""
        self._selections: dict[str, NodeSelection] = {}
        self._forget()

    def copy(self) -> PublishedPool:
        """A copy, to which slices can be added."""
        made = PublishedPool(self.id, self._features, self._lists, self._rules)
        made._published, made._tainted = dict(self._published), dict(self._tainted)
        made._own = {node: dict(names) for node, names in self._own.items()}
        made._open, made._selections = dict(self._open), dict(self._selections)
        return made

    def put(self, published: ResourceSlice) -> None:
        name = published.metadata.name
        if name in self._published:
            self._unindex(name)
        device_list = self._lists.of(self.id[0], published.spec.devices)
        spec = msgspec.structs.replace(published.spec, devices=device_list.devices)
        self._selections[name] = NodeSelection(published.spec)
        self._published[name] = (msgspec.structs.replace(published, spec=spec), device_list)
        self._tainted.pop(name, None)
        self._forget()
        if is_own(published, self._features):
            self._own.setdefault(published.spec.node_name or "", {})[name] = None
        else:
            devices = len(published.spec.devices) if published.spec.per_device_node_selection else 0
            self._open[name] = visibility_size(published), 1 + devices // 3

    def rules_changed(self) -> None:
        """The next reader of a slice adds the taints of the present rules."""
        self._tainted.clear()
        self._forget()

    def _with_taints(self, name: str) -> tuple[ResourceSlice, DeviceList]:
        found = self._tainted.get(name)
        if found is None:
            found = published, _ = self._published[name]
            tainted = self._rules.tainted(self.id, published.spec.devices)
            self.taint_work += len(self._rules) // RULES_PER_UNIT
            if tainted is not published.spec.devices:
                self.taint_work += TAINTED_DEVICE * len(tainted)
                device_list = self._lists.of(self.id[0], tainted)
                spec = msgspec.structs.replace(published.spec, devices=device_list.devices)
                found = msgspec.structs.replace(published, spec=spec), device_list
            self._tainted[name] = found
        return found

    def tainted(self, name: str) -> ResourceSlice:
        """The slice with shared values and the taints of rules."""
        return self._with_taints(name)[0]

    def slices(self) -> Iterator[ResourceSlice]:
        """All slices, with the taints of rules."""
        return map(self.tainted, self._published)

    def add_taints(self) -> int:
        """Units of work for the taints that had to be added to the slices."""
        before = self.taint_work
        for name in self._published:
            self._with_taints(name)
        return self.taint_work - before

    def as_published(self) -> list[ResourceSlice]:
        """All slices, without the rules' taints."""
        return [item for item, _ in self._published.values()]

    def _forget(self) -> None:
        """Nothing that was derived from the slices holds any more."""
        self._by_name: dict[tuple[str, int], dict[str, Device]] = {}
        self._whole: dict[str | None, bool] = {}
        self._newest: dict[str, int] = {}
        for name in ("visibilities", "_visibility_work", "generations", "_by_generation", "_least"):
            self.__dict__.pop(name, None)

    def drop(self, name: str) -> None:
        self._unindex(name)
        del self._published[name], self._selections[name]
        self._tainted.pop(name, None)
        self._forget()

    def _unindex(self, name: str) -> None:
        node = self.published(name).spec.node_name or ""
        names = self._own.get(node, {})
        if name in names:
            del names[name]
            if not names:
                del self._own[node]
        else:
            self._open.pop(name, None)

    def published(self, name: str) -> ResourceSlice:
        """The slice without the rules' taints."""
        return self._published[name][0]

    def __bool__(self) -> bool:
        return bool(self._published)

    def own_nodes(self) -> Set[str]:
        """The nodes that have slices of their own in the pool: a live view."""
        return self._own.keys()

    def own_node(self, name: str) -> str | None:
        """The node whose own slice this is."""
        if name not in self._published:
            return None
        item = self.published(name)
        return item.spec.node_name if is_own(item, self._features) else None

    def own_names(self, node: str) -> tuple[str, ...]:
        """The node's own slices, by name."""
        return tuple(sorted(self._own.get(node, ())))

    def open_slices(self) -> tuple[ResourceSlice, ...]:
        """The open slices (not a node's own), in the order of their names, without the rules' taints."""
        return tuple(map(self.published, sorted(self._open)))

    def slices_for(self, node: str) -> tuple[ResourceSlice, ...]:
        """All slices that the node may see: its own, and the open ones."""
        return tuple(map(self.tainted, (*self.own_names(node), *sorted(self._open))))

    @cached_property
    def visibilities(self) -> tuple[Visibility, ...]:
        """The visibility of each open slice."""
        return tuple(
            visibility_of(item, self.selection(item), devices.selections if item.spec.per_device_node_selection else ())
            for item, devices in map(self._published.__getitem__, sorted(self._open))
        )

    @property
    def visibility_size(self) -> int:
        """The cost of all `visibilities` for a node, in requirements of node selectors."""
        return sum(size for size, _ in self._open.values())

    @cached_property
    def _visibility_work(self) -> int:
        return sum(size + more for size, more in self._open.values())

    @property
    def visibility_work(self) -> int:
        """Units of work for all `visibilities` of a node: one for a slice, for three devices with selections of their
        own, and for a requirement; ten times as much before the selectors are parsed.
        """
        return self._visibility_work if "visibilities" in self.__dict__ else 10 * self._visibility_work

    @cached_property
    def generations(self) -> Generations:
        """All slices by generation. A new object after every change."""
        return Generations(self.as_published(), self._features, lambda item: self._published[item.metadata.name][1])

    def device_list(self, item: ResourceSlice) -> DeviceList:
        return self._with_taints(item.metadata.name)[1]

    def selection(self, item: ResourceSlice) -> NodeSelection:
        return self._selections[item.metadata.name]

    def generation(self, node: str | None = None) -> int:
        """The newest generation of the slices for the node; without a node, of all slices. -1 without slices. The empty
        name stands for the open slices alone.
        """
        if node is None or not (node or self._open):
            return self.generations.newest
        if node not in self._newest:
            names = self._own.get(node, ()) if node else self._open
            newest = self.generation("") if node and self._open else -1
            self._newest[node] = max([newest, *(self.published(name).spec.pool.generation for name in names)])
        return self._newest[node]

    def newest(self, node: str | None = None) -> Sequence[ResourceSlice]:
        """All slices of the generation that `generation` returns, also those of other nodes, by name, without taints of
        rules.
        """
        return self._by_generation.get(self.generation(node), ())

    @cached_property
    def _by_generation(self) -> Mapping[int, Sequence[ResourceSlice]]:
        """All slices of each generation, by name."""
        found: dict[int, list[ResourceSlice]] = {}
        for item in map(self.published, sorted(self._published)):
            found.setdefault(item.spec.pool.generation, []).append(item)
        return found

    def is_whole(self, node: str | None = None) -> bool:
        """Whether all slices of that generation are published: those for the node, or those of the cluster."""
        if node not in self._whole:
            names = {item.metadata.name for item in self.slices_for(node)} if node is not None else set()
            seen = [item for item in self.newest(node) if item.metadata.name in names]
            self._whole[node] = any(
                items and all(is_complete(item.spec.pool.resource_slice_count, len(items)) for item in items)
                for items in (seen, self.newest(node))
            )
        return self._whole[node]

    def device(self, name: str, node: str | None = None) -> Device | None:
        """The device in this generation. The node's own slices come before those of other nodes."""
        generation = self.generation(node)
        found = self._devices_of(node, generation).get(name) if node else None
        return found or self._devices_of("", generation).get(name)

    def _devices_of(self, node: str, generation: int) -> Mapping[str, Device]:
        """The devices of the node's own slices, or of all slices. An open slice comes before nodes' own slices."""
        devices = self._by_name.get((node, generation))
        if devices is None:
            whole = self._by_generation.get(generation, ())
            slices = [self.published(name) for name in self.own_names(node)] if node else whole
            devices = self._by_name[node, generation] = {
                device.name: device
                for item in sorted(slices, key=lambda item: item.metadata.name in self._open)
                if item.spec.pool.generation == generation
                for device in item.spec.devices
            }
        return devices

    def least(self, name: str) -> Mapping[str, DeviceCapacity]:
        """The smallest value of each capacity of the device, of all slices."""
        return self._least.get(name, {})

    @cached_property
    def _least(self) -> Mapping[str, Mapping[str, DeviceCapacity]]:
        found: dict[str, dict[str, DeviceCapacity]] = {}
        for device in (device for item in self.as_published() for device in item.spec.devices if device.capacity):
            known = found.setdefault(device.name, {})
            for key, capacity in device.capacity.items():
                known[key] = min(capacity, known.get(key, capacity), key=lambda each: each.value)
        return found

    def counter_sets(self, node: str | None = None) -> Iterator[CounterSet]:
        return (counter_set for item in self.newest(node) for counter_set in item.spec.shared_counters)

    def node_per_generation(self) -> Iterable[str]:
        """One node for each generation that is the newest for a node. The empty name as in `generation`."""
        return {self.generation(node): node for node in (*sorted(self._own), "")}.values()
