"""Which devices of a node are close to each other: those with one PCIe root, NUMA node or NVLink clique.

Promises: pure. Drivers publish closeness under names of their own, so attributes are told by their identifier, whatever
their domain; devices of different drivers can be close. A constraint is a must and the allocator's business: this is
about wishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dra_extender.devices.nodeview import NodeView

KINDS: Final[Mapping[str, str]] = {
    "pcieroot": "PCIe root",
    "numanode": "NUMA node",
    "numanodeid": "NUMA node",
    "numa": "NUMA node",
    "cliqueid": "NVLink clique",
    "nvlinkclique": "NVLink clique",
}
"""What the identifier of an attribute, in small letters, says about closeness."""


class Group(NamedTuple):
    """Devices that are close, as a mask."""

    kind: str
    value: object
    devices: int


class Topology:
    """The groups of a view, kind by kind."""

    def __init__(self, view: NodeView) -> None:
        masks: dict[tuple[str, object], int] = {}
        for bit, device in enumerate(view.devices):
            for name, attribute in device.model.traits.attributes.items():
                kind = KINDS.get(name.rpartition("/")[2].lower())
                if kind is not None and isinstance(attribute.value, str | int):
                    masks[kind, attribute.value] = masks.get((kind, attribute.value), 0) | 1 << bit
        self.groups = tuple(Group(kind, value, mask) for (kind, value), mask in masks.items())

    def distance(self, devices: int) -> int:
        """In how many groups too many these devices are: 0 when they are all close."""
        touched: dict[str, int] = {}
        for group in self.groups:
            if group.devices & devices:
                touched[group.kind] = touched.get(group.kind, 0) + 1
        return sum(touched.values()) - len(touched)

    def unity(self, free: int) -> float:
        """How much of the groups is left in one piece, when these devices are free."""
        return sum(((group.devices & free).bit_count() / group.devices.bit_count()) ** 2 for group in self.groups)

    def begun(self, device: int, free: int) -> int:
        """How many devices of the smallest group of the device are free; many when it has no group."""
        sizes = [group.devices for group in self.groups if group.devices >> device & 1]
        return min(((mask & free).bit_count() for mask in sizes), default=1 << 30)


def topology_of(view: NodeView) -> Topology:
    """Remembered by the view."""
    found: Topology | None = view.masks.get(Topology)
    return found if found is not None else view.remember(Topology, Topology(view))
