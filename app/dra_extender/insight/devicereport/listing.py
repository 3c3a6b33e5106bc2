"""Lists and counts the devices of the cluster.

Promises: pure. The report is as current as the ledger, so it counts allocations of a bind in progress. It lists a
device once, even if several nodes can use it. It runs in turns, one ResourceSlice at a time. If the state changes
between turns, the report shows each pool in the state of its own turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from dra_extender.allocation.budget import Deferred, TurnSpent, WorkBudget
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.allocation.selection import suitability
from dra_extender.api.features import FeatureGates
from dra_extender.api.quantity import Quantity, ratio
from dra_extender.api.resource import Device, DeviceID, RequestedDevices, ResourceSlice
from dra_extender.cel.trial import shown_value
from dra_extender.devices.models import CounterID, DeviceModel, Traits, counters_consumed
from dra_extender.devices.nodeselection import selector_text
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.readonly import ReadOnlyCluster, ReadOnlyInventory, ReadOnlyLedger
from dra_extender.devices.usage import EVERY_DEVICE, DeviceUse, PoolID
from dra_extender.devices.validity import defects, with_devices
from dra_extender.insight.devicereport.report import (
    Amount,
    CountedDevice,
    DeviceCounts,
    DeviceDetails,
    DeviceReport,
    DeviceState,
    PartitionType,
    holders,
    partition_types,
    totals_of,
)
from dra_extender.insight.requests import UnknownObjectError, nodes_named
from dra_extender.limits import HOLDERS_OF_DEVICE
from dra_extender.scheduling.turns import Turns
from dra_extender.scheduling.view import View

MOST_DEVICES: Final = 5_000
"""A page ends after the first pool with which it has at least this number of devices."""

MODELS: Final = ("productName", "model")
"""Attributes in which drivers publish the model of a device."""


class DeviceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which devices to list; an empty field means all. `nodes`: devices that these nodes can use. `namespaces`: devices
    that claims of these namespaces hold.
    """

    nodes: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    states: frozenset[DeviceState] = frozenset()
    namespaces: frozenset[str] = frozenset()

    def wants(self, device: CountedDevice) -> bool:
        """True when the device matches all fields except `nodes` and `drivers`, which the caller checks."""
        return (
            (not self.classes or not self.classes.isdisjoint(device.classes))
            and (not self.states or device.state in self.states)
            and (not self.namespaces or any(holder.namespace in self.namespaces for holder in device.holders))
        )

    def check(self, cluster: ReadOnlyCluster) -> None:
        """Raises UnknownObjectError for a node, driver or class that does not exist."""
        nodes_named(cluster.nodes, self.nodes)
        drivers = {driver for driver, _ in cluster.inventory.pools} if self.drivers else set()
        for name in sorted(self.drivers - drivers):
            raise UnknownObjectError("", f"driver {name} not found: it has published no ResourceSlice")
        for name in sorted(self.classes - cluster.classes.keys()):
            raise UnknownObjectError("", f"DeviceClass {name} not found")


EVERYTHING: Final = DeviceQuery()

Sees = Callable[[str, DeviceID], bool]
"""True for a node and a device of it that a report has."""

_FREE: Final = DeviceUse()


def reporting(
    view: View, wanted: DeviceQuery = EVERYTHING, *, limit: int | None = None, after: str = ""
) -> Turns[DeviceReport]:
    """A page with the devices of `limit` pools, by default of all pools, after the pool `after` (driver/pool)."""
    inventory, classes, (driver, _, pool) = view.cluster.inventory, ClassMembers(view), after.partition("/")
    pools, sees = _visible(inventory, wanted.nodes)
    found: list[CountedDevice] = []
    partitions: list[PartitionType] = []
    pools_done: list[PoolID] = []
    next = ""
    ids = sorted(pools)
    for id in ids[bisect_right(ids, (driver, pool)) :]:
        published = inventory.pools.get(id)
        if published is None or (wanted.drivers and id[0] not in wanted.drivers):
            continue
        if limit is not None and (len(pools_done) >= limit or len(found) >= MOST_DEVICES):
            next = "/".join(pools_done[-1])
            break
        pools_done.append(id)
        devices = yield from counting(view, published, classes, sees)
        chosen = [device for device in devices if wanted.wants(device)]
        if chosen and view.features.partition_types and not _problem(published, view.features):
            partitions.extend(partition_types(published, view.ledger.in_use(id)))
        found.extend(chosen)
    return DeviceReport(
        devices=tuple(found), totals=totals_of(found), next=next,
        complete=classes.complete, partitions=tuple(partitions),
    )  # fmt: skip


