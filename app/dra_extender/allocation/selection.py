"""Which devices a request may have at all: class and request selectors, node match, taints, capacity as a filter.

Promises: an answer depends only on the device's model and the filter. So it is computed once for all models with equal
signatures for the filter, and each model keeps it. A view keeps the answers for all its devices. An error belongs to
its device: the search reports the error when it reaches the device.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (isSelectable, allocateDevice).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from dra_extender.allocation.budget import UNLIMITED, Deferred, TurnSpent, WorkBudget, ask_all
from dra_extender.allocation.capacity import AmountError, Consumed, consumed
from dra_extender.allocation.plan import Rule
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.allocation.selectors import FilterSelector, device_view, filter_selectors, matches
from dra_extender.allocation.signatures import AttributeReads, AttributeSignatures
from dra_extender.api.resource import DeviceTaint, DeviceToleration
from dra_extender.api.tolerations import tolerates
from dra_extender.devices.models import REMEMBERED, DeviceModel, Traits
from dra_extender.devices.pools import NodeView

COMPARED: Final = 4
"""Taints that are compared with a toleration per unit of work."""

ANSWER: Final = 8
"""Units that an answer costs without its selectors, and again for each capacity of the device."""


class EvaluationFailure(msgspec.Struct, frozen=True):
    """Why evaluating a device failed. `index` counts the selectors of the class or of the request."""

    source: Literal["class", "request", "node", "capacity"]
    index: int
    text: str


class Suitability(msgspec.Struct, frozen=True):
    """The answer of a filter for a device model.

    `lost` is the first rule that takes it away, None when it may be used. `selected`: by the selectors; `takes`: what a
    share would consume, None when the capacity cannot be had.
    """

    lost: Rule | None
    selected: bool
    takes: Consumed | None = None
    failure: EvaluationFailure | None = None


class Candidates(msgspec.Struct, frozen=True):
    """The answers of a filter for the devices of a view, as masks. `usable` may be allocated as far as static rules go;
    `collected` are the devices that mode All takes.
    """

    selected: int
    collected: int
    usable: int
    failures: dict[int, EvaluationFailure]
    failing: int

    def among(self, mask: int) -> Candidates:
        """The answers for the devices of the mask alone."""
        failures = {device: failure for device, failure in self.failures.items() if mask >> device & 1}
        return Candidates(
            self.selected & mask, self.collected & mask, self.usable & mask, failures, self.failing & mask
        )


_NOT_SELECTED: Final[Mapping[Rule, Suitability]] = {
    "binding conditions": Suitability("binding conditions", False),
    "class": Suitability("class", False),
    "selector": Suitability("selector", False),
}

_PLAIN: Final = Suitability(None, True, ())


def candidates(view: NodeView, filter: DeviceFilter, budget: WorkBudget = UNLIMITED) -> Candidates:
    """The devices of the view that pass the filter. The view remembers them. Raises TurnSpent; raises Deferred after
    all requests to workers are deferred.
    """
    found: Candidates | None = view.memo.get(filter.key)
    return found if found is not None else view.remember(filter.key, _candidates(view, filter, budget), filter.room)


def _candidates(view: NodeView, filter: DeviceFilter, budget: WorkBudget) -> Candidates:
    selected = collected = usable = 0
    failures: dict[int, EvaluationFailure] = {}
    budget.spend(len(view.devices))
    bit = 1
    answers = ask_all(lambda device: suitability(device.model, filter, budget), view.devices)
    for index, found in enumerate(answers):
        if found.selected:
            selected |= bit
            if found.takes is not None:
                collected |= bit
            if found.lost is None:
                usable |= bit
        elif found.failure is not None:
            failures[index] = found.failure
        bit <<= 1
    for index, problem in view.unmatchable.items():
        if selected >> index & 1:
            failures[index] = EvaluationFailure("node", 0, problem)
    gone = view.elsewhere | sum(1 << index for index in failures)
    return Candidates(
        selected & ~gone, collected & ~gone, usable & ~gone, failures, sum(1 << index for index in failures)
    )


def suitability(model: DeviceModel, filter: DeviceFilter, budget: WorkBudget = UNLIMITED) -> Suitability:
    """The answer of the filter for the model; remembered by the model. Raises TurnSpent and Deferred."""
    found: Suitability | None = model.memo.get(filter.key)
    return found if found is not None else model.remember(filter.key, _known(model, filter, budget), filter.room)


def _known(model: DeviceModel, filter: DeviceFilter, budget: WorkBudget) -> Suitability:
    """The answer by signature, if the reads of the filter's selectors are known. Raises TurnSpent and Deferred."""
    signatures = filter.signatures if filter.signatures is not None else _signatures(filter)
    if signatures is None:
        return _suitability(model, filter, budget)
    signature = signatures.of(model)
    found: Suitability | None = filter.answers.get(signature)
    if found is None:
        found = _suitability(model, filter, budget)
        if found.failure is None:
            if len(filter.answers) >= REMEMBERED:
                filter.answers.clear()
            filter.answers[signature] = found
    return found


