"""What is wrong with published slices, and what to do: found before a pod is refused for it.

The rules are those that make a pool incomplete or invalid (Kubernetes 1.36,
structured/internal/incubating/pools_incubating.go), and node selectors that cannot be parsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from app.api.resource import ResourceSlice
from app.devices.catalogue import PublishedPool
from app.devices.nodeselector import NodeSelectorError, matches

Problem = tuple[str, str]
"""(slice name, what is wrong and what to do)."""


def problems_of(pool: PublishedPool) -> Iterator[Problem]:
    """The problems of the newest generation of the pool; of several with one slice the last counts most."""
    newest = list(pool.newest())
    yield from _count(pool, newest)
    yield from _duplicates(newest)
    sets = {item.name: set(item.counters) for item in pool.counter_sets()}
    for item in newest:
        yield from _missing_counters(item, sets)
        yield from _node_selectors(item)


def _count(pool: PublishedPool, newest: list[ResourceSlice]) -> Iterator[Problem]:
    for item in newest:
        wanted = item.spec.pool.resource_slice_count
        if wanted != len(newest):
            yield (
                item.metadata.name,
                f"pool {'/'.join(pool.id)} has {len(newest)} slices of generation {item.spec.pool.generation}, "
                f"but spec.pool.resourceSliceCount is {wanted}: its devices are left out until the numbers agree",
            )


def _duplicates(newest: list[ResourceSlice]) -> Iterator[Problem]:
    names = Counter(device.name for item in newest for device in item.spec.devices)
    for item in newest:
        twice = sorted({device.name for device in item.spec.devices if names[device.name] > 1})
        if twice:
            yield (
                item.metadata.name,
                f"spec.devices: name {', '.join(twice)} occurs more than once in the pool, which makes the pool "
                "invalid: the driver has to give each device a name of its own",
            )


def _missing_counters(item: ResourceSlice, sets: dict[str, set[str]]) -> Iterator[Problem]:
    for index, device in enumerate(item.spec.devices):
        for consumption in device.consumes_counters:
            name = consumption.counter_set
            missing = sorted(set(consumption.counters) - sets.get(name, set()))
            if missing or name not in sets:
                what = f"counter {', '.join(missing)} of set {name}" if name in sets else f"counter set {name}"
                yield (
                    item.metadata.name,
                    f"spec.devices[{index}] ({device.name}) consumes {what}, which the pool does not publish, and that "
                    "makes the pool invalid: the driver has to publish it in spec.sharedCounters",
                )
                return


def _node_selectors(item: ResourceSlice) -> Iterator[Problem]:
    selectors = [("spec.nodeSelector", item.spec.node_selector)]
    selectors += [(f"spec.devices[{index}].nodeSelector", d.node_selector) for index, d in enumerate(item.spec.devices)]
    for field, selector in selectors:
        try:
            if selector is not None:
                matches(selector, "", {})
        except NodeSelectorError as error:
            yield item.metadata.name, f"{field}: {error}: no pod can be decided until it is corrected"
