"""How a pod's claims look at nodes: through a lens, nodes that must get the same verdict look the same.

Promises: two nodes with equal fingerprints make the search take the same turns. A fingerprint holds, per pool and in
search order, what the search can notice: what the claims' selectors, tolerations and capacity requests say about each
device, the values of the attributes that constraints compare, what the device consumes and offers, whether it is free,
and what the pool's counters still have. Names of nodes, pools and devices, and devices no request wants, are left out.
A device that somebody owns is left out too, unless a request looks at devices in use (mode All, admin access).
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count

from app.allocation.cache.reduction import Reduction, Shape
from app.allocation.requests import Filter, PreparedClaims
from app.allocation.selection import judge
from app.devices.ledger import Ledger
from app.devices.models import DeviceModel
from app.devices.nodes import SeenNode, Sight
from app.devices.overlay import Overlay
from app.devices.pools import Pool
from app.devices.poolstate import PoolState, PoolStates

REMEMBERED = 50_000

Fingerprint = tuple[Hashable, ...]

LensKey = tuple[tuple[Filter, ...], tuple[str, ...], bool]

IRRELEVANT = 0
"""The kind of devices that no request can have, and the part of pools that make no difference."""

INCOMPLETE, INVALID = -1, -2
"""Parts of pools without devices."""


class Lens:
    """What is looked at: `filters` of requests, `attributes` of constraints. `whole`: devices in use matter as well.

    `reduction` has to be made for what these read; lenses that read the same may share it.
    """

    def __init__(
        self,
        filters: tuple[Filter, ...],
        attributes: tuple[str, ...],
        whole: bool,
        *,
        reduction: Reduction,
        states: PoolStates,
    ) -> None:
        self._filters = filters
        self._attributes = attributes
        self._whole = whole
        self._reduction = reduction
        self._states = states
        self._kinds: dict[Hashable, int] = {}
        self._kind_of: dict[DeviceModel, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._parts: dict[tuple[Shape, PoolState], int] = {}
        self._next = count(1)

    @staticmethod
    def key(prepared: PreparedClaims) -> LensKey:
        """Claims with equal keys look at nodes in the same way: the arguments of the lens."""
        asks = [ask for request in prepared.requests for ask in request.asks]
        attributes = {
            name
            for claim in prepared.claims
            for constraint in claim.constraints
            if (name := constraint.match_attribute or constraint.distinct_attribute)
        }
        filters = tuple(dict.fromkeys(ask.filter for ask in asks))
        return filters, tuple(sorted(attributes)), any(ask.all or ask.admin for ask in asks)

    def fingerprint(self, seen: SeenNode, ledger: Ledger, overlay: Overlay) -> Fingerprint:
        """Of an up-to-date node, in the state that the overlay on this ledger shows."""
        if seen.error:
            return (seen.error,)
        found: list[int] = []
        for sight in seen.sights:
            pool = sight.pool
            if pool is not None:
                shape, state = self._reduction.shape(sight, pool), self._state(sight, pool, ledger, overlay)
                part = self._parts.get((shape, state))
                if part is None:
                    part = self._part(shape, state)
                if part != IRRELEVANT:
                    found.append(part)
        return tuple(found)

    def _state(self, sight: Sight, pool: Pool, ledger: Ledger, overlay: Overlay) -> PoolState:
        if overlay.touches(pool.id):
            return self._states.of(pool, overlay.holdings(pool.id))
        revision = ledger.revision(pool.id)
        if sight.state is None or sight.revision != revision:
            sight.revision, sight.state = revision, self._states.of(pool, ledger.holdings(pool.id))
        return sight.state

    # --- pools -------------------------------------------------------------------------------------------------------

    def _part(self, shape: Shape, state: PoolState) -> int:
        """A number for what the search can notice of a pool. A number that was forgotten is never given again."""
        if len(self._parts) >= REMEMBERED:
            self._parts.clear()
            self._numbers.clear()
        content = self._content(shape, state)
        if isinstance(content, int):
            number = content
        else:
            number = self._numbers.get(content, 0) or next(self._next)
            self._numbers[content] = number
        self._parts[shape, state] = number
        return number

    def _content(self, shape: Shape, state: PoolState) -> tuple[Hashable, ...] | int:
        if shape.invalid:
            return INVALID
        if shape.incomplete:
            return INCOMPLETE if self._whole else IRRELEVANT
        devices: list[Hashable] = []
        consuming = False
        for index, (model, place) in enumerate(shape.devices):
            kind = self._kind(model)
            owned = bool(state.owned >> index & 1)
            if kind == IRRELEVANT or (owned and not self._whole):
                continue
            used = state.shared.get(index)
            devices.append((kind, owned, place, used) if owned or place or used is not None else kind)
            consuming = consuming or bool(model.consumes)
        if not devices:
            return IRRELEVANT
        return (*devices, state.left) if consuming and shape.counted else tuple(devices)

    def _kind(self, model: DeviceModel) -> int:
        """A number for what the search can notice of a device apart from its place and use."""
        known = self._kind_of.get(model)
        if known is None:
            if len(self._kind_of) >= REMEMBERED:
                self._kind_of.clear()
            known = self._kind_of[model] = self._kind_anew(model)
        return known

    def _kind_anew(self, model: DeviceModel) -> int:
        judgements = tuple(
            (found.lost, found.selected, found.takes, found.objection is not None)
            for found in (judge(model, filter) for filter in self._filters)
        )
        if not any(selected or objection for _, selected, _, objection in judgements):
            return IRRELEVANT
        content = (
            judgements,
            tuple(_typed(model, name) for name in self._attributes),
            model.multi,
            bool(model.binding_conditions),
            model.binds_to_node,
            tuple(sorted(model.consumes)),
            tuple(sorted((name, capacity.value.nano) for name, capacity in model.capacity.items())),
        )
        return self._kinds.setdefault(content, len(self._kinds) + 1)


def _typed(model: DeviceModel, name: str) -> Hashable:
    """Presence, type and value of an attribute: 1 and true are different values."""
    present, value = model.attribute(name)
    if isinstance(value, tuple):
        return present, "list", tuple((type(item).__name__, item) for item in value)
    return present, type(value).__name__, value
