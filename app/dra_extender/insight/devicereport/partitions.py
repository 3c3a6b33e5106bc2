"""How many partitions of each type the pools still offer (gate DRAPartitionableDevicesType of Kubernetes 1.37).

Promises: pure. A partition is a device that consumes counters. Its type is the value of the attribute that its slice
names in `partitionTypeAttribute`. Each type is counted alone, on what devices in use leave of the counters: types that
share counters exclude each other. Taints and compatibility groups are not considered.

Rules: Kubernetes 1.37, pkg/controller/resourcepoolstatusrequest/views.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from dra_extender.devices.models import CounterID, consumption
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import EVERY_DEVICE


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


def lines(types: Iterable[PartitionType]) -> Iterator[str]:
    """For people."""
    for each in by_driver(types):
        if each.problem:
            yield f"Partitions of pool {each.driver}/{each.pool}: not counted, because {each.problem}."
        else:
            yield f"Partitions with {each.attribute} {each.type}: {each.allocatable} of {each.total} still allocatable."
