"""The devices of the cluster, their state and the claims that hold them, as structs; and sums of them.

Promises: contains only texts, numbers and these structs, so it can be encoded as it is. Amounts are texts in the units
of their slices. JSON leaves out fields with their default value.

A partition is a device that consumes counters. Its type is the value of the attribute that its slice names in
`partitionTypeAttribute` (Kubernetes 1.37, pkg/controller/resourcepoolstatusrequest/views.go). Each type is counted
alone, on what devices in use leave of the counters: types that share counters exclude each other. Taints and
compatibility groups are not considered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import DeviceTaint
from dra_extender.devices.models import CounterID, consumption
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.readonly import ReadOnlyLedger
from dra_extender.devices.usage import EVERY_DEVICE, DeviceUse
from dra_extender.limits import HOLDERS_OF_DEVICE

DeviceState = Literal["free", "shared", "used", "blocked", "tainted", "unusable"]
STATES: Final[Mapping[DeviceState, str]] = {
    "free": "",
    "shared": "claims are allocated shares of it",
    "used": "one claim is allocated the whole device",
    "blocked": "free, but other devices consume counters that it needs",
    "tainted": "free, but a taint keeps pods away",
    "unusable": "it or its pool cannot be allocated",
}
"""Meanings. `unusable` goes before `tainted`, and this before `blocked`."""


class Amount(msgspec.Struct, frozen=True, gc=False):
    """A capacity of a device, or a counter (set/counter) that it consumes: `used` by claims, `of` the total."""

    name: str
    used: str
    of: str
    percent: float


class Holding(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A claim (namespace/name, or its UID before it is created) that holds the device, or a share of it with this ID
    that consumes this capacity. `pods`: names of the pods that the claim is reserved for. `in_flight`: allocated by a
    bind in progress, not yet stored.
    """

    claim: str
    pods: tuple[str, ...] = ()
    share: str = ""
    consumed: Mapping[str, str] = {}
    in_flight: bool = False

    @property
    def namespace(self) -> str:
        return self.claim.partition("/")[0]


def holders(ledger: ReadOnlyLedger, use: DeviceUse, most: int = HOLDERS_OF_DEVICE) -> Iterator[Holding]:
    """Who uses a device in this way (`ReadOnlyLedger.in_use`): owners, then shares; `most`, those known first."""
    owners = sorted(islice(use.owners, most))
    for uid in owners:
        yield _holding(ledger, uid)
    for uid, share in sorted(islice(use.shares, most - len(owners))):
        taken = {name: str(amount) for name, amount in use.shares[uid, share].items()}
        yield replace(_holding(ledger, uid), share=share, consumed=taken)


def _holding(ledger: ReadOnlyLedger, uid: str) -> Holding:
    claim = ledger.by_uid(uid)
    if claim is None:  # one for extended resources that is about to be created
        return Holding(claim=uid, in_flight=True)
    pods = tuple(consumer.name for consumer in claim.status.reserved_for)
    return Holding(claim=claim.metadata.key, pods=pods, in_flight=claim.allocation is None)


class CountedDevice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One device. `node`: the node that the device belongs to; empty if several nodes can use it. `classes`: the
    classes that select it. `taints`: the taints that keep pods away, as key=value:effect. `capacity`: only for a device
    that can be shared. `counters`: the counters that it consumes. `fill`: the percentage in use; of a shared device,
    the percentage of its fullest capacity. `model`: its attribute productName or model, if it publishes one.
    `more_holders`: the number of holders that are not listed.
    """

    driver: str
    pool: str
    name: str
    state: DeviceState
    node: str = ""
    classes: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    capacity: tuple[Amount, ...] = ()
    counters: tuple[Amount, ...] = ()
    holders: tuple[Holding, ...] = ()
    more_holders: int = 0
    fill: float = 0.0
    model: str = ""
    problem: str = ""
    """Why it is unusable."""


class DeviceTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The number of `devices`, their number in each state, and the percentage in use. Devices that consume counters of
    the same set are partitions of one GPU: they count once, with the mean of its counters.
    """

    devices: int = 0
    free: int = 0
    shared: int = 0
    used: int = 0
    blocked: int = 0
    tainted: int = 0
    unusable: int = 0
    fill: float = 0.0


