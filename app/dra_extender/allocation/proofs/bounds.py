"""Proofs that a state of the search has no solution.

Promises: `is_hopeless` is True only when no continuation can succeed and none meets an error; each bound relaxes the
problem, so the first solution in the documented order is never cut off. A task in which the search could meet an
error is not pruned. Cheap bounds come first:

1. every request has enough devices left for one of its alternatives, and no claim gets too many results;
2. every matchAttribute has a value with enough devices for all requests it covers at once, every distinctAttribute
   enough different values;
3. all requests together can have devices of their own (Hall);
4. the counters suffice even if every request takes the devices that consume least;
5. shares fit into devices, and claims that must stay together into groups.

All work is charged before it is done. Every subset of the proofs leads to the same answers; fewer of them take more
steps.

Budgets of counters are lower bounds. Every request is charged the smallest demands among the devices that it could
take. Requests that accept the same devices share these demands. The bound is compared for each counter, and for each
counter name summed over all sets and pools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from operator import itemgetter
from typing import Final

from dra_extender.allocation.constraints import AttributeConstraint
from dra_extender.allocation.counters import CounterLayout
from dra_extender.allocation.proofs.demands import OpenRequest, assignable, demands, exclusive
from dra_extender.allocation.proofs.packing import Packing
from dra_extender.allocation.state import Position, SearchState
from dra_extender.allocation.task import AllocationTask
from dra_extender.api.resource import MAX_RESULTS


class Proof(Enum):
    """The proofs by name; the value is the name in tables."""

    COUNTS = "enough devices for each request"
    LIMIT = "the limit of results"
    MATCH = "values for matchAttribute"
    DISTINCT = "values for distinctAttribute"
    HALL = "devices for all requests together"
    BUDGETS = "counters for all requests together"
    SHARES = "shares into devices"
    GROUPS = "claims into groups of devices"


ALL: Final = frozenset(Proof)

REQUESTS_PER_STEP: Final = 32
"""So many requests count as a step of their own."""

POSITION: Final = 20
REQUEST: Final = 4
OPTION: Final = 3
"""Units of work for a position, for each request of it, and for each alternative of a request."""
WIDE: Final = 1_024
"""The number of devices from which their masks cost twice."""
DEVICE: Final = 3
"""Units of work for each device at the start."""
MEMBER: Final = 2
"""Units of work that one alternative of one request costs, for one value of an attribute or one constraint."""
PARTS_PER_UNIT: Final = 8
"""Values, constraints, counters and amounts that are compared in a unit of work."""


class Bounds:
    """The bounds of one search. `steps` counts its work. `reason` says why the latest position was hopeless;
    `shortage`: of which counters too little was left there.
    """

    def __init__(self, task: AllocationTask, proofs: Collection[Proof] = ALL) -> None:
        """Raises WorkExceeded."""
        self.reason = ""
        self.shortage: Shortage | None = None
        devices = task.view.devices
        task.charge(len(devices) * DEVICE)
        self._task = task
        self._width = 1 + len(devices) // WIDE
        options = [option for options in task.options for option in options]
        constraints = sum([len(option.constraints) for option in options])
        layout = task.counters
        counters = len(layout.names) if layout is not None else 0
        wide = self._width * (REQUEST * len(task.options) + OPTION * len(options) + constraints // PARTS_PER_UNIT)
        self._fixed = POSITION + counters // 2 + wide
        amounts = max([len(device.model.traits.capacity) for device in devices], default=0)
        self._shared = len(options) * (2 + amounts // PARTS_PER_UNIT) // 2
        self._counts = Proof.COUNTS in proofs
        self._limit = MAX_RESULTS if Proof.LIMIT in proofs else None
        self._matches = _constraints(task, match=True, known=Proof.MATCH in proofs)
        self._distincts = _constraints(task, match=False, known=Proof.DISTINCT in proofs)
        self._hall = Proof.HALL in proofs
        self._budgets = CounterBudgets(task, layout) if layout is not None and Proof.BUDGETS in proofs else None
        self._packing = Packing(task, shares=Proof.SHARES in proofs, groups=Proof.GROUPS in proofs)
        self._own_steps = 0
        self._viable: dict[Hashable, int] = {}
        """For claims of one shape, the devices that can serve the first matchAttribute: equal claims are common."""

    @property
    def steps(self) -> int:
        return self._own_steps + self._packing.steps

    def is_hopeless(self, state: SearchState, position: Position) -> bool:
        """True only when no solution exists from here. Raises WorkExceeded."""
        self._own_steps += 1
        left = len(self._task.options) - position.request
        if self._task.can_raise or not left:
            return False
        self._task.charge(self._fixed + len(state.consumed) * self._shared)
        self._own_steps += left // REQUESTS_PER_STEP
        return self._refutes(state, position)

    def _refutes(self, state: SearchState, position: Position) -> bool:
        found = demands(self._task, state, position)
        if found is None:
            self.reason = "not enough devices are left"
            return self._counts
        if self._too_large(state, found):
            self.reason = f"a claim can have {MAX_RESULTS} devices at most"
            return True
        narrowed = self.narrow(state, found)
        if narrowed is None:
            return True
        needs = exclusive(narrowed, self._task.shareable)
        if self._hall and not assignable(needs.items(), self._task.charge):
            agreeing = " that satisfy the constraints" if self._task.constraints else ""
            self.reason = f"there are not enough devices{agreeing} for all requests together"
            return True
        self.shortage = self._budgets.shortage(state, needs) if self._budgets is not None else None
        if self.shortage is not None:
            self.reason = "counters do not suffice for all requests together"
            return True
        reason = self._packing.refutes(state, found, narrowed)
        if reason:
            self.reason = reason
        return bool(reason)

    def _too_large(self, state: SearchState, found: list[OpenRequest]) -> bool:
        """True when a request gives its claim more results than it may have."""
        if self._limit is not None:
            counts: dict[int, int] = {}
            for demand in found:
                claim = demand.claim
                counts[claim] = counts.get(claim, state.counts[claim]) + demand.need
                if counts[claim] > self._limit:
                    return True
        return False

    def narrow(self, state: SearchState, found: list[OpenRequest]) -> list[OpenRequest] | None:
        """The demands without the devices whose attribute values cannot serve a whole claim; None when no devices
        satisfy the constraints of some claim. Raises WorkExceeded.
        """
        if not self._task.constraints:
            return found
        by_claim: dict[int, list[OpenRequest]] = defaultdict(list)
        for demand in found:
            by_claim[demand.claim].append(demand)
        narrowed: list[OpenRequest] = []
        for claim, members in by_claim.items():
            result = self._narrow_claim(state, claim, members)
            if result is None:
                label = self._task.prepared.claims[claim].label
                self.reason = f"no combination of matching devices satisfies the constraints of claim {label}"
                return None
            narrowed.extend(result)
        return narrowed

    def _narrow_claim(self, state: SearchState, claim: int, members: list[OpenRequest]) -> list[OpenRequest] | None:
        every, constraints = self._task.constraints, self._task.claim_constraints[claim]
        matches, distincts = self._matches[claim], self._distincts[claim]
        if not matches:
            return members if self._diverse(members, distincts) else None
        first, rest = matches[0], matches[1:]
        self._task.charge(len(constraints) + self._cost(members))
        key = (
            tuple((every[index].match, id(every[index].table)) for index in constraints),
            tuple(state.constraint_states[index].tokens for index in matches),
            _shape(members, constraints.start),
        )
        viable = self._viable.get(key)
        if viable is None:
            viable = 0
            for group in _groups(every[first], state.constraint_states[first].tokens):
                inside = self._within(members, group, first)
                if inside is not None and self._consistent(state, inside, rest, distincts):
                    viable |= group
            self._viable[key] = viable
        return self._within(members, viable, first)

    def _consistent(
        self, state: SearchState, members: list[OpenRequest], matches: list[int], distincts: list[int]
    ) -> bool:
        """Whether some choice of values for the remaining matchAttributes leaves every request enough devices."""
        if not matches:
            needs = exclusive(members, self._task.shareable)
            enough = not self._hall or assignable(needs.items(), self._task.charge)
            return enough and self._diverse(members, distincts)
        first, rest = matches[0], matches[1:]
        for group in _groups(self._task.constraints[first], state.constraint_states[first].tokens):
            inside = self._within(members, group, first)
            if inside is not None and self._consistent(state, inside, rest, distincts):
                return True
        return False

    def _within(self, members: list[OpenRequest], group: int, constraint: int) -> list[OpenRequest] | None:
        """The demands when devices covered by the constraint have to be in the group; None when that is impossible."""
        self._task.charge(self._cost(members))
        inside: list[OpenRequest] = []
        for demand in members:
            if (demand.mask & group).bit_count() < demand.need and demand.covers >> constraint & 1:
                return None
            part = demand.within(group, constraint)
            if part is None:
                return None
            inside.append(part)
        return inside

    def _cost(self, members: list[OpenRequest]) -> int:
        """Units of work to go through the alternatives of all members once."""
        return 1 + (len(members) + MEMBER * sum([len(demand.choices) for demand in members])) * self._width

    def _diverse(self, members: list[OpenRequest], distincts: list[int]) -> bool:
        """Whether there are as many different values as devices are needed."""
        cost = self._cost(members)
        for index in distincts:
            self._task.charge(cost)
            need = mask = 0
            for demand in members:
                if demand.covers >> index & 1:
                    need += demand.need
                    mask |= demand.mask
            if need > 1:
                table = self._task.constraints[index].table
                self._task.charge(1 + len(table.groups) * self._width // PARTS_PER_UNIT)
                values = sum(1 for group in table.groups if group & mask)
                values += (mask & table.present & ~table.known).bit_count()
                if values < need:
                    return False
        return True


def _constraints(task: AllocationTask, *, match: bool, known: bool) -> list[list[int]]:
    """The matchAttributes of each claim, or the distinctAttributes."""
    every = task.constraints
    return [
        [index for index in part if known and every[index].match == match and not every[index].derived]
        for part in task.claim_constraints
    ]


def _groups(constraint: AttributeConstraint, pinned: Sequence[int] | None) -> Iterable[int]:
    """Sets of devices, one of which holds all devices that satisfy a matchAttribute together. Those with a value of an
    unknown type are one set, although each of them could only be alone.
    """
    table = constraint.table
    if pinned is not None:
        yield from (table.groups[token] for token in pinned)
    else:
        yield from table.groups
        yield constraint.start.allowed & ~table.known
    yield 0  # alternatives that are not covered may need none


def _shape(members: list[OpenRequest], first: int) -> Hashable:
    """What the demands of a claim are, however claims and constraints are numbered."""
    return tuple(
        tuple(
            (choice.mask, choice.need, choice.option.admin, choice.option.covers >> first) for choice in demand.choices
        )
        for demand in members
    )


BUDGET_PARTS_PER_UNIT: Final = 4


class CounterSum:
    """A sum of counters: `numbers` are added up; `steps` are (demand, devices with it), ascending, without zero."""

    def __init__(self, layout: CounterLayout, shareable: int, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        weights: dict[int, int] = defaultdict(int)
        for number in numbers:
            for device, amount in layout.consumers[number]:
                weights[device] += amount
        owed = [item for item in weights.items() if item[1] > 0 and not shareable >> item[0] & 1]
        self.consuming = 0
        self.steps: list[tuple[int, int]] = []
        for device, weight in sorted(owed, key=itemgetter(1)):
            self.consuming |= 1 << device
            same = self.steps.pop()[1] if self.steps and self.steps[-1][0] == weight else 0
            self.steps.append((weight, same | 1 << device))

    def left(self, state: SearchState) -> int:
        return sum(max(0, state.left[number]) for number in self.numbers)

    def least(self, mask: int, need: int) -> int:
        """What `need` devices of the mask consume at least."""
        need -= (mask & ~self.consuming).bit_count()
        total = 0
        for weight, devices in self.steps:
            if need <= 0:
                break
            taken = min(need, (mask & devices).bit_count())
            total += taken * weight
            need -= taken
        return total


Shortage = tuple[Sequence[int], int, int]
"""(counters, what all requests need of them together at least, what is left of them together)"""


class CounterBudgets:
    def __init__(self, task: AllocationTask, layout: CounterLayout) -> None:
        task.charge(2 * layout.size // BUDGET_PARTS_PER_UNIT)
        by_name: dict[str, list[int]] = defaultdict(list)
        for number, (_, _, name) in enumerate(layout.names):
            by_name[name].append(number)
        sums = [[number] for number in range(len(layout.names))]
        sums += [numbers for numbers in by_name.values() if len(numbers) > 1]
        self._charge = task.charge
        self._budgets = [CounterSum(layout, task.shareable, numbers) for numbers in sums]

    def shortage(self, state: SearchState, needs: Mapping[int, int]) -> Shortage | None:
        """The first counters of which too little is left for the `demands.exclusive` needs."""
        for budget in self._budgets:
            self._charge(1 + (len(needs) * (2 + len(budget.steps)) + len(budget.numbers)) // BUDGET_PARTS_PER_UNIT)
            needed = sum(budget.least(mask, need) for mask, need in needs.items() if mask & budget.consuming)
            if needed and needed > (left := budget.left(state)):
                return budget.numbers, needed, left
        return None
