"""The parts of the page, as structs for JSON, with their keys; and the devices of the page in few bytes.

Promises: every part has a `kind`; a part about one object names the object. `DeviceUpdates.refresh` yields the devices
of a pool on a node if they differ since the previous refresh, and counts only pools whose slices or uses have changed.
It runs in turns, and yields a part as soon as it finds that the part has changed or is gone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.groups import group_of
from dra_extender.api.resource import DeviceClass
from dra_extender.devices.assembly import Generations
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import PoolID
from dra_extender.insight.devicereport.listing import ClassMembers, counting
from dra_extender.insight.devicereport.report import Amount, CountedDevice, DeviceState, counter_sets
from dra_extender.scheduling.view import View

MOST_NAMES: Final = 20
"""Names of equal pods."""
PORTION: Final = 250
"""Pools that are compared in one turn."""
MOST_CLAIMS: Final = 5
"""Claims that are named per device."""
AGAIN: Final = 10
"""While a worker evaluates a selector, every tenth refresh counts all devices again."""


class DeviceRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One device. `classes`: index of its classes in the part. `claims` (namespace/name): the first of the `holders`
    claims that hold it; holders that a report does not list count too. `model`: index of its model in the part. `set`:
    index of the counter set that it is a partition of; -1 without one.
    """

    name: str
    state: DeviceState
    fill: float
    classes: int
    model: int = 0
    holders: int = 0
    claims: tuple[str, ...] = ()
    set: int = -1


class PagePart(msgspec.Struct, frozen=True, tag_field="kind"):
    """A part of the page. `key` is unique."""

    key: str


class DevicesPart(PagePart, frozen=True, gc=False, tag="devices"):
    """The devices of a pool on `node`; an empty node has the devices that do not belong to one node. `classes`: the
    distinct sets of classes, to which devices refer; `models` likewise. `counters`: the counters that the devices
    consume. `sets`: the counter sets, and the percentage of each in use.
    """

    driver: str
    pool: str
    node: str
    devices: tuple[DeviceRow, ...]
    classes: tuple[tuple[str, ...], ...]
    counters: tuple[Amount, ...] = ()
    problem: str = ""
    models: tuple[str, ...] = ("",)
    sets: tuple[tuple[str, float], ...] = ()


Difference = DevicesPart | str
"""A part that is new or has changed; the key of one that is gone."""


class StatusPart(PagePart, frozen=True, tag="status"):
    """`unknown`: why the watches are not synced; empty when they are. `complete`: all devices have been counted."""

    unknown: str
    complete: bool


class NodesPart(PagePart, frozen=True, tag="nodes"):
    """The number of nodes, and the names of device classes, as far as the page shows their headroom."""

    count: int
    classes: Sequence[str]


class NodePart(PagePart, frozen=True, tag="node"):
    """A node that is cordoned or has other taints, as key=value:effect."""

    name: str
    cordoned: bool
    taints: Sequence[str]


class PodPart(PagePart, frozen=True, tag="pod"):
    """`count` equal pods of a namespace that use devices and have no node: the pod that represents all, the names of
    some others, and when the oldest was created. `gang`: the pods are those of this gang that wait.
    """

    uid: str
    namespace: str
    name: str
    created: str
    count: int
    others: Sequence[str]
    gang: str = ""


class PodCountPart(PagePart, frozen=True, tag="pods"):
    """The number of pending pods, listed or not."""

    total: int


def pod_part(pod: Pod, pods: Sequence[Pod]) -> PodPart:
    """Of equal pods, the oldest first, one of which is `pod`."""
    meta, names = pod.metadata, (each.metadata.name for each in pods if each is not pod)
    created, others = pods[0].metadata.creation_timestamp or "", tuple(islice(names, MOST_NAMES))
    key, gang = f"pod\n{meta.uid}", str(group_of(pod) or "")
    return PodPart(key, meta.uid, meta.namespace, meta.name, created, len(pods), others, gang)


class DeviceUpdates:
    """The changes of one device report, for one client."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._counted: dict[PoolID, tuple[Generations, int]] = {}
        """The inputs of a pool's counts: its slices, a new object after each change, and the revision of its uses."""
        self._parts: dict[PoolID, dict[str, DevicesPart]] = {}
        self._classes: Mapping[str, DeviceClass] = {}
        self._members = ClassMembers(view)
        self._refreshes = 0
        self.counted = 0
        """Pools that were counted so far."""

    def refresh(self) -> Generator[Difference | None, None, None]:
        """The differences since the previous refresh; None at the end of a turn."""
        classes = dict(self._view.cluster.classes)
        self._refreshes += 1
        if classes != self._classes or (not self._members.complete and self._refreshes % AGAIN == 0):
            self._classes, self._members = classes, ClassMembers(self._view)
            self._counted.clear()
        pools = self._view.cluster.inventory.pools
        ids = [*self._parts, *(id for id in pools if id not in self._parts)]
        for start in range(0, len(ids), PORTION):
            for id in ids[start : start + PORTION]:
                published = pools.get(id)
                if published is None:
                    yield from self._replace(id, {})
                    self._counted.pop(id, None)
                elif self._counted.get(id) != (published.generations, self._view.ledger.revision(id)):
                    yield from self._count(published)
            yield None

    def _count(self, pool: PublishedPool) -> Generator[Difference | None, None, None]:
        inputs = pool.generations, self._view.ledger.revision(pool.id)
        self.counted += 1
        nodes: dict[str, list[CountedDevice]] = {}
        for device in (yield from counting(self._view, pool, self._members)):
            nodes.setdefault(device.node, []).append(device)
        yield from self._replace(pool.id, {node: _part(pool.id, node, devices) for node, devices in nodes.items()})
        self._counted[pool.id] = inputs

    def _replace(self, id: PoolID, parts: dict[str, DevicesPart]) -> Iterator[Difference]:
        before = self._parts.pop(id, {})
        if parts:
            self._parts[id] = parts
        yield from (before[node].key for node in before.keys() - parts.keys())
        yield from (part for node, part in parts.items() if before.get(node) != part)


def _part(id: PoolID, node: str, devices: Sequence[CountedDevice]) -> DevicesPart:
    fills = {name: fill for (_, _, name), fill in counter_sets(devices).items()}
    sets = {name: place for place, name in enumerate(fills)}
    classes: dict[tuple[str, ...], int] = {}
    models: dict[str, int] = {}
    counters: dict[str, Amount] = {}
    rows: list[DeviceRow] = []
    problem = ""
    for device in devices:
        place = classes.setdefault(device.classes, len(classes))
        counters |= {counter.name: counter for counter in device.counters}
        problem = problem or device.problem
        model = models.setdefault(device.model, len(models))
        group = next((sets.get(counter.name.partition("/")[0], -1) for counter in device.counters), -1)
        claims = tuple(dict.fromkeys(holding.claim for holding in device.holders))
        named, held = claims[:MOST_CLAIMS], len(claims) + device.more_holders
        rows.append(DeviceRow(device.name, device.state, device.fill, place, model, held, named, group))
    amounts, filled = tuple(counters.values()), tuple((name, round(fill, 1)) for name, fill in fills.items())
    key = "\n".join(("devices", *id, node))
    return DevicesPart(key, *id, node, tuple(rows), tuple(classes), amounts, problem, tuple(models), filled)
