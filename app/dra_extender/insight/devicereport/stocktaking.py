"""Devices added up for monitoring: by driver, by class, and what is left of those that may be shared.

Promises: it is made pool by pool in small steps, so that what is remembered meanwhile does not grow with the cluster.
The numbers are those of the moments at which the pools were looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.insight.devicereport.report import CountedDevice, State
from dra_extender.insight.devicereport.taking import ClassMembers, counting
from dra_extender.scheduling.slices import Slices
from dra_extender.scheduling.view import View

_SHARED: Final = ("free", "shared")
"""States of devices of which shares may be given to anybody."""


class Stock(msgspec.Struct, frozen=True):
    """How many devices are in each state: by (driver, state), each device once; and by (class, state), a device once
    for every class that selects it. Of devices that may be shared, and are usable and not tainted, by (driver,
    capacity): how much there is, and how much nobody has, in nano units.
    """

    drivers: Counter[tuple[str, State]] = msgspec.field(default_factory=Counter)
    classes: Counter[tuple[str, State]] = msgspec.field(default_factory=Counter)
    offered: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    free: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)

    def add(self, devices: Iterable[CountedDevice]) -> None:
        """Some more."""
        for device in devices:
            self.drivers[device.driver, device.state] += 1
            for name in device.classes:
                self.classes[name, device.state] += 1
            for amount in device.capacity if device.state in _SHARED else ():
                offered, used = Quantity.parse(amount.of).nano, Quantity.parse(amount.used).nano
                self.offered[device.driver, amount.name] += offered
                self.free[device.driver, amount.name] += max(0, offered - used)


def stocktaking(view: View) -> Slices[Stock]:
    """All devices."""
    found, classes = Stock(), ClassMembers(view)
    for pool in list(view.cluster.inventory.pools):
        published = view.cluster.inventory.pools.get(pool)
        if published is not None:
            found.add((yield from counting(view, published, classes)))
    return found
