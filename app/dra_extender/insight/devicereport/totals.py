"""Devices added up: all of them, and by node, driver, class or namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import msgspec

from dra_extender.insight.devicereport.report import CountedDevice, Totals

By = Literal["nodes", "drivers", "classes", "namespaces"]


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one node, driver or class, or those that claims of one namespace hold; how many `claims` and
    `pods` hold some of them. A device that is in several of a kind counts for each.
    """

    name: str
    totals: Totals
    claims: int
    pods: int


def totals_of(devices: Iterable[CountedDevice]) -> Totals:
    states: Counter[str] = Counter()
    fill = 0.0
    for device in devices:
        states[device.state] += 1
        fill += device.fill
    count = states.total()
    return Totals(devices=count, fill=round(fill / count, 1) if count else 0.0, **states)


def sums(devices: Iterable[CountedDevice], by: By) -> tuple[Sum, ...]:
    """In the order of the names; what belongs to none of the kind comes first, under an empty name."""
    grouped: dict[str, list[CountedDevice]] = {}
    for device in devices:
        for name in _NAMES[by](device):
            grouped.setdefault(name, []).append(device)
    within = by == "namespaces"
    return tuple(_sum(name, members, name if within else None) for name, members in sorted(grouped.items()))


def _sum(name: str, devices: Iterable[CountedDevice], namespace: str | None) -> Sum:
    members = list(devices)
    holders = [
        holder for device in members for holder in device.holders if namespace is None or holder.namespace == namespace
    ]
    claims = {holder.claim for holder in holders}
    pods = {(holder.namespace, pod) for holder in holders for pod in holder.pods}
    return Sum(name=name, totals=totals_of(members), claims=len(claims), pods=len(pods))


_NAMES: Final[Mapping[By, Callable[[CountedDevice], Iterable[str]]]] = {
    "nodes": lambda device: (device.node,),
    "drivers": lambda device: (device.driver,),
    "classes": lambda device: device.classes or ("",),
    "namespaces": lambda device: sorted({holder.namespace for holder in device.holders}),
}