def counting(
    view: View, published: PublishedPool, classes: ClassMembers, sees: Sees | None = None, most: int = HOLDERS_OF_DEVICE
) -> Turns[list[CountedDevice]]:
    """The devices of one pool, each with at most this number of holders. With `sees`, only those which that sees."""
    found: list[CountedDevice] = []
    problem = _problem(published, view.features)
    newest = with_devices(tuple(published.newest()), view.features)
    pool = _PoolCount(published, view.ledger, view.features, problem)
    for item, models in [(each, published.device_list(each).models) for each in newest]:  # slices go between turns
        yield from classes.learn(models)
        pool, listed = pool.now(), 0
        for device, model in zip(item.spec.devices, models, strict=True):
            node = item.spec.node_name or device.node_name or ""
            if sees is None or sees(node, (*published.id, device.name)):
                if listed >= HOLDERS_OF_DEVICE:
                    yield
                    pool, listed = pool.now(), 0
                found.append(pool.device(device, model.traits, node, classes.of(model), most))
                listed += len(found[-1].holders)
        yield
    return found


def counting_devices(view: View) -> Turns[DeviceCounts]:
    """Count all devices for metrics. It keeps only the counts in memory."""
    found, classes = DeviceCounts(), ClassMembers(view)
    for pool in list(view.cluster.inventory.pools):
        published = view.cluster.inventory.pools.get(pool)
        if published is not None:
            found.add((yield from counting(view, published, classes, most=0)))
    return found


def _problem(pool: PublishedPool, features: FeatureGates) -> str:
    """Why no device of the pool can be allocated; empty if they can be."""
    if not pool.is_whole():
        return "not all slices of the pool are published yet"
    return next((defect.what for defect in defects(tuple(pool.newest()), features)), "")


def _visible(inventory: ReadOnlyInventory, nodes: Collection[str]) -> tuple[Iterable[PoolID], Sees | None]:
    """(the pools that these nodes see, a function for `counting`); of all pools and devices if no nodes are given. A
    device that cannot be allocated is visible on its own node.
    """
    if not nodes:
        return inventory.pools, None
    devices: set[DeviceID] = set()
    for view in filter(None, map(inventory.view, nodes)):
        devices.update(device.id for index, device in enumerate(view.devices) if not view.elsewhere >> index & 1)
    pools = {pool for name in nodes for pool in inventory.pools_seen(name)}
    return pools, lambda node, device: node in nodes or device in devices


class ClassMembers:
    """The classes that select a device, by its model."""

    def __init__(self, view: View) -> None:
        known = view.cluster.classes
        self._filters: Mapping[str, DeviceFilter] = {
            name: view.decisions.filters.of(known[name], RequestedDevices(), view.features) for name in sorted(known)
        }
        self._budgets: Iterator[WorkBudget] = view.budgets()
        self._budget = next(self._budgets)
        self._known: dict[DeviceModel, tuple[str, ...]] = {}
        self.complete = True

    def learn(self, models: Iterable[DeviceModel]) -> Turns[None]:
        """Evaluate the classes. A class that is not decided yet is left out."""
        for model in models:
            if model in self._known:
                continue
            names: dict[str, None] = {}
            for name, filter in self._filters.items():
                if (yield from self._selects(filter, model)):
                    names[name] = None
            self._known[model] = tuple(names)

    def of(self, model: DeviceModel) -> tuple[str, ...]:
        """The names of the device's classes. Call `learn` first."""
        return self._known[model]

    def _selects(self, filter: DeviceFilter, model: DeviceModel) -> Turns[bool]:
        while True:
            try:
                return suitability(model, filter, self._budget).selected
            except TurnSpent:
                self._budget = next(self._budgets)
                yield
            except Deferred:
                self.complete = False
                return False


