"""The shape of a pod as policies compare pods: CPU, memory, and which devices it may take.

Promises: pods that ask for the same have equal shapes. Requests with admin access take nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from dra_extender.allocation.requests import Ask, DeviceFilter, PreparedClaims
from dra_extender.placement.load import Load
from dra_extender.plurals import counted

_GIB: Final = 2**30

EVERY: Final = -1
"""The count of mode All."""


class DeviceDemand(msgspec.Struct, frozen=True):
    """One request: its alternatives in order of preference, as (filter, count)."""

    alternatives: tuple[tuple[DeviceFilter, int], ...]


Need = tuple[DeviceDemand, ...]
"""The devices of a pod."""


class PodShape(msgspec.Struct, frozen=True):
    """`cpu` in millicores, `memory` in bytes."""

    cpu: int
    memory: int
    need: Need = ()


def shape_of(load: Load, prepared: Sequence[PreparedClaims]) -> PodShape:
    """The shape of a pod with this load and these claims."""
    need = tuple(
        DeviceDemand(tuple(_alternative(ask) for ask in request.asks))
        for claims in prepared
        for request in claims.requests
        if not all(ask.admin for ask in request.asks)
    )
    return PodShape(load.cpu, load.memory, need)


def filters_of(shape: PodShape) -> frozenset[DeviceFilter]:
    """All filters of its requests."""
    return frozenset(filter for demand in shape.need for filter, _ in demand.alternatives)


def _alternative(ask: Ask) -> tuple[DeviceFilter, int]:
    return ask.filter, EVERY if ask.all else ask.count


def described(cpu: int, memory: int, need: Need) -> str:
    """A pod shape for people."""
    parts = []
    if cpu:
        parts.append(f"{cpu / 1000:g} CPU")
    if memory:
        parts.append(f"{memory / _GIB:.3g}Gi")
    for demand in need:
        filter, count = demand.alternatives[0]
        amounts = "".join(f" with {name} {amount}" for name, amount in filter.capacity.items())
        parts.append(("all devices" if count == EVERY else counted(count, "device")) + amounts)
        if filter.selectors:
            parts[-1] += f" where {' && '.join(filter.selectors)}"
    return ", ".join(parts) or "nothing"
