"""How many more pods with certain claims fit, now or after evictions.

Promises: the allocator decides on every counted pod, with the devices that the pods before it leave. It fills the nodes
one by one, in the order of their names. If a node has the same devices in the same state as an earlier node, it counts
like that one. The caller limits the number of decisions; `complete` is False if they were not enough. It runs in turns.
Only devices count. Cordoned nodes are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dra_extender.allocation.plan import Failure, Plan
from dra_extender.allocation.requests import prepare
from dra_extender.api.core import Node
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    class_names,
)
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.insight.devicereport.listing import DeviceQuery, reporting
from dra_extender.insight.devicereport.report import PartitionType, by_driver, partition_lines
from dra_extender.insight.requests import InvalidRequestError, UnknownObjectError
from dra_extender.plaintext import counted
from dra_extender.scheduling.turns import PORTION, QueryBudget, Turns
from dra_extender.scheduling.view import View

DECISIONS: Final = 2_000
"""Allocations that are tried by default."""
EXAMPLES: Final = 5
UNCHECKED: Final = "CPU, memory and taints of nodes, affinity, quotas"


class HeadroomGroup(msgspec.Struct, frozen=True):
    """`fits` more pods fit on each of `nodes` nodes; `examples` are the names of some."""

    fits: int
    nodes: int
    examples: tuple[str, ...]


class GangShape(NamedTuple):
    """A gang of `size` pods; all are on nodes with one value of the label, if there is one."""

    size: int
    label: str = ""

    def gangs(self, found: Mapping[int, Sequence[str]], nodes: Mapping[str, Node]) -> int:
        """How many fit at the same time. `found`: by the number of pods that fit on a node, these nodes."""
        rooms = Counter[str]()
        for fits, names in found.items():
            for name in names:
                value = nodes[name].metadata.labels.get(self.label, "") if name in nodes else ""
                if value or not self.label:
                    rooms[value] += fits
        return sum(room // self.size for room in rooms.values())

    def __str__(self) -> str:
        return f"gangs of {self.size}" + (f", each on nodes with one value of label {self.label}" if self.label else "")


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """How many more pods `fits`, on `nodes` nodes of `of`; `groups`: the nodes with the most headroom first. Not
    `complete`: the number is a minimum, because the limit of `decisions` was reached. `partitions`: by type, those of
    pools with devices of the classes, also on cordoned nodes. `gangs`: how many more gangs as `gang` says fit
    with such pods; None if that was not asked.
    """

    what: str
    fits: int
    nodes: int
    of: int
    groups: tuple[HeadroomGroup, ...] = ()
    complete: bool = True
    decisions: int = 0
    partitions: tuple[PartitionType, ...] = ()
    gangs: int | None = None
    gang: str = ""

    def lines(self) -> Iterator[str]:
        """For people."""
        least = "" if self.complete else "at least "
        what = self.what[:1].upper() + self.what[1:]
        first = f"{what}: {least}{self.fits} more {'fits' if self.fits == 1 else 'fit'}"
        where = f", on {self.nodes} of" if self.nodes else " on"
        yield f"{first}{where} {counted(self.of, 'node')}."
        for group in self.groups:
            names = ", ".join(group.examples) + (", …" if group.nodes > len(group.examples) else "")
            each = "each of " if group.nodes > 1 else ""
            yield f"  {group.fits} on {each}{counted(group.nodes, 'node')}: {names}"
        if self.gangs is not None:
            yield f"Together: {least}{self.gangs} more {self.gang}."
        yield from partition_lines(self.partitions)
        yield f"Not checked: {UNCHECKED}."
        if not self.complete:
            yield f"Stopped after {counted(self.decisions, 'allocation')}."


def class_request(view: View, name: str, count: int = 1) -> tuple[str, tuple[ResourceClaim, ...]]:
    """(a description for people, the claims of one pod) of pods with `count` devices of a class.

    Raises UnknownObjectError if the class does not exist, and InvalidRequestError if no decision is possible.
    """
    if name not in view.cluster.classes:
        raise UnknownObjectError("class", f"DeviceClass {name} not found")
    exactly = ExactDeviceRequest(device_class_name=name, allocation_mode="ExactCount", count=count)
    devices = DeviceClaim(requests=(DeviceRequest("devices", exactly),))
    claims = (ResourceClaim(ObjectMeta(name="headroom", uid=f"headroom of {name}"), ResourceClaimSpec(devices)),)
    found = prepare(claims, view.cluster.classes, view.features)
    if isinstance(found, Failure):
        raise InvalidRequestError("class", found.error)
    return f"pods with {counted(count, 'device')} of class {name}", claims


def measuring(
    view: View, what: str, claims: Sequence[ResourceClaim], gang: GangShape | None = None, *, most: int = DECISIONS
) -> Turns[Headroom]:
    """How many more pods with these claims fit, and how many gangs of them. `what` describes the pods."""
    filling = _Filling(view, claims, most)
    names = [name for name in sorted(view.cluster.nodes) if not view.cluster.nodes[name].spec.unschedulable]
    found: dict[int, list[str]] = {}
    for start in range(0, len(names), PORTION):
        portion = names[start : start + PORTION]
        keys = yield from filling.keys(portion)
        for name in portion:
            fits = yield from filling.node(name, keys.get(name))
            if fits:
                found.setdefault(fits, []).append(name)
        yield
    partitions: tuple[PartitionType, ...] = ()
    if view.features.partition_types:
        report = yield from reporting(view, DeviceQuery(classes=frozenset(class_names(claims))))
        partitions = by_driver(report.partitions)
    return Headroom(
        what=what,
        fits=sum(fits * len(members) for fits, members in found.items()),
        nodes=sum(map(len, found.values())),
        of=len(names),
        groups=tuple(
            HeadroomGroup(fits, len(found[fits]), tuple(found[fits][:EXAMPLES])) for fits in sorted(found, reverse=True)
        ),
        complete=filling.complete,
        decisions=filling.decisions,
        partitions=partitions,
        gangs=gang.gangs(found, view.cluster.nodes) if gang is not None else None,
        gang=str(gang or ""),
    )


class _Filling:
    """Fills nodes one after the other. A device that several nodes can use is then in use for all of them."""

    def __init__(self, view: View, claims: Sequence[ResourceClaim], most: int) -> None:
        self.decisions = 0
        self._enough = True
        self._view = replace(view, decisions=view.decisions.with_own_results())
        self._budget = QueryBudget(self._view)
        self._claims = claims
        self._state = view.overlay()
        self._most = most
        self._is_shared = False
        self._known: dict[Hashable, int] = {}

    @property
    def complete(self) -> bool:
        """True while every decision was made."""
        return self._enough and self._budget.complete

    def keys(self, names: Sequence[str]) -> Turns[Mapping[str, Hashable]]:
        """Equal for nodes with the same devices in the same state."""
        found = yield from self._budget.turn(lambda view: dict(view.decisions.alike(self._claims, names)))
        return found or {}

    def node(self, name: str, key: Hashable) -> Turns[int]:
        """How many fit on the node."""
        if name in self._state.differing or self._is_shared:
            key = None
        known = self._known.get(key) if key is not None else None
        if known is not None:
            return known
        state, fits, whole = self._state, 0, self.complete
        while True:
            plans = yield from self._plan(state, name)
            if plans is None:
                break
            state, fits = state.with_plans(plans), fits + 1
            if not all(state.has(claim) for claim, _ in plans):  # another allocation was faster
                fits -= 1
                break
            pools = {result.id[:2] for _, allocation in plans for result in allocation.devices.results}
            if any(len(list(self._view.cluster.inventory.nodes_seeing(pool))) > 1 for pool in pools):
                self._state, self._is_shared = state, True
            yield
        if key is not None and not self._is_shared and whole == self.complete:
            self._known[key] = fits
        return fits

    def _plan(self, state: Overlay, name: str) -> Turns[list[Planned] | None]:
        if self.decisions >= self._most:
            self._enough = False
            return None
        self.decisions += 1
        number = self.decisions
        claims = [
            replace(claim, metadata=replace(claim.metadata, uid=f"{claim.metadata.uid} ({number})"))
            for claim in self._claims
        ]
        found = yield from self._budget.turn(lambda view: view.decisions.with_state(state).plan(claims, name))
        return list(zip(claims, found.allocations, strict=True)) if isinstance(found, Plan) else None