class _PoolCount:
    """The devices of one pool at one moment."""

    def __init__(self, pool: PublishedPool, ledger: ReadOnlyLedger, features: FeatureGates, problem: str) -> None:
        self._pool, self._id, self._revision = pool, pool.id, ledger.revision(pool.id)
        self._ledger, self._features, self._problem = ledger, features, problem
        self._in_use = ledger.in_use(pool.id)
        sets = pool.counter_sets() if features.DRAPartitionableDevices else ()
        self._offered = {(each.name, name): counter.value for each in sets for name, counter in each.counters.items()}
        self._drawn = dict[CounterID, Quantity](self._offered if EVERY_DEVICE in self._in_use else {})
        users = self._in_use if self._offered and not self._drawn else ()
        for device in filter(None, map(pool.device, users)):
            for id, amount in counters_consumed(device):
                self._drawn[id] = self._drawn[id] + amount if id in self._drawn else amount

    def now(self) -> _PoolCount:
        """The devices at this moment: the same object unless their use has changed."""
        if self._ledger.revision(self._id) == self._revision:
            return self
        return _PoolCount(self._pool, self._ledger, self._features, self._problem)

    def device(self, device: Device, traits: Traits, node: str, classes: tuple[str, ...], most: int) -> CountedDevice:
        use = self._in_use.get(EVERY_DEVICE) or self._in_use.get(device.name, _FREE)
        taints = tuple(map(str, traits.taints)) if self._features.DRADeviceTaints else ()
        capacity = tuple(_capacities(traits, use)) if self._features.DRAConsumableCapacity and traits.multi else ()
        problem = self._problem or _gated(traits, self._features)
        state = _state(use, problem, bool(taints), self._is_blocked(device))
        listed = tuple(holders(self._ledger, use, most))
        fill = 100.0 if state == "used" else max((amount.percent for amount in capacity), default=0.0)
        return CountedDevice(
            driver=self._id[0],
            pool=self._id[1],
            name=device.name,
            state=state,
            node=node,
            classes=classes,
            taints=taints,
            capacity=capacity,
            counters=tuple(self._counters(device)),
            holders=listed,
            more_holders=len(use.owners) + len(use.shares) - len(listed),
            fill=fill,
            model=_model(device, self._id[0]),
            problem=problem,
        )

    def _is_blocked(self, device: Device) -> bool:
        """True when devices in use leave too little of a counter."""
        drawn, offered = self._drawn, self._offered
        return bool(drawn) and any(
            counter in drawn and counter in offered and drawn[counter].nano + amount.nano > offered[counter].nano
            for counter, amount in counters_consumed(device)
        )

    def _counters(self, device: Device) -> Iterator[Amount]:
        for counter, _ in counters_consumed(device) if self._offered else ():
            if counter in self._offered:
                yield _amount("/".join(counter), self._drawn.get(counter), self._offered[counter])


def _state(use: DeviceUse, problem: str, tainted: bool, blocked: bool) -> DeviceState:
    if use:
        return "used" if use.owners else "shared"
    if problem:
        return "unusable"
    return "tainted" if tainted else "blocked" if blocked else "free"


def _model(device: Device, driver: str) -> str:
    names = (name for model in MODELS for name in (model, f"{driver}/{model}") if name in device.attributes)
    return next((value for name in names if isinstance(value := device.attributes[name].value, str)), "")


def _gated(traits: Traits, features: FeatureGates) -> str:
    """Which feature gate that the device requires is off, for people; empty if all are on."""
    if traits.partition and not features.DRAPartitionableDevices:
        return "feature gate DRAPartitionableDevices is off"
    if traits.binding_conditions and not features.binding_conditions:
        return "feature gate DRADeviceBindingConditions is off"
    return ""


def _capacities(traits: Traits, use: DeviceUse) -> Iterator[Amount]:
    for name, offer in traits.capacity.items():
        yield _amount(name, Quantity(use.consumed.get(name, 0), offer.value.format), offer.value)


def _amount(name: str, used: Quantity | None, of: Quantity) -> Amount:
    percent = round(ratio(100 * used.nano, of.nano), 1) if used is not None and of.nano > 0 else 0.0
    return Amount(name, str(used) if used is not None else "0", str(of), percent)


def detailing(view: View, id: DeviceID) -> Turns[DeviceDetails | None]:
    """None if the device does not exist."""
    published = view.cluster.inventory.pools.get(id[:2])
    devices = ((item, device) for item in published.newest() for device in item.spec.devices) if published else ()
    found = next((found for found in devices if found[1].name == id[2]), None)
    if published is None or found is None:
        return None
    item = published.tainted(found[0].metadata.name)
    device = next(each for each in item.spec.devices if each.name == id[2])
    counted = yield from counting(view, published, ClassMembers(view), lambda node, each: each == id)
    if not counted:
        return None
    return DeviceDetails(
        device=counted[0], slice=item.metadata.name, generation=item.spec.pool.generation, nodes=_nodes(item, device),
        attributes={name: shown_value(attribute.value) for name, attribute in device.attributes.items()},
        capacity={name: str(capacity.value) for name, capacity in device.capacity.items()}, taints=device.taints,
    )  # fmt: skip


def _nodes(item: ResourceSlice, device: Device) -> str:
    spec = device if item.spec.per_device_node_selection else item.spec
    if spec.node_name:
        return f"node {spec.node_name}"
    if spec.all_nodes:
        return "all nodes"
    return f"nodes with {selector_text(spec.node_selector)}" if spec.node_selector is not None else "no node"
