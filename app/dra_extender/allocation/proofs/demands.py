"""The requests that are still undecided at some point of a search, as masks of the devices that could be taken now.

Promises: a mask holds every device that any continuation could give to the choice, so a bound computed from demands
never refuses a possible solution.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dra_extender.allocation.search import Position
from dra_extender.allocation.state import SearchState
from dra_extender.allocation.task import AllocationTask, RequestOption


class OpenOption(NamedTuple):
    """An option that is still possible: `need` devices out of `mask`."""

    option: RequestOption
    mask: int
    need: int


class Demand:
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

    def within(self, mask: int, constraint: int) -> Demand | None:
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
        return Demand(self.request, self.claim, choices) if choices else None


def exclusive(members: Iterable[Demand], shareable: int) -> dict[int, int]:
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


def demands(task: AllocationTask, state: SearchState, position: Position) -> list[Demand] | None:
    """All demands from the position on; None if one of them cannot be met on its own."""
    dry = dry_devices(task, state)
    found: list[Demand] = []
    for request in range(position.request, len(task.options)):
        current = position.option if request == position.request else None
        if current is not None:
            mask = available(state, current, dry) >> position.start << position.start
            choices = [OpenOption(current, mask, position.missing)] if mask.bit_count() >= position.missing else []
        else:
            choices = list(_choices(task, state, request, dry))
        if not choices:
            return None
        found.append(Demand(request, choices[0].option.claim, choices))
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
    dry = task.counters.dry(state.left) | task.overdrawn | task.counters.incompatible(state.groups)
    return dry & ~((state.charged | task.sharing) & task.shareable)
