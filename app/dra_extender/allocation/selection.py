"""Which devices a request may have at all: class and request selectors, node match, taints, capacity as a filter.

Promises: an answer depends on the device's model and the filter only, so it is computed once per model and kept there,
and once for all models that look the same to the filter; what a whole view answers is kept by the view. An error
belongs to its device: whether anybody notices it is decided by the search, in the order in which it reaches devices.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (isSelectable, allocateDevice).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec
from cachetools import LRUCache

from dra_extender.allocation.budget import UNLIMITED, Deferred, WorkBudget
from dra_extender.allocation.capacity import Consumed, consumed
from dra_extender.allocation.looks import Look, Reads
from dra_extender.allocation.plan import Rule
from dra_extender.allocation.questions import Compiled
from dra_extender.allocation.requests import REMEMBERED_BYTES, Filter
from dra_extender.allocation.taints import tolerated
from dra_extender.api.features import FeatureGates
from dra_extender.cel import CelCompileError, CelGates, DeviceView, Program
from dra_extender.devices.models import REMEMBERED, DeviceModel
from dra_extender.devices.nodeview import NodeView
from dra_extender.devices.traits import Traits


class Objection(msgspec.Struct, frozen=True):
    """Why evaluating a device failed. `index` counts the selectors of the class or of the request."""

    source: Literal["class", "request", "node"]
    index: int
    text: str


class Suitability(msgspec.Struct, frozen=True):
    """What a filter says about a device model on its own.

    `lost` is the first rule that takes it away, None when it may be used. `selected`: by the selectors; `takes`: what a
    share would consume, None when the capacity cannot be had.
    """

    lost: Rule | None
    selected: bool
    takes: Consumed | None = None
    objection: Objection | None = None


class Candidates(msgspec.Struct, frozen=True):
    """What a filter says about the devices of a view, as masks. `usable` may be allocated as far as static rules go;
    `collected` are those that mode All would want.
    """

    selected: int
    collected: int
    usable: int
    objections: dict[int, Objection]
    objectionable: int


_NOT_SELECTED: Final[Mapping[Rule, Suitability]] = {
    "binding conditions": Suitability("binding conditions", False),
    "class": Suitability("class", False),
    "selector": Suitability("selector", False),
}

_PLAIN: Final = Suitability(None, True, ())


def candidates(view: NodeView, filter: Filter, budget: WorkBudget = UNLIMITED) -> Candidates:
    """The devices of the view that pass the filter; remembered by the view. Raises TurnSpent, and Deferred when
    all that workers have to answer is asked.
    """
    found: Candidates | None = view.masks.get(filter)
    return found if found is not None else view.remember(filter, _candidates(view, filter, budget), filter.room)


def _candidates(view: NodeView, filter: Filter, budget: WorkBudget) -> Candidates:
    selected = collected = usable = 0
    objections: dict[int, Objection] = {}
    waiting: Deferred | None = None
    budget.spend(len(view.devices))
    bit = 1
    for index, device in enumerate(view.devices):
        try:
            found = suitability(device.model, filter, budget)
        except Deferred as found_open:
            waiting = found_open
            continue
        if found.selected:
            selected |= bit
            if found.takes is not None:
                collected |= bit
            if found.lost is None:
                usable |= bit
        elif found.objection is not None:
            objections[index] = found.objection
        bit <<= 1
    if waiting is not None:
        raise waiting
    for index, problem in view.unmatchable.items():
        if selected >> index & 1:
            objections[index] = Objection("node", 0, problem)
    gone = view.elsewhere | sum(1 << index for index in objections)
    return Candidates(
        selected & ~gone, collected & ~gone, usable & ~gone, objections, sum(1 << index for index in objections)
    )


def suitability(model: DeviceModel, filter: Filter, budget: WorkBudget = UNLIMITED) -> Suitability:
    """What the filter says about the model; remembered by the model. Raises TurnSpent and Deferred."""
    found: Suitability | None = model.memo.get(filter)
    return found if found is not None else model.remember(filter, _known(model, filter, budget), filter.room)


def _known(model: DeviceModel, filter: Filter, budget: WorkBudget) -> Suitability:
    """As the filter remembers it of a device that looks the same, once it is known what its selectors read: of
    thousands of devices with serial numbers each is new to a bind. Errors are worded for each device.
    """
    look = filter.look if filter.look is not None else _look(filter)
    if look is None:
        return _suitability(model, filter, budget)
    seen = look.of(model)
    found: Suitability | None = filter.answers.get(seen)
    if found is None:
        found = _suitability(model, filter, budget)
        if found.objection is None:
            if len(filter.answers) >= REMEMBERED:
                filter.answers.clear()
            filter.answers[seen] = found
    return found


def _look(filter: Filter) -> Look | None:
    """None as long as the reads of some selector are not known, or are everything."""
    reads: set[tuple[str, str]] = set()
    for expression in (*filter.class_selectors, *filter.selectors):
        found: Reads = filter.reads.get(expression)
        if found is None:
            return None
        reads |= found
    filter.look = look = Look(frozenset(reads))
    return look


def _suitability(model: DeviceModel, filter: Filter, budget: WorkBudget) -> Suitability:
    features = filter.features
    traits = model.traits
    if traits.binding_conditions and not features.binding_conditions:
        return _NOT_SELECTED["binding conditions"]
    selectors: tuple[_Selector, ...] = filter.compiled if filter.compiled is not None else _compile(filter, budget)
    waiting: Deferred | None = None
    for selector in selectors:
        try:
            answer = selector.evaluate(_device_view(model, features), budget)
        except Deferred as unanswered:
            waiting = unanswered
            continue
        if waiting is not None:
            continue  # what comes later is asked meanwhile
        if answer is False:
            return selector.refusal
        if answer is not True:
            return Suitability("error", False, None, Objection(selector.source, selector.index, answer))
    if waiting is not None:
        raise waiting
    takes: Consumed | None = ()
    if features.DRAConsumableCapacity and (traits.capacity or filter.capacity):
        takes = consumed(traits.capacity, filter.capacity)
    lost = _loss(traits, filter, takes)
    return _PLAIN if lost is None and takes == () else Suitability(lost, True, takes)


def _loss(traits: Traits, filter: Filter, takes: Consumed | None) -> Rule | None:
    if takes is None:
        return "capacity"
    if traits.partition and not filter.features.DRAPartitionableDevices:
        return "counters"
    if traits.taints and filter.features.DRADeviceTaints and not tolerated(traits.taints, filter.tolerations):
        return "taint"
    return None


class _Selector:
    """A compiled selector in its place. An expression that does not compile fails on every device that gets to it."""

    __slots__ = ("expression", "gates", "index", "is_local", "problem", "program", "refusal", "source")

    def __init__(
        self, source: Literal["class", "request"], index: int, expression: str, gates: CelGates, budget: WorkBudget
    ) -> None:
        """Raises TurnSpent and Deferred."""
        self.source = source
        self.index = index
        self.expression = expression
        self.gates = gates
        self.refusal = _NOT_SELECTED["class" if source == "class" else "selector"]
        self.program: Program | Compiled | None = None
        self.problem = ""
        try:
            self.program = budget.compiled(expression, gates)
        except CelCompileError as error:
            self.problem = f"CEL compile error: {error}"
        self.is_local = not isinstance(self.program, Compiled)
        if isinstance(self.program, Compiled):
            self.problem = self.program.problem

    def evaluate(self, view: DeviceView, budget: WorkBudget) -> bool | str:
        """What the selector says, or the text of its error. Raises TurnSpent and Deferred."""
        if self.program is None or self.problem:
            return self.problem
        return budget.matches(self.program, self.expression, self.gates, view)


def _compile(filter: Filter, budget: WorkBudget) -> tuple[_Selector, ...]:
    """All selectors of the filter in the order of evaluation. Kept by the filter one by one, but for those of workers.
    Raises TurnSpent, and Deferred when all that workers have to answer is asked.
    """
    _kept[filter] = filter
    gates = cel_gates(filter.features)
    sources: tuple[tuple[Literal["class", "request"], tuple[str, ...]], ...]
    sources = ("class", filter.class_selectors), ("request", filter.selectors)
    compiled: list[_Selector] = []
    waiting: Deferred | None = None
    for source, expressions in sources:
        for index, text in enumerate(expressions):
            selector = filter.begun.get((source, index))
            try:
                selector = selector or _Selector(source, index, text, gates, budget)
            except Deferred as problem:
                waiting = problem
                continue
            compiled.append(selector)
            if selector.is_local:
                filter.begun[source, index] = selector
    if waiting is not None:
        raise waiting
    found = tuple(compiled)
    if all(selector.is_local for selector in found):
        filter.compiled = found
        filter.begun = {}
    return found


class _Kept(LRUCache[Filter, Filter]):
    """The filters that have compiled selectors. One that has to go gives them up, whoever has it."""

    def popitem(self) -> tuple[Filter, Filter]:
        filter, _ = super().popitem()
        filter.compiled = None
        filter.begun = {}
        return filter, filter


_kept = _Kept(REMEMBERED_BYTES, getsizeof=lambda filter: filter.size)


def cel_gates(features: FeatureGates) -> CelGates:
    """The features that change the language of selectors."""
    return CelGates(features.DRAListTypeAttributes, features.DRAConsumableCapacity, stored=True)


def _device_view(model: DeviceModel, features: FeatureGates) -> DeviceView:
    key = "view", features.DRAListTypeAttributes, features.DRAConsumableCapacity
    found: DeviceView | None = model.memo.get(key)
    if found is None:
        traits, gates = model.traits, cel_gates(features)
        built = DeviceView.build(traits.driver, traits.attribute_values, traits.amounts, traits.multi, gates)
        found = model.remember(key, built)
    return found


def losses(view: NodeView, filter: Filter, budget: WorkBudget = UNLIMITED) -> Iterator[tuple[int, Rule]]:
    """(device, rule that takes it away first) for every device that the static rules leave out. Raises what the budget
    does.
    """
    for index, device in enumerate(view.devices):
        found = suitability(device.model, filter, budget)
        if found.objection is not None or (found.selected and index in view.unmatchable):
            yield index, "error"
        elif not found.selected:
            yield index, found.lost or "selector"
        elif view.elsewhere >> index & 1:
            yield index, "node"
        elif found.lost is not None:
            yield index, found.lost
