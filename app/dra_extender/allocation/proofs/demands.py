"""The requests that are still undecided at some point of a search, as masks of the devices that could be taken now.

Promises: a mask holds every device that any continuation could give to the choice, so a bound computed from demands
never refuses a possible solution.

`assignable` is exact for exclusive devices (Hall's condition): groups are masks of acceptable devices with the number
that is needed; groups that accept the same devices are one group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from dra_extender.allocation.state import Position, SearchState
from dra_extender.allocation.task import AllocationTask, RequestOption


class OpenOption(NamedTuple):
    """An option that is still possible: `need` devices out of `mask`."""

    option: RequestOption
    mask: int
    need: int


class OpenRequest:
    """One request still to be decided. `need` and `mask` are the least and the most over its choices; `covers` are the
    constraints that cover its devices whatever is chosen.
    """

    __slots__ = ("choices", "claim", "covers", "mask", "need", "request")

    def __init__(self, request: int, claim: int, choices: list[OpenOption]) -> None:
        self.request = request
        self.claim = claim
        self.choices = choices
        if len(choices) == 1:
            option, self.mask, self.need = choices[0]
            self.covers = option.covers
        else:
            self.need = min(choice.need for choice in choices)
            self.mask, self.covers = 0, -1
            for choice in choices:
                self.mask |= choice.mask
                self.covers &= choice.option.covers

    @property
    def admin(self) -> bool:
        """Only exact requests can have admin access."""
        return self.choices[0].option.admin

    def within(self, mask: int, constraint: int) -> OpenRequest | None:
        """The demand when devices covered by the constraint have to be in the mask; None when it cannot be met."""
        choices: list[OpenOption] = []
        for choice in self.choices:
            option, possible, need = choice
            if option.covers >> constraint & 1:
                possible &= mask
                if possible.bit_count() >= need:
                    choices.append(OpenOption(option, possible, need))
            else:
                choices.append(choice)
        return OpenRequest(self.request, self.claim, choices) if choices else None


def exclusive(members: Iterable[OpenRequest], shareable: int) -> dict[int, int]:
    """How many devices of each mask have to be exclusive; a shared device serves each request once, and devices with
    admin access serve all.
    """
    needs: dict[int, int] = defaultdict(int)
    for demand in members:
        if not demand.admin:
            shared = demand.mask & shareable
            need = demand.need - shared.bit_count()
            if need > 0:
                needs[demand.mask ^ shared] += need
    return needs


def demands(task: AllocationTask, state: SearchState, position: Position) -> list[OpenRequest] | None:
    """All demands from the position on; None if one of them cannot be met on its own."""
    dry = dry_devices(task, state)
    found: list[OpenRequest] = []
    for request in range(position.request, len(task.options)):
        current = position.option if request == position.request else None
        if current is not None:
            mask = available(state, current, dry) >> position.start << position.start
            choices = [OpenOption(current, mask, position.missing)] if mask.bit_count() >= position.missing else []
        else:
            choices = list(_choices(task, state, request, dry))
        if not choices:
            return None
        found.append(OpenRequest(request, choices[0].option.claim, choices))
    return found


def _choices(task: AllocationTask, state: SearchState, request: int, dry: int) -> Iterator[OpenOption]:
    for option in task.options[request]:
        if not option.all:
            mask = available(state, option, dry)
            if mask.bit_count() >= option.need:
                yield OpenOption(option, mask, option.need)
        elif option.need:
            mask = available(state, option, dry) & ~(0 if option.admin else task.holdings.owned)
            if not option.wanted & ~mask:
                yield OpenOption(option, option.wanted, option.need)


def available(state: SearchState, option: RequestOption, dry: int) -> int:
    """The devices the option could take now. `dry` are those whose counters do not suffice."""
    mask = state.allowed(option)
    if not option.admin:
        mask &= ~dry
    for device in state.consumed:
        if mask >> device & 1 and not state.capacity_suffices(option, device):
            mask ^= 1 << device
    return mask


def dry_devices(task: AllocationTask, state: SearchState) -> int:
    """Devices whose counters do not suffice now, or that are incompatible with devices in use; counters of shared
    devices are charged already.
    """
    if task.counters is None:
        return 0
    dry = task.counters.dry(state.left, task.charge) | task.overdrawn | task.counters.incompatible(state.groups)
    return dry & ~((state.charged | task.sharing) & task.shareable)


MEMBERS_PER_UNIT: Final = 8


def assignable(demands: Iterable[tuple[int, int]], spend: Callable[[int], None] = lambda units: None) -> bool:
    """Whether every (mask, need) can have `need` devices out of its mask, each device used once."""
    merged: dict[int, int] = {}
    for mask, need in demands:
        if need:
            merged[mask] = merged.get(mask, 0) + need
    groups = sorted(merged.items(), key=lambda group: group[0].bit_count())
    if any(need > mask.bit_count() for mask, need in groups):
        return False
    if len(groups) < 2:
        return True
    return _Assignment([mask for mask, _ in groups], spend).satisfy([need for _, need in groups])


class _Assignment:
    """Devices given to groups; improved along alternating paths, as in the theory of bipartite matching."""

    __slots__ = ("_given", "_masks", "_spend", "_used")

    def __init__(self, masks: list[int], spend: Callable[[int], None]) -> None:
        self._masks = masks
        self._spend = spend
        self._given = [0] * len(masks)
        self._used = 0

    def satisfy(self, needs: list[int]) -> bool:
        for group, need in enumerate(needs):
            missing = need - self._give(group, need)
            for _ in range(missing):
                if not self._augment(group):
                    return False
        return True

    def _give(self, group: int, need: int) -> int:
        """Up to `need` free devices, at once."""
        free = self._masks[group] & ~self._used
        taken = min(need, free.bit_count())
        given = _lowest(free, taken)
        self._given[group] |= given
        self._used |= given
        return taken

    def _augment(self, group: int) -> bool:
        """One more device for the group, by letting others move on to other devices."""
        came_from = {group: group}
        reach = self._masks[group]
        queue = [group]
        while True:
            self._spend(1 + len(self._masks) // MEMBERS_PER_UNIT)
            free = reach & ~self._used
            if free:
                last = next(member for member in queue if self._masks[member] & free)
                self._shift(came_from, group, last, _lowest(self._masks[last] & free, 1))
                return True
            found = False
            for other, given in enumerate(self._given):
                if other not in came_from and given & reach:
                    self._spend(1 + len(queue) // MEMBERS_PER_UNIT)
                    came_from[other] = next(member for member in queue if self._masks[member] & given)
                    queue.append(other)
                    reach |= self._masks[other]
                    found = True
            if not found:
                return False

    def _shift(self, came_from: dict[int, int], group: int, last: int, device: int) -> None:
        self._used |= device
        while last != group:
            before = came_from[last]
            passed_on = _lowest(self._given[last] & self._masks[before], 1)
            self._given[last] = self._given[last] ^ passed_on | device
            device, last = passed_on, before
        self._given[group] |= device


def _lowest(mask: int, count: int) -> int:
    if count == mask.bit_count():
        return mask
    found = 0
    for _ in range(count):
        low = mask & -mask
        found |= low
        mask ^= low
    return found
