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

from dra_extender.api.resource import Device
from dra_extender.devices.models import CounterID, consumption
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import EVERY_DEVICE


class PartitionType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


def partition_types(pool: PublishedPool, in_use: Container[str]) -> tuple[PartitionType, ...]:
    """By attribute and type; empty for a pool without types. `in_use`: the names of its devices in use."""
    driver, name = pool.id
    left = Counter(
        {
            (counter_set.name, counter): amount.value.nano
            for counter_set in pool.counter_sets()
            for counter, amount in counter_set.counters.items()
        }
    )
    groups: dict[tuple[str, str], list[Device]] = {}
    for item in pool.newest():
        attribute = item.spec.partition_type_attribute
        for device in item.spec.devices:
            used = device.name in in_use or EVERY_DEVICE in in_use
            if used:
                left.subtract(_cost(device))
            if not attribute or not device.consumes_counters:
                continue
            found = device.attributes.get(attribute) or device.attributes.get(attribute.removeprefix(f"{driver}/"))
            if found is None or found.string is None:
                problem = f"device {device.name} has no string attribute {attribute}"
                return (PartitionType(driver=driver, pool=name, attribute=attribute, problem=problem),)
            groups.setdefault((attribute, found.string), []).append(device)
    return tuple(
        _counted(PartitionType(driver=driver, pool=name, attribute=attribute, type=type), devices, left, in_use)
        for (attribute, type), devices in sorted(groups.items())
    )


def _counted(
    found: PartitionType, devices: list[Device], left: Counter[CounterID], in_use: Container[str]
) -> PartitionType:
    cost = _cost(devices[0])
    if any(_cost(device) != cost for device in devices):
        return msgspec.structs.replace(found, problem=f"devices of type {found.type} consume different counters")
    free = sum(device.name not in in_use for device in devices) if EVERY_DEVICE not in in_use else 0
    room = min((max(left[counter], 0) // amount for counter, amount in cost.items() if amount > 0), default=free)
    return msgspec.structs.replace(found, total=len(devices), allocatable=min(free, room))


def _cost(device: Device) -> Counter[CounterID]:
    found: Counter[CounterID] = Counter()
    for counter_set, counter, amount in consumption(device):
        found[counter_set, counter] += amount
    return found


def by_driver(types: Iterable[PartitionType]) -> tuple[PartitionType, ...]:
    """The sums over the pools of each driver; pools with a problem stay apart."""
    found: dict[tuple[str, str, str], PartitionType] = {}
    problems: list[PartitionType] = []
    for each in types:
        if each.problem:
            problems.append(each)
            continue
        key = each.driver, each.attribute, each.type
        known = found.get(key) or msgspec.structs.replace(each, pool="", total=0, allocatable=0)
        found[key] = msgspec.structs.replace(
            known, total=known.total + each.total, allocatable=known.allocatable + each.allocatable
        )
    return (*(found[key] for key in sorted(found)), *problems)


def lines(types: Iterable[PartitionType]) -> Iterator[str]:
    """For people."""
    for each in by_driver(types):
        if each.problem:
            yield f"Partitions of pool {each.driver}/{each.pool}: not counted, because {each.problem}."
        else:
            yield f"Partitions with {each.attribute} {each.type}: {each.allocatable} of {each.total} still allocatable."
