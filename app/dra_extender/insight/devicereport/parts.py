"""The census in parts, for somebody who follows it: the devices that a pool has on a node, in few bytes.

Promises: `look` finds what differs from the look before, and takes only pools that may differ: those whose slices or
uses have changed since. It is made in small steps and yields a part as soon as it is known to be new or gone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from dra_extender.api.resource import DeviceClass
from dra_extender.devices.assembly import Peers
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import PoolID
from dra_extender.insight.devicereport.report import Amount, CountedDevice, State
from dra_extender.insight.devicereport.taking import ClassMembers, counting
from dra_extender.scheduling.view import View

PORTION: Final = 250
"""Pools that are compared in one step."""
MOST_CLAIMS: Final = 5
"""Claims of one device that are named."""
AGAIN: Final = 10
"""While a selector is evaluated elsewhere, every so many looks count all devices anew."""


class DeviceRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One device. `classes`: the place of its classes in the part's. `claims` (namespace/name) are the first that hold
    it, of `holders`. `taints` are counted.
    """

    name: str
    state: State
    fill: float
    classes: int
    taints: int = 0
    holders: int = 0
    claims: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True, gc=False):
    """The devices of a pool on `node`; empty: those that are no single node's own. `classes`: the different ones, by
    which devices name theirs. `counters`: those that some of the devices consume.
    """

    driver: str
    pool: str
    node: str
    devices: tuple[DeviceRow, ...]
    classes: tuple[tuple[str, ...], ...]
    counters: tuple[Amount, ...] = ()
    problem: str = ""


PartID = tuple[str, str, str]
"""(driver, pool, node)."""

Difference = tuple[PartID, Part | None]
"""A part that is new or has changed; None: it has gone."""


class _Stamp(NamedTuple):
    """What a pool was counted from. `slices` is another object after every change of a slice."""

    slices: Peers
    uses: int


class Following:
    """One census that is followed. Not to be shared by two who look."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._stamps: dict[PoolID, _Stamp] = {}
        self._parts: dict[PoolID, dict[str, Part]] = {}
        self._classes: Mapping[str, DeviceClass] = {}
        self._members = ClassMembers(view)
        self._looks = 0
        self.taken = 0
        """Pools that were counted, by all looks together."""

    def look(self) -> Generator[Difference | None, None, None]:
        """What differs since the last look; None after a step that has found nothing."""
        self._learn_classes()
        pools = self._view.cluster.inventory.pools
        for portion in _portions([*self._parts, *(id for id in pools if id not in self._parts)]):
            for id in portion:
                published = pools.get(id)
                if published is None:
                    yield from self._replace(id, {})
                    self._stamps.pop(id, None)
                elif self._is_due(published):
                    yield from self._count(published)
            yield None

    def _learn_classes(self) -> None:
        """Devices are in other classes when classes change, or when a selector has been evaluated at last."""
        classes = dict(self._view.cluster.classes)
        self._looks += 1
        if classes != self._classes or (not self._members.complete and self._looks % AGAIN == 0):
            self._classes, self._members = classes, ClassMembers(self._view)
            self._stamps.clear()

    def _is_due(self, pool: PublishedPool) -> bool:
        stamp = self._stamps.get(pool.id)
        uses = self._view.ledger.revision(pool.id)
        return stamp is None or stamp.slices is not pool.peers() or stamp.uses != uses

    def _count(self, pool: PublishedPool) -> Generator[Difference | None, None, None]:
        stamp = _Stamp(pool.peers(), self._view.ledger.revision(pool.id))
        self.taken += 1
        nodes: dict[str, list[CountedDevice]] = {}
        for device in (yield from counting(self._view, pool, self._members)):
            nodes.setdefault(device.node, []).append(device)
        yield from self._replace(pool.id, {node: _part(pool.id, node, devices) for node, devices in nodes.items()})
        self._stamps[pool.id] = stamp

    def _replace(self, id: PoolID, parts: dict[str, Part]) -> Iterator[Difference]:
        before = self._parts.pop(id, {})
        if parts:
            self._parts[id] = parts
        for node in before.keys() - parts.keys():
            yield (*id, node), None
        for node, part in parts.items():
            if before.get(node) != part:
                yield (*id, node), part


def _portions(ids: list[PoolID]) -> Iterator[list[PoolID]]:
    return (ids[start : start + PORTION] for start in range(0, len(ids), PORTION))


def _part(id: PoolID, node: str, devices: Iterable[CountedDevice]) -> Part:
    classes: dict[tuple[str, ...], int] = {}
    counters: dict[str, Amount] = {}
    rows: list[DeviceRow] = []
    problem = ""
    for device in devices:
        place = classes.setdefault(device.classes, len(classes))
        counters |= {counter.name: counter for counter in device.counters}
        problem = problem or device.problem
        rows.append(_row(device, place))
    return Part(id[0], id[1], node, tuple(rows), tuple(classes), tuple(counters.values()), problem)


def _row(device: CountedDevice, classes: int) -> DeviceRow:
    claims = tuple(dict.fromkeys(holding.claim for holding in device.holders))
    return DeviceRow(
        name=device.name,
        state=device.state,
        fill=device.fill,
        classes=classes,
        taints=len(device.taints),
        holders=len(claims),
        claims=claims[:MOST_CLAIMS],
    )
