"""Device selectors on a work budget: compiled and evaluated on the event loop, or by workers when that is too large.

Promises: the same answers either way. An expression that does not compile fails on every device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from dra_extender.allocation.budget import EVALUATING, WorkBudget, ask_all
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.allocation.workerrequests import (
    CompileReply,
    CompileRequest,
    EvaluateReply,
    EvaluateRequest,
    Overrun,
    WorkerReply,
)
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceAttribute
from dra_extender.cel import (
    CelCompileError,
    CelGates,
    CelRuntimeError,
    DeviceView,
    Program,
    Programs,
    Work,
    WorkExceeded,
)
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.pools import PooledDevice

CompiledSelector = Program | CompileReply

SelectorSource = Literal["class", "request"]


def cel_gates(features: FeatureGates) -> CelGates:
    """The features that change the language of selectors. With the rules of 1.37 they always know list attributes."""
    lists = features.DRAListTypeAttributes or features.is_1_37
    return CelGates(lists, features.DRAConsumableCapacity, stored=True, is_1_37=features.is_1_37)


def device_view(model: DeviceModel, features: FeatureGates) -> DeviceView:
    """The device as selectors see it; remembered by the model."""
    key = "view", features.DRAListTypeAttributes or features.is_1_37, features.DRAConsumableCapacity
    found: DeviceView | None = model.memo.get(key)
    if found is None:
        found = model.remember(key, DeviceView.build(model.traits, cel_gates(features)))
    return found


def compiled(
    expression: str, filter: DeviceFilter, budget: WorkBudget, gates: CelGates | None = None
) -> CompiledSelector:
    """The selector of the filter, ready to be evaluated. Raises TurnSpent and Deferred."""
    gates = gates or cel_gates(filter.features)
    key = "compile", expression, gates
    known = budget.known(key)
    if known is not None:
        reply = known.reply
        if isinstance(reply, CompileReply):
            return reply
        return CompileReply(problem=_overrun(reply, "to compile"), final=False)
    if not budget.is_deferred(key):
        try:
            return budget.attempt(lambda work: _compiled(expression, gates, filter.programs, work))
        except WorkExceeded:
            pass
    raise budget.defer(key, CompileRequest(expression, gates), EVALUATING)


def _compiled(expression: str, gates: CelGates, programs: Programs, work: Work | None = None) -> Program | CompileReply:
    """Raises WorkExceeded."""
    try:
        return programs.compile(expression, gates, work)
    except CelCompileError as error:
        return CompileReply(problem=error.message if gates.derived else f"CEL compile error: {error}")


def matches(
    selector: CompiledSelector, expression: str, filter: DeviceFilter, view: DeviceView, budget: WorkBudget
) -> bool | str:
    """Whether the device matches, or the text of the error. Raises TurnSpent and Deferred."""
    if isinstance(selector, CompileReply) and selector.problem:
        return selector.problem
    found = _evaluation(selector, expression, filter, view, budget, cel_gates(filter.features))
    return found.problem or found.matches


def derived(
    name: str, expression: str, device: PooledDevice, filter: DeviceFilter, budget: WorkBudget
) -> DeviceAttribute | str:
    """The attribute that the expression computes, or the text of the error. Raises TurnSpent and Deferred."""
    gates = msgspec.structs.replace(cel_gates(filter.features), derived=True)
    program = compiled(expression, filter, budget, gates)
    if isinstance(program, CompileReply) and program.problem:
        return f"compile derived attribute {name} failed: {program.problem}"
    view = device_view(device.model, filter.features)
    key, known = (expression, gates, view.read_key(program.reads)), filter.programs.derived
    found: EvaluateReply | None = known.get(key)
    if found is None:
        found = known[key] = _evaluation(program, expression, filter, view, budget, gates)
    if found.attribute is None:
        return f"evaluate derived attribute {name} on device {'/'.join(device.id)} failed: {found.problem}"
    return found.attribute


def _evaluation(
    selector: CompiledSelector,
    expression: str,
    filter: DeviceFilter,
    view: DeviceView,
    budget: WorkBudget,
    gates: CelGates,
) -> EvaluateReply:
    if not budget.limited:
        program = selector if isinstance(selector, Program) else filter.programs.compile(expression, gates)
        return evaluated(program, view)
    content = expression, gates
    if isinstance(selector, Program) and content not in budget.too_large:
        program = selector
        try:
            return budget.attempt(lambda work: evaluated(program, view, work))
        except WorkExceeded:
            budget.too_large[content] = True
    key = "evaluate", expression, gates, view.read_key(selector.reads)
    known = budget.known(key)
    if known is None:
        raise budget.defer(key, EvaluateRequest(expression, gates, view), EVALUATING)
    reply = known.reply
    return reply if isinstance(reply, EvaluateReply) else EvaluateReply(problem=_overrun(reply, "on a device"))


def evaluated(program: Program, view: DeviceView, work: Work | None = None) -> EvaluateReply:
    """What the expression says of the device. Raises WorkExceeded."""
    try:
        if program.gates.derived:
            return EvaluateReply(attribute=program.attribute(view, work))
        return EvaluateReply(program.evaluate(view, work))
    except CelRuntimeError as error:
        return EvaluateReply(problem=error.message if program.gates.derived else f"CEL runtime error: {error}")


def _overrun(reply: WorkerReply, what: str) -> str:
    """The text of an error."""
    return f"{reply.text} {what}" if isinstance(reply, Overrun) else f"unexpected answer of a worker {what}"


def reply_to(request: CompileRequest | EvaluateRequest, programs: Programs) -> CompileReply | EvaluateReply:
    """What a worker replies. Never raises for what the request contains."""
    if isinstance(request, CompileRequest):
        found = _compiled(request.expression, request.gates, programs)
        return found if isinstance(found, CompileReply) else CompileReply(found.reads)
    return evaluated(programs.compile(request.expression, request.gates), request.view)


@dataclass(slots=True, eq=False)
class FilterSelector:
    """A selector of a filter in its place: the `index`-th of the class or of the request."""

    source: SelectorSource
    index: int
    expression: str
    compiled: CompiledSelector

    @property
    def is_local(self) -> bool:
        """False when workers evaluate it, or may compile it another time."""
        found = self.compiled
        return isinstance(found, Program) or (found.problem != "" and found.final)


def filter_selectors(filter: DeviceFilter, budget: WorkBudget) -> tuple[FilterSelector, ...]:
    """The filter's selectors in the order of evaluation. The filter keeps them one by one, except those that workers
    evaluate. Raises TurnSpent, and Deferred after all requests to workers were deferred.
    """
    filter.keep()
    places: list[tuple[SelectorSource, int, str]]
    places = [("class", index, text) for index, text in enumerate(filter.class_selectors)]
    places += [("request", index, text) for index, text in enumerate(filter.selectors)]

    def ready(place: tuple[SelectorSource, int, str]) -> FilterSelector:
        known: FilterSelector | None = filter.begun.get(place)
        found = known or FilterSelector(*place, compiled(place[2], filter, budget))
        if found.is_local:
            filter.begun[place] = found
        return found

    selectors = tuple(ask_all(ready, places))
    if all(selector.is_local for selector in selectors):
        filter.compiled = selectors
        filter.begun = {}
    return selectors
