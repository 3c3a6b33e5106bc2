"""A pod's claims on one node: the devices that each request may take there.

Promises: nothing in a task changes during the search. Building it finds the fatal errors that the node adds (mode All
on pools that cannot be used, selectors that fail in mode All, too many devices for one claim).

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (validateDeviceRequest).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dra_extender.allocation.budget import UNLIMITED, WorkBudget
from dra_extender.allocation.capacity import fits
from dra_extender.allocation.constraints import (
    AttributeConstraint,
    AttributeTable,
    Token,
    attribute_table,
    having,
    split,
)
from dra_extender.allocation.counters import CounterLayout, counter_layout
from dra_extender.allocation.requests import (
    Ask,
    DeviceFilter,
    PreparedClaim,
    PreparedClaims,
    adding_problem,
    limit_problem,
)
from dra_extender.allocation.selection import Candidates, EvaluationFailure, Suitability, candidates, suitability
from dra_extender.allocation.selectors import derived
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceConstraint
from dra_extender.cel import Work, unlimited
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.models import Groups
from dra_extender.devices.pools import NodeView, PooledDevice, places

OPTION: Final = 5
"""Units of work that an option or a constraint costs, devices aside."""
DEVICES_PER_UNIT: Final = 16
CAPACITIES_PER_UNIT: Final = 4
TOKENS_PER_UNIT: Final = 2


class RequestOption:
    """An `Ask` on this node. It needs `need` devices; in mode All exactly `devices`, in this order (mask `wanted`).

    `usable`: devices that can be had as far as is known before the search, those in use left out. `failing`:
    devices whose evaluation fails as soon as the search reaches them.
    """

    def __init__(self, ask: Ask, claim: int, request: int, candidates: Candidates) -> None:
        self.ask = ask
        self.claim = claim
        self.request = request
        self.candidates = candidates
        self.admin = ask.admin
        self.all = ask.all
        self.need = ask.count
        self.devices: tuple[int, ...] = ()
        self.wanted = 0
        self.usable = candidates.usable
        self.failing = 0
        self.constraints: tuple[int, ...] = ()
        """Indices into the constraints of the task; `covers` is the mask of those on published attributes."""
        self.covers = 0
        self.shifts: dict[int, int] = {}
        """Where the devices begin in the table of a constraint on an attribute that requests derive."""
        self.fails = False
        """Deriving an attribute fails for a device."""

    @property
    def raises(self) -> bool:
        """Whether the search may meet an error when it gets to the option."""
        return bool(self.failing) or self.fails or (self.all and self.need > 0 and bool(self.constraints))


class FatalError(Exception):
    """The attempt has to be aborted. `problem` is the text of the fatal error. If the error is about one claim, `claim`
    is its index, and the text is what follows the claim's name.
    """

    def __init__(self, problem: str, claim: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.claim = claim

    def text(self, prepared: PreparedClaims) -> str:
        """The whole text, for these claims."""
        return self.problem if self.claim is None else f"claim {prepared.claims[self.claim].label}{self.problem}"


def failed(failure: EvaluationFailure, ask: Ask, claim: int, device: PooledDevice) -> FatalError:
    """The fatal error when a device is evaluated for a request of the claim of this index."""
    name = "/".join(device.id)
    text, where = failure.text, f"selector #{failure.index}"
    if ask.filter.features.is_1_37:
        where += f" on device {name}"
    if failure.source == "class":
        return FatalError(f"class {ask.class_name}: {where}: {text}")
    if failure.source == "request":
        return FatalError(f": {where}: {text}", claim)
    if failure.source == "capacity":
        text = f"checking capacity for device {device.id[2] if ask.all else name}: {text}"
    return FatalError(f", request {ask.label}: {text}", claim)


@dataclass(eq=False)
class AllocationTask:
    """The input of one search. `options[r]`: the ways to satisfy request r. Requests are numbered over all claims, and
    so are `constraints`.

    `can_raise`: some device or constraint raises an error when the search reaches it, so no shortcut may be taken that
    would hide it.
    """

    prepared: PreparedClaims
    view: NodeView
    holdings: NodeHoldings
    budget: WorkBudget = UNLIMITED
    work: Work = field(default_factory=unlimited)
    _allowed: Sequence[tuple[int, int]] = ()
    """By claim, the masks of the devices that it may have, and of all devices for mode All; empty for all devices."""

    def __post_init__(self) -> None:
        """Raises FatalError, what the budget does, and WorkExceeded."""
        prepared, view, holdings = self.prepared, self.view, self.holdings
        self.charge = self.work.charge
        """Before the work is done. Raises WorkExceeded."""
        self.features: FeatureGates = prepared.features
        self._having = view.all
        if prepared.values:
            self.charge(len(view.devices) * len(prepared.values))
            self._having = having(view, prepared.values, self.features.DRAListTypeAttributes)
        self.shareable = view.multi if self.features.DRAConsumableCapacity else 0
        self.counters: CounterLayout | None = None
        self.first_left: list[int] = []
        self.first_groups: list[Groups | None] = []
        self.overdrawn = 0
        if self.features.DRAPartitionableDevices and view.consuming:
            self.charge(sum([len(device.model.traits.consumes) for device in view.devices]))
            self.counters = counter_layout(view)
            self.charge(len(self.counters.names))
            self.first_left = self.counters.left(holdings)
            self.first_groups = self.counters.in_use(holdings)
            self.overdrawn = self.counters.overdrawn(self.first_left)
        self.sharing = sum([1 << device for device in holdings.shared])
        self.constraints: list[AttributeConstraint] = []
        self._tables: dict[str, AttributeTable] = {}
        self.claim_constraints: list[range] = []
        self.options: list[tuple[RequestOption, ...]] = []
        self.charge(prepared.units)
        for number, claim in enumerate(prepared.claims):
            self._add_claim(number, claim)
        self.can_raise = any(option.raises for options in self.options for option in options)

    def suitability(self, device: int, filter: DeviceFilter) -> Suitability:
        """What the filter says of the device. Raises what the budget does."""
        return suitability(self.view.devices[device].model, filter, self.budget)

    def _add_claim(self, number: int, claim: PreparedClaim) -> None:
        base, first = len(self.constraints), len(self.options)
        least = 0
        for request in claim.requests:
            options = tuple(self._option(ask, number, request.index, base) for ask in request.asks)
            self.options.append(options)
            need = min(option.need for option in options)
            if self.features.is_1_37 and (problem := adding_problem(request.name, need, least)):
                raise FatalError(problem, number)
            least += need
        if problem := limit_problem(least):
            raise FatalError(problem, number)
        lists = self.features.DRAListTypeAttributes
        deriving = [option for options in self.options[first:] for option in options if option.ask.derived]
        for index, source in enumerate(claim.constraints):
            self.charge(OPTION + len(self.view.devices))
            name = source.match_attribute if source.match_attribute is not None else source.distinct_attribute or ""
            if any(name in option.ask.derived and index in option.ask.covered for option in deriving):
                own = (option for options in self.options[first:] for option in options)
                covered = [option for option in own if index in option.ask.covered]
                self.constraints.append(self._derived(source, name, base + index, covered))
            else:
                table = self._tables[name] = self._tables.get(name) or attribute_table(
                    self.view, name, lists, self.charge
                )
                self.constraints.append(AttributeConstraint(source, table, self.features))
        self.claim_constraints.append(range(base, len(self.constraints)))

    def _derived(
        self, source: DeviceConstraint, name: str, index: int, covered: Sequence[RequestOption]
    ) -> AttributeConstraint:
        lists, size = self.features.DRAListTypeAttributes, len(self.view.devices)
        parts = {"": 0}
        masks = {"": self.view.all}
        for option in covered:
            expression = option.ask.derived.get(name, "")
            option.shifts[index] = parts.setdefault(expression, len(parts)) * size
            masks[expression] = masks.get(expression, 0) | option.candidates.usable
        rows: list[tuple[Token, ...] | None] = []
        problems: dict[int, str] = {}
        for expression in parts:
            self.charge(size)
            for place, device in enumerate(self.view.devices):
                found = device.model.traits.attribute(name)
                if expression:
                    found = None
                    if masks[expression] >> place & 1:
                        made = derived(name, expression, device, covered[0].ask.filter, self.budget)
                        if isinstance(made, str):
                            problems[len(rows)] = made
                        else:
                            found = made
                tokens = None if found is None else split(found.value, lists)
                self.charge(len(tokens or ()) // TOKENS_PER_UNIT)
                rows.append(tokens)
        for option in covered:
            option.covers &= ~(1 << index)
            shift = option.shifts[index]
            option.fails = option.fails or any(
                option.candidates.usable >> place - shift & 1 for place in problems if place >= shift
            )
        return AttributeConstraint(source, AttributeTable(rows), self.features, problems)

    def _option(self, ask: Ask, number: int, request: int, base: int) -> RequestOption:
        self.charge(OPTION + len(ask.covered) // 2 + len(self.view.devices) // DEVICES_PER_UNIT)
        found = candidates(self.view, ask.filter, self.budget)
        if self._allowed:
            allowed, considered = self._allowed[number]
            found = found.among(0 if ask.all and found.collected & considered & ~allowed else allowed)
        if self.prepared.values:
            found = msgspec.structs.replace(found, usable=found.usable & self._having)
        option = RequestOption(ask, number, request, found)
        option.constraints = tuple([base + index for index in ask.covered])
        option.covers = sum([1 << index for index in option.constraints])
        if ask.all:
            self.charge(len(self.view.devices) // 2)
            option.wanted = self._collect(ask, found, number)
            option.devices = tuple(places(option.wanted))
            option.need = len(option.devices)
            if self.features.is_1_37:  # before, devices whose shares leave too little were not collected
                option.usable = self._roomy(ask, found.usable)
        else:
            in_use = 0 if ask.admin else self.holdings.owned
            option.usable = self._roomy(ask, found.usable & ~in_use)
            option.failing = found.failing & ~in_use
        option.usable &= ~self.view.unserved
        return option

    def _roomy(self, ask: Ask, mask: int) -> int:
        """Without the devices whose shares leave too little."""
        if self.features.DRAConsumableCapacity:
            for device, amounts in self.holdings.shared.items():
                if mask >> device & 1:
                    model = self.view.devices[device].model
                    self.charge(2 + len(model.traits.capacity) // CAPACITIES_PER_UNIT)
                    takes = self.suitability(device, ask.filter).takes
                    if takes is None or not fits(model.traits.capacity, takes, amounts):
                        mask &= ~(1 << device)
        return mask

    def _collect(self, ask: Ask, found: Candidates, claim: int) -> int:
        """The devices mode All wants: whether they are in use does not matter yet."""
        where = f", request {ask.label}: asks for all devices, but resource pool"
        for pool, offset in zip(self.view.pools, self.view.offsets, strict=True):
            first = (found.failing & ((1 << offset) - 1)) if found.failing else 0
            if first:
                break
            if pool.incomplete:
                raise FatalError(f"{where} {pool.name} is currently being updated", claim)
            if pool.invalid:
                raise FatalError(f"{where} {pool.name} is currently invalid", claim)
        if found.failures:
            first = min(found.failures)
            raise failed(found.failures[first], ask, claim, self.view.devices[first])
        return found.collected if self.features.is_1_37 else self._roomy(ask, found.collected)
