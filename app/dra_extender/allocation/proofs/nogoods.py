"""States of the search that were proven to have no solution, and everything that looks the same.

Promises: a hit means that the state equals a failed one up to an exchange of devices that nothing still to be decided
can tell apart, so it has no solution either - and if the failed one was explored without meeting an error, neither
has it one. The positions of devices do not matter to that: sets are tried, not sequences.

How: for each request, the devices are divided into islands, linked by attribute values that constraints compare and by
counters that devices share. What a device is to the requests from there on (which of them may take it, what it
consumes) is its label; values and counters are numbered within the island by first appearance. Two islands with equal
descriptions can be exchanged. Devices that are linked to no other are only counted, by label.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable

from dra_extender.allocation.constraints import AttributeTable
from dra_extender.allocation.proofs.proof import ALL, Proof
from dra_extender.allocation.search import Position
from dra_extender.allocation.state import State
from dra_extender.allocation.task import Option, Task

LIMIT = 200_000
"""How many states are remembered at most."""


class _Island:
    """Linked devices in the order of the view; `look` describes what never changes about them."""

    __slots__ = ("counters", "devices", "look", "mask", "seen")

    def __init__(self, devices: list[int], counters: list[int], look: int) -> None:
        self.devices = devices
        self.counters = counters
        self.look = look
        self.mask = sum(1 << device for device in devices)
        self.seen: dict[Hashable, int] = {}


class _Layout:
    """The islands as the requests from one on see them; `alike` are masks of single devices with equal labels.

    `watched`: constraints of the first request's claim whose progress matters. `admin`: whether it matters who holds a
    device: requests with admin access of this claim can have those of other claims.
    """

    __slots__ = ("admin", "alike", "claim", "islands", "watched")

    def __init__(self, alike: list[int], islands: list[_Island], watched: list[int], claim: int, admin: bool) -> None:
        self.alike = alike
        self.islands = islands
        self.watched = watched
        self.claim = claim
        self.admin = admin


class Nogoods:
    """The failed states of one search."""

    def __init__(self, task: Task, proofs: Collection[Proof] = ALL) -> None:
        self._task = task
        self._exchange = Proof.EXCHANGE in proofs
        self._failed: dict[Hashable, set[Hashable]] = defaultdict(set)
        self._count = 0
        self._layouts: dict[int, _Layout] = {}
        self._numbers: dict[Hashable, int] = {}

    def holds(self, state: State, position: Position) -> bool:
        """Whether the state is known to fail."""
        known = self._failed.get(_kind(position))
        return known is not None and self._key(state, position) in known

    def add(self, state: State, position: Position) -> None:
        """The state failed."""
        if self._count < LIMIT and position.request < len(self._task.options):
            self._count += 1
            self._failed[_kind(position)].add(self._key(state, position))

    # --- keys --------------------------------------------------------------------------------------------------------

    def _key(self, state: State, position: Position) -> Hashable:
        layout = self._layout(position.request)
        masks = [~state.held, state.paid] if state.paid else [~state.held]
        if position.start:
            masks.append(-1 << position.start)
        if layout.admin:
            masks.append(state.held_by[layout.claim])
        for index in layout.watched:
            pin = state.pins[index]
            if pin is not self._task.constraints[index].start:
                masks.append(pin.allowed)
        islands = sorted(self._look(state, island, masks) for island in layout.islands)
        progress = tuple(self._progress(state, index) for index in layout.watched)
        counted = -1 if layout.admin else ~state.held
        counts = tuple(_count(group & counted, masks) for group in layout.alike)
        return state.counts[layout.claim], bool(position.start), bool(state.paid), progress, counts, tuple(islands)

    def _progress(self, state: State, index: int) -> Hashable:
        """What the mask of allowed devices does not tell: that there is one, and which values a list still shares."""
        constraint, pin = self._task.constraints[index], state.pins[index]
        return pin is constraint.start, None if constraint.table.disjoint else pin.tokens

    def _look(self, state: State, island: _Island, masks: list[int]) -> int:
        """A number for what the island looks like now; equal numbers mean exchangeable islands."""
        left = tuple(state.left[number] for number in island.counters)
        shares: Hashable = ()
        if state.consumed:
            shares = tuple(
                (position, tuple(sorted(state.consumed[device].items())))
                for position, device in enumerate(island.devices)
                if device in state.consumed
            )
        parts = tuple(mask & island.mask for mask in masks)
        key = parts, left, shares
        number = island.seen.get(key)
        if number is None:
            flags = tuple(tuple(part >> device & 1 for device in island.devices) for part in parts)
            number = island.seen[key] = self._number((island.look, flags, left, shares))
        return number

    def _number(self, description: Hashable) -> int:
        return self._numbers.setdefault(description, len(self._numbers))

    # --- layouts -----------------------------------------------------------------------------------------------------

    def _layout(self, request: int) -> _Layout:
        found = self._layouts.get(request)
        if found is None:
            found = self._layouts[request] = self._build(request)
        return found

    def _build(self, request: int) -> _Layout:
        task = self._task
        options = [option for later in task.options[request:] for option in later]
        claim = options[0].claim
        constraints = sorted({index for option in options for index in option.constraints})
        tables = {task.constraints[index].table: None for index in constraints}
        labels = self._labels(options)
        links: dict[Hashable, list[int]] = defaultdict(list)
        for device in range(len(task.view.devices)):
            for number, table in enumerate(tables):
                for token in table.tokens[device]:
                    links[number, token].append(device)
            if task.counters is not None:
                for counter, _ in task.counters.charges.get(device, ()):
                    links["counter", counter].append(device)
        alike: dict[Hashable, int] = defaultdict(int)
        islands: list[_Island] = []
        for members in _connected(len(task.view.devices), links.values()):
            device = members[0]
            charged = task.counters is not None and device in task.counters.charges
            if len(members) == 1 and not task.shareable >> device & 1 and not charged:
                values = tuple((table.present >> device & 1, table.known >> device & 1) for table in tables)
                alike[labels[device], values] |= 1 << device
            else:
                islands.append(self._island(members, labels, list(tables)))
        watched = [index for index in constraints if index in task.claim_constraints[claim]]
        admin = any(option.admin and option.claim == claim for option in options)
        return _Layout(list(alike.values()), islands, watched, claim, admin)

    def _labels(self, options: list[Option]) -> list[int]:
        """What each device is to the options, as a number. Where mode All meets a constraint, the order of devices
        tells which error comes first, so they cannot be exchanged.
        """
        task = self._task
        used = [option.usable for option in options] + [option.objectionable for option in options]
        wanted = [sum(1 << device for device in option.devices) for option in options if option.all]
        masks = [*dict.fromkeys(used), *dict.fromkeys(wanted), task.holdings.owned, task.overdrawn]
        ordered = 0 if self._exchange else -1
        for option in options:
            if option.all and option.constraints:
                ordered |= sum(1 << device for device in option.devices)
        filters = list(dict.fromkeys(option.ask.filter for option in options))
        labels: list[int] = []
        for index, device in enumerate(task.view.devices):
            label: list[Hashable] = [tuple(mask >> index & 1 for mask in masks)]
            if ordered >> index & 1:
                label.append(index)
            if task.shareable >> index & 1:
                capacity = device.model.traits.capacity
                label.append(tuple((name, offered.value.nano) for name, offered in capacity.items()))
                label.append(tuple(task.suitability(index, filter).takes for filter in filters))
                shared = task.holdings.shared.get(index)
                label.append(None if shared is None else tuple(sorted(shared.items())))
            elif index in task.holdings.shared:
                label.append(index)
            labels.append(self._number(tuple(label)))
        return labels

    def _island(self, members: list[int], labels: list[int], tables: list[AttributeTable]) -> _Island:
        task = self._task
        numbering: dict[Hashable, int] = {}
        counters: dict[int, int] = {}
        described: list[Hashable] = []
        for device in members:
            values: list[Hashable] = []
            for number, table in enumerate(tables):
                tokens = table.tokens[device]
                values.append(tuple(numbering.setdefault((number, token), len(numbering)) for token in tokens))
                values.append((table.present >> device & 1,))
            charge = task.counters.charges.get(device, ()) if task.counters is not None else ()
            taken = tuple((counters.setdefault(number, len(counters)), amount) for number, amount in charge)
            described.append((labels[device], tuple(values), taken))
        return _Island(members, list(counters), self._number(tuple(described)))


def _kind(position: Position) -> Hashable:
    return position.request, id(position.option), position.missing


def _count(group: int, masks: list[int]) -> tuple[int, ...]:
    """How many devices of the group are in each combination of masks."""
    parts = [group]
    for mask in masks:
        parts = [part for before in parts for part in (before & mask, before & ~mask)]
    return tuple(part.bit_count() for part in parts)


def _connected(count: int, links: Iterable[list[int]]) -> Iterable[list[int]]:
    """The connected groups of devices, each in order."""
    parent = list(range(count))

    def root(device: int) -> int:
        while parent[device] != device:
            parent[device] = parent[parent[device]]
            device = parent[device]
        return device

    for linked in links:
        first = root(linked[0])
        for device in linked[1:]:
            parent[root(device)] = first
    groups: dict[int, list[int]] = defaultdict(list)
    for device in range(count):
        groups[root(device)].append(device)
    return groups.values()
