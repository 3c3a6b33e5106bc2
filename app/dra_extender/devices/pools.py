"""A resource pool as one node sees it.

Promises: immutable. A pool that cannot be used keeps its place, flagged, without devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import chain
from typing import Any, Final

from dra_extender.api.resource import DeviceID
from dra_extender.devices.models import Block, Consumption, DeviceModel
from dra_extender.devices.nodeselection import NodeSelection
from dra_extender.devices.usage import PoolID

NOTHING: Final[Mapping[Any, Any]] = {}


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
    """One pool as a node sees it: the blocks of its slices, laid out. Immutable.

    `names`, `models` and `selections` are those of its devices, in search order. `incomplete` and `invalid` (the
    reason, empty when valid) pools have no devices. `counters` are what the pool's
    counter sets offer before anything is allocated: set -> counter -> nano units. `consumers` are all devices that
    consume counters, also those for other nodes.
    """

    __slots__ = (
        "consumers", "counters", "elsewhere", "id", "incomplete", "invalid", "late", "models", "names", "selections",
        "unmatchable",
    )  # fmt: skip

    def __init__(
        self,
        id: PoolID,
        blocks: Sequence[Block] = (),
        selections: tuple[NodeSelection, ...] = (),
        *,
        counters: Mapping[str, Mapping[str, int]] | None = None,
        consumers: tuple[tuple[str, Consumption], ...] = (),
        elsewhere: int = 0,
        unmatchable: Mapping[int, str] | None = None,
        incomplete: bool = False,
        invalid: str = "",
    ) -> None:
        self.id = id
        self.names: tuple[str, ...]
        self.models: tuple[DeviceModel, ...]
        if len(blocks) == 1:
            self.names, self.models = blocks[0].names, blocks[0].models
        else:
            self.names = tuple(chain.from_iterable(block.names for block in blocks))
            self.models = tuple(chain.from_iterable(block.models for block in blocks))
        self.selections = selections
        self.counters = counters or NOTHING
        self.consumers = consumers
        self.elsewhere = elsewhere
        """Mask of the devices whose own node selection leaves this node out."""
        self.unmatchable = unmatchable or NOTHING
        """Devices whose own node selection cannot be understood, with the reason."""
        self.incomplete = incomplete
        self.invalid = invalid
        self.late = any(block.late for block in blocks)
        """Pools with binding conditions are searched last."""

    def reordered(self, order: Sequence[int]) -> Pool:
        """The same pool with its devices in another order, given by their present positions."""
        found = copy(self)
        found.names = tuple(self.names[position] for position in order)
        found.models = tuple(self.models[position] for position in order)
        found.selections = tuple(self.selections[position] for position in order)
        found.elsewhere = sum((self.elsewhere >> old & 1) << new for new, old in enumerate(order))
        found.unmatchable = {new: self.unmatchable[old] for new, old in enumerate(order) if old in self.unmatchable}
        return found

    @property
    def devices(self) -> tuple[PooledDevice, ...]:
        """Made anew for every caller: there are many in a cluster, and decisions look at few nodes in detail."""
        return tuple(
            PooledDevice((*self.id, name), model, selection)
            for name, model, selection in zip(self.names, self.models, self.selections, strict=True)
        )

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
