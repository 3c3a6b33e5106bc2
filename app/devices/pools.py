"""A resource pool as one node sees it.

Promises: immutable. A pool that cannot be used keeps its place, flagged, without devices.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.api.resource import DeviceID
from app.devices.models import DeviceModel
from app.devices.nodeselection import NodeSelection
from app.devices.traits import Consumption
from app.devices.uses import PoolID


class PooledDevice:
    """A device in its pool: who it is, and the model it shares with equal devices."""

    __slots__ = ("id", "model", "selection")

    def __init__(self, id: DeviceID, model: DeviceModel, selection: NodeSelection) -> None:
        self.id = id
        self.model = model
        self.selection = selection

    def __repr__(self) -> str:
        return f"PooledDevice({'/'.join(self.id)})"


class Pool:
    """One pool as a node sees it. Immutable.

    `incomplete` and `invalid` (the reason, empty when valid) pools have no devices. `counters` are what the pool's
    counter sets offer before anything is allocated: set -> counter -> nano units. `consumers` are all devices that
    consume counters, also those for other nodes.
    """

    __slots__ = ("consumers", "counters", "devices", "elsewhere", "id", "incomplete", "invalid", "late", "unmatchable")

    def __init__(
        self,
        id: PoolID,
        devices: tuple[PooledDevice, ...] = (),
        *,
        counters: Mapping[str, Mapping[str, int]] | None = None,
        consumers: tuple[tuple[str, Consumption], ...] = (),
        elsewhere: int = 0,
        unmatchable: Mapping[int, str] | None = None,
        incomplete: bool = False,
        invalid: str = "",
    ) -> None:
        self.id = id
        self.devices = devices
        self.counters = counters or {}
        self.consumers = consumers
        self.elsewhere = elsewhere
        """Mask of the devices whose own node selection leaves this node out."""
        self.unmatchable = unmatchable or {}
        """Devices whose own node selection cannot be understood, with the reason."""
        self.incomplete = incomplete
        self.invalid = invalid
        self.late = any(device.model.traits.binding_conditions for device in devices)
        """Pools with binding conditions are searched last."""

    @property
    def name(self) -> str:
        return "/".join(self.id)

    @property
    def problem(self) -> str:
        """Why its devices are left out; empty when they are not."""
        return self.invalid or ("not all of its slices are published yet" if self.incomplete else "")

    @property
    def order(self) -> tuple[bool, PoolID]:
        """Pools are searched in this order."""
        return self.late, self.id