def _signatures(filter: DeviceFilter) -> AttributeSignatures | None:
    """None as long as the reads of some selector are not known, or are everything."""
    reads: set[tuple[str, str]] = set()
    for expression in (*filter.class_selectors, *filter.selectors):
        found: AttributeReads = filter.reads.get(expression)
        if found is None:
            return None
        reads |= found
    filter.signatures = signatures = AttributeSignatures(frozenset(reads))
    return signatures


def _suitability(model: DeviceModel, filter: DeviceFilter, budget: WorkBudget) -> Suitability:
    """The later turns of a call do not evaluate the same selectors again: `answers` of selectors are by place."""
    place = filter.key, model
    answers: dict[int, bool | str] = budget.found.pop(place, {})
    try:
        return _evaluated(model, filter, budget, answers)
    except TurnSpent:
        budget.found[place] = answers
        raise


def _evaluated(
    model: DeviceModel, filter: DeviceFilter, budget: WorkBudget, answers: dict[int, bool | str]
) -> Suitability:
    features = filter.features
    traits = model.traits
    off = bool(traits.binding_conditions) and not features.binding_conditions
    selectors: tuple[FilterSelector, ...]
    selectors = filter.compiled if filter.compiled is not None else filter_selectors(filter, budget)
    waiting = ""
    for number, selector in enumerate(selectors):
        if off and selector.source != "class":
            continue  # the class is asked, so that a device of another class is not reported for this one
        try:
            if number not in answers:
                view = device_view(model, features)
                answers[number] = matches(selector.compiled, selector.expression, filter, view, budget)
        except Deferred as deferred:
            waiting = str(deferred)
            continue
        if waiting:
            continue  # the loop goes on only to defer the requests for the other selectors
        answer = answers[number]
        if answer is False:
            return _NOT_SELECTED["class" if selector.source == "class" else "selector"]
        if answer is not True and not off:
            return Suitability("error", False, None, EvaluationFailure(selector.source, selector.index, answer))
    if waiting:
        raise Deferred(waiting)
    if off:
        return _NOT_SELECTED["binding conditions"]
    takes: Consumed | None = ()
    budget.spend(ANSWER * (1 + len(traits.capacity)))
    if features.DRAConsumableCapacity and (traits.capacity or filter.capacity):
        try:
            takes = consumed(traits.capacity, filter.capacity, features)
        except AmountError as problem:
            return Suitability("error", False, None, EvaluationFailure("capacity", 0, str(problem)))
    if comparisons := len(traits.taints) * len(filter.tolerations) // COMPARED:
        budget.spend(comparisons)
    lost = _loss(traits, filter, takes)
    return _PLAIN if lost is None and takes == () else Suitability(lost, True, takes)


def _loss(traits: Traits, filter: DeviceFilter, takes: Consumed | None) -> Rule | None:
    if takes is None:
        return "capacity"
    if traits.partition and not filter.features.DRAPartitionableDevices:
        return "counters"
    if traits.taints and filter.features.DRADeviceTaints and not tolerated(traits.taints, filter.tolerations):
        return "taint"
    return None


def tolerated(taints: Sequence[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether each taint, all with an active effect, is tolerated by at least one toleration. The caller charges the
    product of both, because rules can add any number of taints.
    """
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def losses(view: NodeView, filter: DeviceFilter, budget: WorkBudget = UNLIMITED) -> Mapping[Rule, int]:
    """The devices that the static rules leave out, by the rule that takes them away first. The view remembers them.
    Raises what the budget does.
    """
    key = "losses", filter.key
    known: Mapping[Rule, int] | None = view.memo.get(key)
    if known is not None:
        return known
    lost: dict[Rule, int] = {}
    budget.spend(len(view.devices))
    for index, device in enumerate(view.devices):
        found = suitability(device.model, filter, budget)
        rule = found.lost or (None if found.selected else "selector")
        if found.failure is not None or (found.selected and index in view.unmatchable):
            rule = "error"
        elif found.selected and view.elsewhere >> index & 1:
            rule = "node"
        if rule is not None:
            lost[rule] = lost.get(rule, 0) | 1 << index
    return view.remember(key, lost, filter.room)
