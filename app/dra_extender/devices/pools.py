"""The pools that one node sees, and their devices in search order.

Promises: immutable. An unusable pool keeps its place, without devices. Device i of a `NodeView` is bit i of every mask
over that view. Order: pools by (binding conditions last, driver, name), slices by name, devices as in their slice.

Rules: Kubernetes 1.36, structured/internal/incubating/pools_incubating.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Final

import msgspec

from dra_extender.api.resource import DeviceID
from dra_extender.devices.models import Consumption, DeviceModel, Memo, SetGroups
from dra_extender.devices.nodeselection import NodeSelection
from dra_extender.devices.usage import PoolID

NOTHING: Final[Mapping[Any, Any]] = {}


class PooledDevice(msgspec.Struct, frozen=True, eq=False):
    """A device in its pool: its ID, its model and its node selection."""

    id: DeviceID
    model: DeviceModel
    selection: NodeSelection


def _nothing() -> Mapping[Any, Any]:
    return NOTHING


class Pool(msgspec.Struct, frozen=True, eq=False):
    """One pool as a node sees it: the devices of its slices, in order. Immutable.

    `names`, `models` and `selections` belong to its devices, in search order. A pool that is `incomplete` or `invalid`
    (the reason; empty when valid) has no devices. `counters`: what the counter sets offer before any allocation, set ->
    counter -> nano units. `consumers`: all devices that consume counters, also those of other nodes; `groups`: the same
    with their compatibility groups, if some has any.
    """

    id: PoolID
    names: tuple[str, ...] = ()
    models: tuple[DeviceModel, ...] = ()
    selections: tuple[NodeSelection, ...] = ()
    late: bool = False
    """Pools with binding conditions are searched last."""
    counters: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=_nothing)
    consumers: tuple[tuple[str, Consumption], ...] = ()
    groups: tuple[tuple[str, SetGroups], ...] = ()
    elsewhere: int = 0
    """Mask of the devices whose own node selection excludes this node."""
    unserved: int = 0
    """Mask of the devices that need a kubelet that skips operations, while the node's kubelet does not skip them."""
    skips: Mapping[int, tuple[str, ...]] = msgspec.field(default_factory=_nothing)
    """The operations that a device skips."""
    unmatchable: Mapping[int, str] = msgspec.field(default_factory=_nothing)
    """Devices whose own node selection is invalid, with the reason."""
    incomplete: bool = False
    gap: str = "not all of its slices are published yet"
    """Why it is incomplete."""
    invalid: str = ""

    def reordered(self, order: Sequence[int]) -> Pool:
        """The same pool with its devices in another order, given by their present positions."""
        return msgspec.structs.replace(
            self,
            names=tuple(self.names[position] for position in order),
            models=tuple(self.models[position] for position in order),
            selections=tuple(self.selections[position] for position in order),
            elsewhere=sum((self.elsewhere >> old & 1) << new for new, old in enumerate(order)),
            unserved=sum((self.unserved >> old & 1) << new for new, old in enumerate(order)),
            skips={new: self.skips[old] for new, old in enumerate(order) if old in self.skips},
            unmatchable={new: self.unmatchable[old] for new, old in enumerate(order) if old in self.unmatchable},
        )

    @property
    def devices(self) -> tuple[PooledDevice, ...]:
        """Built on each call, to save memory: decisions examine few nodes in detail."""
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
        return self.invalid or (self.gap if self.incomplete else "")

    @property
    def order(self) -> tuple[bool, PoolID]:
        """Pools are searched in this order."""
        return self.late, self.id


class NodeView(Memo):
    """All pools of a node in search order. Immutable, except for `memo`: callers remember there what follows from the
    view alone. `offsets[i]`: the first bit of pool i. `error`: why the slices of the node cannot be evaluated.
    """

    def __init__(self, node: str, pools: Iterable[Pool], error: str = "") -> None:
        self.node = node
        self.error = error
        self.pools: tuple[Pool, ...] = tuple(sorted(pools, key=lambda pool: pool.order))
        self.devices: tuple[PooledDevice, ...] = tuple(chain.from_iterable(pool.devices for pool in self.pools))
        self.all = (1 << len(self.devices)) - 1
        self.incomplete = any(pool.incomplete for pool in self.pools)
        self.invalid = any(pool.invalid for pool in self.pools)
        self.elsewhere = self.unserved = 0
        self.unmatchable: dict[int, str] = {}
        self.skips: dict[int, tuple[str, ...]] = {}
        self.offsets = tuple(accumulate([len(pool.names) for pool in self.pools], initial=0))[:-1]
        for pool, offset in zip(self.pools, self.offsets, strict=True):
            self.elsewhere |= pool.elsewhere << offset
            self.unserved |= pool.unserved << offset
            for index, operations in pool.skips.items():
                self.skips[offset + index] = operations
            for index, problem in pool.unmatchable.items():
                self.unmatchable[offset + index] = problem
        self.memo = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return NodeView, (self.node, self.pools, self.error)

    @cached_property
    def multi(self) -> int:
        """Mask of the devices that allow multiple allocations; feature gates are not considered."""
        return sum([1 << index for index, device in enumerate(self.devices) if device.model.traits.multi])

    @cached_property
    def consuming(self) -> int:
        """Mask of the devices that consume counters."""
        return sum([1 << index for index, device in enumerate(self.devices) if device.model.traits.consumes])

    @cached_property
    def bits(self) -> Mapping[DeviceID, int]:
        return {device.id: index for index, device in enumerate(self.devices)}


def places(mask: int) -> Iterator[int]:
    """The bits of the mask by number, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def seen_together(views: Sequence[NodeView]) -> tuple[NodeView, Sequence[int]] | None:
    """What several nodes see, as one view, and for each node the mask of the devices that it sees. None when the nodes
    see different parts of one pool, or a pool that cannot be used.
    """
    pools: dict[PoolID, Pool] = {}
    for view in views:
        for pool in view.pools:
            known = pools.get(pool.id)
            if pool.problem or (known is not None and (known.names, known.counters) != (pool.names, pool.counters)):
                return None
            elsewhere = pool.elsewhere & known.elsewhere if known is not None else pool.elsewhere
            pools[pool.id] = msgspec.structs.replace(pool, elsewhere=elsewhere, unserved=0)
    together = NodeView("", pools.values())
    offsets = {pool.id: offset for pool, offset in zip(together.pools, together.offsets, strict=True)}
    masks = []
    for view in views:
        mask = 0
        for pool in view.pools:
            usable = ((1 << len(pool.names)) - 1) & ~pool.elsewhere & ~pool.unserved
            mask |= usable << offsets[pool.id]
        masks.append(mask)
    return together, masks
