"""How a pod's claims look at nodes: through a lens, nodes that must get the same verdict look the same.

Promises: two nodes with equal fingerprints make the search take the same turns. A fingerprint holds, per pool and in
search order, what the search can notice: what the claims' selectors, tolerations and capacity requests say about
each device, the values of the attributes that constraints compare, what the device consumes and offers, whether it
is free, and what the pool's counters still have. Names of nodes, pools and devices, and devices no request wants,
are left out. A device that somebody owns is left out too, unless a request looks at devices in use (mode All, admin
access).

Fingerprints are kept per pool and made anew only when the pool, or who holds its devices, changed.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count

from app.allocation.requests import Filter, PreparedClaims
from app.allocation.selection import judge
from app.devices.holdings import Amounts, PoolHoldings, remaining_counters
from app.devices.ledger import Ledger
from app.devices.models import DeviceModel
from app.devices.nodes import SeenNode, Sight
from app.devices.pools import NodeSelection, Pool

REMEMBERED_MODELS = 200_000
REMEMBERED_PARTS = 100_000

Fingerprint = tuple[Hashable, ...]

LensKey = tuple[tuple[Filter, ...], tuple[str, ...], bool]

IRRELEVANT = 0
"""The kind of devices that no request can have."""


class Lens:
    """What is looked at: `filters` of requests, `attributes` of constraints. `whole`: devices in use matter as well."""

    def __init__(self, filters: tuple[Filter, ...], attributes: tuple[str, ...], whole: bool) -> None:
        self._filters = filters
        self._attributes = attributes
        self._whole = whole
        self._kinds: dict[Hashable, int] = {}
        self._kind_of: dict[DeviceModel, int] = {}
        self._parts: dict[Hashable, int] = {}
        self._part_of: dict[Sight, tuple[int, int]] = {}
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

    def fingerprint(self, seen: SeenNode, ledger: Ledger) -> Fingerprint:
        """Of an up-to-date node."""
        if seen.error:
            return (seen.error,)
        found: list[int] = []
        for sight in seen.sights:
            pool = sight.pool
            if pool is None:
                continue
            revision = ledger.revision(pool.id)
            known = self._part_of.get(sight)
            if known is None or known[0] != revision:
                part = self._identify(self._part(pool, ledger.holdings(pool.id)))
                if len(self._part_of) > REMEMBERED_PARTS:
                    self._part_of.clear()
                self._part_of[sight] = known = revision, part
            if known[1]:
                found.append(known[1])
        return tuple(found)

    def _identify(self, part: tuple[Hashable, ...]) -> int:
        """A number for the part; never given to another one, also when it was forgotten."""
        if not part:
            return 0
        known = self._parts.get(part)
        if known is None:
            if len(self._parts) > REMEMBERED_PARTS:
                self._parts.clear()
            known = self._parts[part] = next(self._next)
        return known

    # --- pools -------------------------------------------------------------------------------------------------------

    def _part(self, pool: Pool, held: PoolHoldings | None) -> tuple[Hashable, ...]:
        """What the search can notice of a pool; empty when that is nothing."""
        if pool.invalid:
            return ("invalid",)
        if pool.incomplete:
            return ("incomplete",) if self._whole else ()
        devices: list[Hashable] = []
        consuming = False
        for index, device in enumerate(pool.devices):
            kind = self._kind(device.model)
            if kind == IRRELEVANT:
                continue
            name = device.id[2]
            owned = held is not None and name in held.owned
            if owned and not self._whole:
                continue
            place = _place(pool, index, device.selection)
            used = held.shared.get(name) if held is not None else None
            if owned or place or used is not None:
                devices.append((kind, owned, place, _amounts(used)))
            else:
                devices.append(kind)
            consuming = consuming or bool(device.model.consumes)
        if not devices:
            return ()
        if consuming and pool.counters:
            left = remaining_counters(pool, held)
            counters = tuple(sorted((name, *sorted(values.items())) for name, values in left.items()))
            return (*devices, counters)
        return tuple(devices)

    def _kind(self, model: DeviceModel) -> int:
        """A number for what the search can notice of a device apart from its place and use."""
        known = self._kind_of.get(model)
        if known is None:
            if len(self._kind_of) > REMEMBERED_MODELS:
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
        attributes = tuple(_typed(model, name) for name in self._attributes)
        content = (
            judgements,
            attributes,
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


def _place(pool: Pool, index: int, selection: NodeSelection) -> int:
    """What node selection does to a device: 1 it is for other nodes, 2 nobody can tell, 4 it cannot be written down."""
    terms = selection.node_selector.node_selector_terms if selection.node_selector is not None else ()
    return (pool.elsewhere >> index & 1) | (index in pool.unmatchable) << 1 | (len(terms) > 1) << 2


def _amounts(used: Amounts | None) -> Hashable:
    return None if used is None else tuple(sorted(used.items()))
