"""Compatibility groups of devices that consume counters.

Promises: immutable. Devices in use on one counter set have a group in common, or none of them has groups.

Rules: Kubernetes 1.37, structured/internal/experimental/compatibility_groups.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dra_extender.devices.models import Consumption, Traits

Groups = frozenset[str]
"""What the devices in use on a counter set have in common; empty if they have no groups."""

SetGroups = tuple[tuple[str, Groups], ...]
"""The groups of one device, by counter set that it consumes."""

_NONE_LEFT: Final[Groups] = frozenset(("",))
"""Devices in use that have no group in common: nothing is compatible with them."""


def groups_of(consumes: Consumption, declared: Mapping[str, Iterable[str]]) -> SetGroups:
    """Of a device that consumes these counters."""
    return tuple((name, frozenset(declared.get(name, ()))) for name in dict.fromkeys(item[0] for item in consumes))


def declared_groups(traits: Traits) -> SetGroups:
    """Of a device with these traits."""
    return groups_of(traits.consumes, dict(traits.groups)) if traits.consumes else ()


def admits(in_use: Groups | None, groups: Groups) -> bool:
    """Whether a device may join those in use; None: no device is in use."""
    if in_use is None or not in_use or not groups:
        return in_use is None or in_use == groups
    return not in_use.isdisjoint(groups)


def joined(in_use: Groups | None, groups: Groups) -> Groups:
    """What is common to the devices in use and one more."""
    if in_use is None:
        return groups
    return in_use & groups or _NONE_LEFT if in_use and groups else in_use
