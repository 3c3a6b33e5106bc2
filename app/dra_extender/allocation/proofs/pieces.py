"""Fragmentation: room that suffices in total but not in the pieces it comes in.

Promises: each question is a relaxation of what is still to be decided, put as a packing of items into bins, so a `no`
is a proof. Two kinds of pieces are looked at, each only where a task has them:

- shares: requests that shared devices can serve, into the capacity left on those devices;
- groups: claims whose devices must have one value of an attribute in common, into the devices of each value.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from dra_extender.allocation.constraints import AttributeTable
from dra_extender.allocation.proofs.bins import MAX_ITEMS, Packing, Row, Size, flat
from dra_extender.allocation.proofs.demands import Choice, Demand
from dra_extender.allocation.proofs.proof import ALL, Proof
from dra_extender.allocation.proofs.sums import Filling
from dra_extender.allocation.requests import Filter
from dra_extender.allocation.state import State
from dra_extender.allocation.task import Task
from dra_extender.devices.holdings import NO_AMOUNTS

PLACEMENTS: Final = 600
"""How many placements the first question may try before it counts as answered with yes."""

FILLINGS: Final = 2000
"""The same for questions of one dimension, whose steps are quicker and prove more."""

LEAST: Final = 40
"""How many every question may try."""

MAX_BINS: Final = 64
"""With more devices than these, only requests that nothing but shared devices can serve are looked at."""

MAX_KINDS: Final = 4
"""How many different sets of acceptable devices are told apart when devices are counted."""


SHARE: Final = 2
"""Units of work that it costs to see what one request takes of one device."""


class Pieces:
    """Both questions for one task. `steps` counts placements."""

    def __init__(self, task: Task, proofs: Collection[Proof] = ALL) -> None:
        self.steps = 0
        self._task = task
        self._shares = task.shareable != 0 and Proof.SHARES in proofs
        self._groups = bool(task.constraints) and Proof.GROUPS in proofs
        self._sums = Proof.SUMS in proofs
        self._bins = Proof.BINS in proofs
        self._takes: dict[tuple[Filter, int], Size] = {}
        self._filling = Filling(self._spend)
        self._fillings = FILLINGS
        self._placements = PLACEMENTS

    def refutes(self, state: State, found: Sequence[Demand], narrowed: Sequence[Demand]) -> str:
        """Why there is no solution, as far as packing can tell; empty when it cannot."""
        if self._shares and not self._shares_fit(state, narrowed):
            return "the capacity left does not suffice for all shares together"
        if self._groups and not self._groups_fit(found, narrowed):
            return "no distribution of the claims over groups of matching devices is possible"
        return ""

    def _fits(self, items: list[Row], room: list[Size]) -> bool:
        """Questions that turn out to be too hard make the next ones give up earlier."""
        if len(items) > MAX_ITEMS:
            return True
        sizes = flat(items, room) if self._sums else None
        if sizes is not None:
            before, limit = self._filling.work, self._fillings
            fits = self._filling.feasible(sizes, [left[0] for left in room], limit)
            steps = self._filling.work - before
            if self._filling.gave_up:
                self._fillings = max(limit // 4, LEAST)
        elif not self._bins:
            return True
        else:
            packing = Packing(items, room, self._placements, self._spend)
            fits = packing.feasible()
            steps = packing.steps
            if steps > self._placements:
                self._placements = max(self._placements // 4, LEAST)
        self.steps += steps
        return fits

    def _spend(self, units: int) -> None:
        """Units of work. Raises WorkExceeded."""
        if self._task.work is not None:
            self._task.work.charge(units)

    # --- shares ------------------------------------------------------------------------------------------------------

    def _shares_fit(self, state: State, narrowed: Sequence[Demand]) -> bool:
        """An exclusive device is a bin for one; a request with several devices puts one share into each bin."""
        shareable = self._task.shareable
        wanting = [demand for demand in narrowed if demand.mask & shareable and demand.need]
        mask = _union(wanting)
        if mask & ~shareable:
            wanting = [demand for demand in narrowed if not demand.admin and demand.need and not demand.mask & ~mask]
            mask = _union(wanting)
        if mask.bit_count() > MAX_BINS:
            wanting = [demand for demand in wanting if not demand.mask & ~shareable]
            mask = _union(wanting)
        if sum(demand.need for demand in wanting) < 2:
            return True
        devices = _bits(mask)
        several = [demand.request for demand in wanting if demand.need > 1]
        self._spend(SHARE * len(devices) * (1 + len(wanting)))
        room = [(*self._room(state, device), *(1 for _ in several)) for device in devices]
        items: list[Row] = []
        for demand in wanting:
            once = tuple(int(request == demand.request) for request in several)
            row = tuple(self._share(demand.choices, device, once) for device in devices)
            items.extend([row] * demand.need)
        return self._fits(items, room)

    def _room(self, state: State, device: int) -> Size:
        if not self._task.shareable >> device & 1:
            return (1,)
        capacity = self._task.view.devices[device].model.traits.capacity
        allocated = self._task.holdings.shared.get(device, NO_AMOUNTS)
        attempt = state.consumed.get(device, NO_AMOUNTS)
        return tuple(
            max(0, offered.value.nano - allocated.get(name, 0) - attempt.get(name, 0))
            for name, offered in capacity.items()
        )

    def _share(self, choices: Sequence[Choice], device: int, once: Size) -> Size | None:
        """The least a request takes of the device."""
        possible = [choice for choice in choices if choice.mask >> device & 1]
        if not possible:
            return None
        if not self._task.shareable >> device & 1:
            return (1, *once)
        sizes = [self._taken(choice.option.ask.filter, device) for choice in possible]
        least = sizes[0] if len(sizes) == 1 else tuple(map(min, zip(*sizes, strict=True)))
        return least + once

    def _taken(self, filter: Filter, device: int) -> Size:
        """What a share consumes of each capacity."""
        size = self._takes.get((filter, device))
        if size is None:
            takes = self._task.suitability(device, filter).takes or ()
            size = self._takes[filter, device] = tuple(amount.nano for _, amount in takes)
        return size

    # --- groups ------------------------------------------------------------------------------------------------------

    def _groups_fit(self, found: Sequence[Demand], narrowed: Sequence[Demand]) -> bool:
        table = self._common_table(found)
        if table is None:
            return True
        shareable = self._task.shareable
        members = [
            (plain, viable)
            for plain, viable in zip(found, narrowed, strict=True)
            if not plain.admin and plain.need and not plain.mask & shareable
        ]
        kinds = _kinds(plain.mask for plain, _ in members)
        groups = [*table.islands, ~table.known]
        room = [tuple((group & kind).bit_count() for kind in kinds) for group in groups]
        items: list[Row] = []
        together: dict[int, list[tuple[Demand, Demand]]] = defaultdict(list)
        for plain, viable in members:
            binding = self._binding(plain, table)
            if binding is not None:
                together[binding].append((plain, viable))
            else:
                size = _counted(plain.mask, 1, kinds)
                items.extend([tuple(size if plain.mask & group else None for group in groups)] * plain.need)
        large = False
        for parts in together.values():
            size = tuple(map(sum, zip(*(_counted(plain.mask, plain.need, kinds) for plain, _ in parts), strict=True)))
            large = large or max(size) > 1
            row = [
                size if all((viable.mask & group).bit_count() >= viable.need for _, viable in parts) else None
                for group in table.islands
            ]
            items.append((*row, None))
        return not large or self._fits(items, room)

    def _common_table(self, found: Sequence[Demand]) -> AttributeTable | None:
        """The attribute that most claims want to match, the first of those, if any."""
        tables: Counter[AttributeTable] = Counter()
        for claim in {demand.claim for demand in found}:
            constraints = (self._task.constraints[index] for index in self._task.claim_constraints[claim])
            tables.update([*dict.fromkeys(constraint.table for constraint in constraints if constraint.match)])
        if not tables:
            return None
        table = tables.most_common(1)[0][0]
        return table if table.present == table.known and len(found) > 1 else None

    def _binding(self, demand: Demand, table: AttributeTable) -> int | None:
        """The constraint that keeps the devices of the request together with those of others."""
        for index in self._task.claim_constraints[demand.claim]:
            constraint = self._task.constraints[index]
            if constraint.match and constraint.table is table and demand.covered(index):
                return index
        return None


def _kinds(masks: Iterable[int]) -> list[int]:
    """Sets of devices to count in: the most frequent masks, and all of them together."""
    frequent = Counter(masks)
    every = 0
    for mask in frequent:
        every |= mask
    return list(dict.fromkeys([every, *(mask for mask, _ in frequent.most_common(MAX_KINDS - 1))]))


def _counted(mask: int, need: int, kinds: Sequence[int]) -> Size:
    """`need` devices of the mask count in every kind that holds all of the mask."""
    return tuple(0 if mask & ~kind else need for kind in kinds)


def _union(members: Iterable[Demand]) -> int:
    mask = 0
    for demand in members:
        mask |= demand.mask
    return mask


def _bits(mask: int) -> list[int]:
    return [index for index in range(mask.bit_length()) if mask >> index & 1]
