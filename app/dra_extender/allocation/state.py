"""The changing part of a search: devices taken so far, what they use up, where the constraints stand.

Promises: `take` either takes the device completely or changes nothing; `give_back` undoes the latest take completely,
so after a failed search the state is equal to the one before. A refused or returned device leaves no trace in
counters, constraints, capacity or the marks of devices in use (upstream leaves some).

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (allocateDevice), with its defects
corrected. Requests with admin access take no part in counter accounting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dra_extender.allocation.capacity import Consumed, fits
from dra_extender.allocation.constraints import ConstraintState
from dra_extender.allocation.task import AllocationTask, FatalError, RequestOption
from dra_extender.devices.models import Groups, joined
from dra_extender.devices.usage import NO_AMOUNTS, Amounts


class Position(NamedTuple):
    """The next choice of a search: `missing` devices of the option, from bit `start` on; then all later requests.
    Without an option: the alternative of the request.
    """

    request: int
    option: RequestOption | None
    missing: int
    start: int


@dataclass(slots=True, eq=False)
class Taken:
    """One device taken for an option, with what is needed to undo it."""

    option: RequestOption
    device: int
    charged: bool = False
    marked: bool = False
    """True for the first take of the device in the attempt: with admin access two claims can take it."""
    takes: Consumed | None = None
    """What the share consumes; None for a device that is not shared."""
    consumed: Amounts | None = None
    """What the attempt's shares of the device consumed before; None before the first one."""
    constraint_states: list[tuple[int, ConstraintState]] = field(default_factory=list)
    groups: list[tuple[int, Groups | None]] = field(default_factory=list)


class SearchState:
    """The devices that one search has taken so far. `taken` is in the order of allocation; `counts[c]` is the
    number of results of claim c.

    `taken_mask`: the exclusive devices of the attempt; `taken_by_claim[c]`: those of claim c. `left`: counters
    by number; `groups`: what the devices in use on each counter set have in common. `constraint_states[i]`: state of
    constraint i. `consumed`: capacity that the attempt's shares take, by device; a device with shares has an entry even
    when it has no capacity. `charged`: the devices whose counters this attempt has been charged for.
    """

    def __init__(self, task: AllocationTask) -> None:
        self.task = task
        self.taken: list[Taken] = []
        self.taken_mask = 0
        claims = len(task.prepared.claims)
        self.taken_by_claim = [0] * claims
        self.counts = [0] * claims
        self.left = list(task.first_left)
        self.groups = list(task.first_groups)
        self.constraint_states = [constraint.start for constraint in task.constraints]
        self.consumed: dict[int, Amounts] = {}
        self.charged = 0

    def blocked(self, option: RequestOption) -> int:
        """The devices that the option cannot take, because this attempt has taken them."""
        return self.taken_by_claim[option.claim] if option.admin else self.taken_mask

    def allowed(self, option: RequestOption) -> int:
        """The devices that are selected, free and acceptable to the constraints, or on which an attribute cannot be
        derived. Counters and shares are not looked at.
        """
        mask, failing = option.usable & ~self.blocked(option), 0
        if not option.shifts:
            for index in option.constraints:
                mask &= self.constraint_states[index].allowed
            return mask
        for index in option.constraints:
            shift = option.shifts.get(index, 0)
            failing |= mask & (self.task.constraints[index].failing >> shift)
            mask &= self.constraint_states[index].allowed >> shift
        return mask | failing

    def accepts(self, option: RequestOption, device: int) -> bool:
        """Whether the constraints accept the device. Raises FatalError when a derived attribute fails first."""
        if not option.shifts:
            return all(self.constraint_states[index].allowed >> device & 1 for index in option.constraints)
        for index in option.constraints:
            place = device + option.shifts.get(index, 0)
            problem = self.task.constraints[index].problems.get(place)
            if problem is not None:
                raise FatalError(problem)
            if not self.constraint_states[index].allowed >> place & 1:
                return False
        return True

    def cost(self, option: RequestOption, device: int) -> int:
        """Units of work that it takes to compare the device, to take it and to give it back."""
        task, parts = self.task, 4 + 2 * len(option.constraints)
        if task.counters is not None:
            parts += len(task.counters.charges.get(device, ()))
        if task.shareable >> device & 1:
            parts += len(task.view.devices[device].model.traits.capacity)
        return parts // 2

    def _is_used(self, device: int) -> bool:
        """Whether counters of a multi-allocatable device are paid already."""
        task = self.task
        return bool(task.shareable >> device & 1) and (
            device in task.holdings.shared or self.charged >> device & 1 == 1
        )

    def counters_suffice(self, option: RequestOption, device: int) -> bool:
        counters = self.task.counters
        if counters is None or option.admin or device not in counters.charges or self._is_used(device):
            return True
        if self.task.overdrawn >> device & 1:
            return False
        left = self.left
        enough = all(amount <= left[number] for number, amount in counters.charges[device])
        return enough and counters.is_compatible(device, self.groups)

    def capacity_suffices(self, option: RequestOption, device: int) -> bool:
        """What others hold was compared when the task was built; here it is about the attempt itself."""
        attempt = self.consumed.get(device)
        if attempt is None:
            return True
        model = self.task.view.devices[device].model
        takes = self.task.suitability(device, option.ask.filter).takes or ()
        return fits(model.traits.capacity, takes, self.task.holdings.shared.get(device, NO_AMOUNTS), attempt)

    def take(self, option: RequestOption, device: int) -> None:
        """Take a device that is allowed, and of which counters and capacity suffice."""
        task, bit = self.task, 1 << device
        taken = Taken(option, device)
        counters = task.counters
        if counters is not None and not option.admin and device in counters.charges and not self._is_used(device):
            for number, amount in counters.charges[device]:
                self.left[number] -= amount
            for number, groups in counters.groups.get(device, ()):
                taken.groups.append((number, self.groups[number]))
                self.groups[number] = joined(self.groups[number], groups)
            taken.charged = True
            self.charged |= bit
        for index in option.constraints:
            before = self.constraint_states[index]
            after = task.constraints[index].add(before, device + option.shifts.get(index, 0))
            if after is not before:
                taken.constraint_states.append((index, before))
                self.constraint_states[index] = after
        if task.shareable & bit:
            taken.takes = task.suitability(device, option.ask.filter).takes or ()
            taken.consumed = self.consumed.get(device)
            sums = dict(taken.consumed or NO_AMOUNTS)
            for name, quantity in taken.takes:
                sums[name] = sums.get(name, 0) + quantity.nano
            self.consumed[device] = sums
        else:
            taken.marked = not self.taken_mask & bit
            self.taken_mask |= bit
            self.taken_by_claim[option.claim] |= bit
        self.counts[option.claim] += 1
        self.taken.append(taken)

    def give_back(self) -> Taken:
        """Undo the latest take."""
        task, taken = self.task, self.taken.pop()
        device, option = taken.device, taken.option
        self.counts[option.claim] -= 1
        if taken.consumed is not None:
            self.consumed[device] = taken.consumed
        elif taken.takes is not None:
            del self.consumed[device]
        else:
            if taken.marked:
                self.taken_mask &= ~(1 << device)
            self.taken_by_claim[option.claim] &= ~(1 << device)
        for index, before in reversed(taken.constraint_states):
            self.constraint_states[index] = before
        if taken.charged and task.counters is not None:
            for number, amount in task.counters.charges[device]:
                self.left[number] += amount
            for number, in_use in taken.groups:
                self.groups[number] = in_use
            self.charged &= ~(1 << device)
        return taken