class PartitionType(msgspec.Struct, frozen=True, order=True, kw_only=True, omit_defaults=True):
    """Of `total` partitions of this `type`, the value of `attribute`, `allocatable` can still be allocated. `problem`:
    why the types of the pool cannot be counted. An empty pool stands for all pools of the driver.
    """

    driver: str
    pool: str = ""
    attribute: str = ""
    type: str = ""
    total: int = 0
    allocatable: int = 0
    problem: str = ""


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Devices by driver, pool and slice, their `totals`, and the `partitions` of their pools by type. `next`: pass it
    as `after` to get the next page; empty on the last page. `complete`: false if the selector of a class is still being
    evaluated, so that devices may lack classes.
    """

    devices: tuple[CountedDevice, ...]
    totals: DeviceTotals
    next: str = ""
    complete: bool = True
    partitions: tuple[PartitionType, ...] = ()


class DeviceDetails(msgspec.Struct, frozen=True, kw_only=True):
    """`attributes` and `capacity` by name, from `slice` in this `generation` of the pool. `nodes`: the nodes that can
    use the device, in words.
    """

    device: CountedDevice
    slice: str
    generation: int
    nodes: str
    attributes: Mapping[str, str]
    capacity: Mapping[str, str]
    taints: tuple[DeviceTaint, ...]


By = Literal["nodes", "drivers", "classes", "namespaces"]


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one node, driver or class, or the devices that claims of one namespace hold, and the number of
    listed `claims` and `pods` that hold them. A device of several classes counts for each.
    """

    name: str
    totals: DeviceTotals
    claims: int
    pods: int


def totals_of(devices: Iterable[CountedDevice]) -> DeviceTotals:
    counted = list(devices)
    states: Counter[str] = Counter(device.state for device in counted)
    fills = [*counter_sets(counted).values(), *(device.fill for device in counted if not device.counters)]
    return DeviceTotals(devices=len(counted), fill=round(sum(fills) / len(fills), 1) if fills else 0.0, **states)


