"""Which devices a request may have at all: class and request selectors, node match, taints, capacity as a filter.

Promises: an answer depends on the device's model and the filter only, so it is computed once per model and kept there;
what a whole view answers is kept by the view. An error belongs to its device: whether anybody notices it is decided by
the search, in the order in which it reaches devices.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (isSelectable, allocateDevice).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from app.allocation.capacity import Consumed, consumed
from app.allocation.plan import Rule
from app.allocation.requests import Ask, Filter
from app.allocation.taints import tolerated
from app.api.features import FeatureGates
from app.cel import CelCompileError, CelGates, CelRuntimeError, DeviceView, Program, compile_selector
from app.devices.models import DeviceModel
from app.devices.nodeview import NodeView
from app.devices.traits import Traits


class Objection(msgspec.Struct, frozen=True):
    """Why evaluating a device failed. `index` counts the selectors of the class or of the request."""

    source: Literal["class", "request", "node"]
    index: int
    text: str

    def message(self, ask: Ask, claim: str) -> str:
        """The fatal error; `claim` is namespace/name."""
        if self.source == "class":
            return f"class {ask.class_name}: selector #{self.index}: {self.text}"
        if self.source == "request":
            return f"claim {claim}: selector #{self.index}: {self.text}"
        return f"claim {claim}, request {ask.label}: {self.text}"


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


def candidates(view: NodeView, filter: Filter) -> Candidates:
    """The devices of the view that pass the filter; remembered by the view."""
    found: Candidates | None = view.masks.get(filter)
    return found if found is not None else view.remember(filter, _candidates(view, filter))


def _candidates(view: NodeView, filter: Filter) -> Candidates:
    selected = collected = usable = 0
    objections: dict[int, Objection] = {}
    bit = 1
    for index, device in enumerate(view.devices):
        found = suitability(device.model, filter)
        if found.selected:
            selected |= bit
            if found.takes is not None:
                collected |= bit
            if found.lost is None:
                usable |= bit
        elif found.objection is not None:
            objections[index] = found.objection
        bit <<= 1
    for index, problem in view.unmatchable.items():
        if selected >> index & 1:
            objections[index] = Objection("node", 0, problem)
    gone = view.elsewhere | sum(1 << index for index in objections)
    return Candidates(
        selected & ~gone, collected & ~gone, usable & ~gone, objections, sum(1 << index for index in objections)
    )


def suitability(model: DeviceModel, filter: Filter) -> Suitability:
    """What the filter says about the model; remembered by the model."""
    found: Suitability | None = model.memo.get(filter)
    return found if found is not None else model.remember(filter, _suitability(model, filter))


def _suitability(model: DeviceModel, filter: Filter) -> Suitability:
    features = filter.features
    traits = model.traits
    if traits.binding_conditions and not features.binding_conditions:
        return _NOT_SELECTED["binding conditions"]
    selectors: tuple[_Selector, ...] = filter.compiled if filter.compiled is not None else _compile(filter)
    for selector in selectors:
        answer = selector.evaluate(_device_view(model, features))
        if answer is False:
            return selector.refusal
        if answer is not True:
            return Suitability("error", False, None, Objection(selector.source, selector.index, answer))
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

    __slots__ = ("index", "problem", "program", "refusal", "source")

    def __init__(self, source: Literal["class", "request"], index: int, expression: str, gates: CelGates) -> None:
        self.source = source
        self.index = index
        self.refusal = _NOT_SELECTED["class" if source == "class" else "selector"]
        self.program: Program | None = None
        self.problem = ""
        try:
            self.program = compile_selector(expression, gates)
        except CelCompileError as error:
            self.problem = f"CEL compile error: {error}"

    def evaluate(self, view: DeviceView) -> bool | str:
        """What the selector says, or the text of its error."""
        if self.program is None:
            return self.problem
        try:
            return self.program.evaluate(view)
        except CelRuntimeError as error:
            return f"CEL runtime error: {error}"


def _compile(filter: Filter) -> tuple[_Selector, ...]:
    """All selectors of the filter in the order of evaluation; kept by the filter."""
    gates = cel_gates(filter.features)
    compiled = (
        *(_Selector("class", index, text, gates) for index, text in enumerate(filter.class_selectors)),
        *(_Selector("request", index, text, gates) for index, text in enumerate(filter.selectors)),
    )
    filter.compiled = compiled
    return compiled


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


def losses(view: NodeView, filter: Filter) -> Iterator[tuple[int, Rule]]:
    """(device, rule that takes it away first) for every device that the static rules leave out."""
    for index, device in enumerate(view.devices):
        found = suitability(device.model, filter)
        if found.objection is not None or (found.selected and index in view.unmatchable):
            yield index, "error"
        elif not found.selected:
            yield index, found.lost or "selector"
        elif view.elsewhere >> index & 1:
            yield index, "node"
        elif found.lost is not None:
            yield index, found.lost