def counter_sets(devices: Iterable[CountedDevice]) -> dict[tuple[str, str, str], float]:
    """By (driver, pool, set): the percentage in use of the counters that the devices consume."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for device in devices:
        for amount in device.counters:
            if amount.of != "0":
                name, _, counter = amount.name.partition("/")
                found.setdefault((device.driver, device.pool, name), {})[counter] = amount.percent
    return {id: sum(counters.values()) / len(counters) for id, counters in found.items()}


def sums(devices: Iterable[CountedDevice], by: By) -> tuple[Sum, ...]:
    """In the order of the names; devices without a name of this kind come first, under an empty name."""
    grouped: dict[str, list[CountedDevice]] = {}
    for device in devices:
        for name in _NAMES[by](device):
            grouped.setdefault(name, []).append(device)
    found: list[Sum] = []
    for name, members in sorted(grouped.items()):
        known = chain.from_iterable(device.holders for device in members)
        holders = [holder for holder in known if by != "namespaces" or holder.namespace == name]
        claims = {holder.claim for holder in holders}
        pods = {(holder.namespace, pod) for holder in holders for pod in holder.pods}
        found.append(Sum(name=name, totals=totals_of(members), claims=len(claims), pods=len(pods)))
    return tuple(found)


_NAMES: Final[Mapping[By, Callable[[CountedDevice], Iterable[str]]]] = {
    "nodes": lambda device: (device.node,),
    "drivers": lambda device: (device.driver,),
    "classes": lambda device: device.classes or ("",),
    "namespaces": lambda device: sorted({holder.namespace for holder in device.holders}),
}


_SHARED: Final = ("free", "shared")
"""States of devices whose shares can be allocated to any pod."""


class DeviceCounts(msgspec.Struct, frozen=True):
    """For metrics: the number of devices by (driver, state), and by (class, state), where a device counts for every
    class that selects it. `offered` and `free`: the total and the unallocated capacity by (driver, capacity) in nano
    units, of devices that can be shared, are usable and have no taint.
    """

    drivers: Counter[tuple[str, DeviceState]] = msgspec.field(default_factory=Counter)
    classes: Counter[tuple[str, DeviceState]] = msgspec.field(default_factory=Counter)
    offered: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    free: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)

    def add(self, devices: Iterable[CountedDevice]) -> None:
        for device in devices:
            self.drivers[device.driver, device.state] += 1
            for name in device.classes:
                self.classes[name, device.state] += 1
            for amount in device.capacity if device.state in _SHARED else ():
                offered, used = Quantity.parse(amount.of).nano, Quantity.parse(amount.used).nano
                self.offered[device.driver, amount.name] += offered
                self.free[device.driver, amount.name] += max(0, offered - used)


def partition_types(pool: PublishedPool, in_use: Container[str]) -> Iterator[PartitionType]:
    """By attribute and type; empty for a pool without types. `in_use`: the names of its devices in use."""
    offered = ((found.name, found.counters) for found in pool.counter_sets())
    left = Counter({(name, each): amount.value.nano for name, counters in offered for each, amount in counters.items()})
    groups: dict[tuple[str, str], list[tuple[bool, Counter[CounterID]]]] = {}
    driver, name = pool.id
    for item in pool.newest():
        attribute = item.spec.partition_type_attribute
        for device in item.spec.devices:
            cost = Counter[CounterID]()
            for counter_set, counter, amount in consumption(device):
                cost[counter_set, counter] += amount
            used = device.name in in_use or EVERY_DEVICE in in_use
            if used:
                left.subtract(cost)
            if not attribute or not device.consumes_counters:
                continue
            found = device.attributes.get(attribute) or device.attributes.get(attribute.removeprefix(f"{driver}/"))
            if found is None or found.string is None:
                problem = f"device {device.name} has no string attribute {attribute}"
                yield PartitionType(driver=driver, pool=name, attribute=attribute, problem=problem)
                return
            groups.setdefault((attribute, found.string), []).append((used, cost))
    for (attribute, type), devices in sorted(groups.items()):
        counted = PartitionType(driver=driver, pool=name, attribute=attribute, type=type)
        cost = devices[0][1]
        if any(each != cost for _, each in devices):
            yield replace(counted, problem=f"devices of type {type} consume different counters")
            continue
        free = sum(not used for used, _ in devices)
        room = (max(left[counter], 0) // amount for counter, amount in cost.items() if amount > 0)
        yield replace(counted, total=len(devices), allocatable=min([free, *room]))


def by_driver(types: Iterable[PartitionType]) -> tuple[PartitionType, ...]:
    """The sums over the pools of each driver; pools with a problem stay apart."""
    total, allocatable = Counter[PartitionType](), Counter[PartitionType]()
    for each in types:
        key = replace(each, pool=each.pool if each.problem else "", total=0, allocatable=0)
        total[key] += each.total
        allocatable[key] += each.allocatable
    keys = sorted(total, key=lambda key: (key.problem != "", key))
    return tuple(replace(key, total=total[key], allocatable=allocatable[key]) for key in keys)


def partition_lines(types: Iterable[PartitionType]) -> Iterator[str]:
    """For people."""
    for each in by_driver(types):
        if each.problem:
            yield f"Partitions of pool {each.driver}/{each.pool}: not counted, because {each.problem}."
        else:
            yield f"Partitions with {each.attribute} {each.type}: {each.allocatable} of {each.total} still allocatable."
