"""Tallies of selectors: the clauses that exclude devices, the values that they compare, and the errors of selectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.plan import Rule
from dra_extender.allocation.requests import Ask, DeviceFilter
from dra_extender.allocation.selection import suitability
from dra_extender.allocation.selectors import cel_gates, compiled, device_view, matches
from dra_extender.allocation.tally import ClauseTally, ErrorTally, ValueTally
from dra_extender.allocation.workerrequests import CompileReply
from dra_extender.cel import CelCompileError, CelRuntimeError, DeviceView, ReadSet, Work, WorkExceeded
from dra_extender.cel.clauses import clauses
from dra_extender.cel.trial import misspelt, value_of
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.pools import NodeView, PooledDevice

VALUES: Final = 8
"""How many values of an attribute that a clause reads are listed."""


def clause_tallies(ask: Ask, view: NodeView, masks: Mapping[Rule, int], budget: WorkBudget) -> Iterator[ClauseTally]:
    """Tallies of the request's selectors over the devices of the class. If the class selects no device: tallies of the
    class's selectors over all devices.
    """
    filter = ask.filter
    everything = masks.get("class", 0).bit_count() == len(view.devices)
    if everything:
        yield from _clauses_of("class", filter.class_selectors, filter, _models(view, view.all), budget)
    else:
        mask = view.all & ~masks.get("class", 0)
        yield from _clauses_of("request", filter.selectors, filter, _models(view, mask), budget)


def _models(view: NodeView, mask: int) -> Sequence[tuple[DeviceModel, int]]:
    counts = Counter(device.model for device in devices_of(view, mask))
    return list(counts.items())


def _clauses_of(
    source: Literal["class", "request"],
    selectors: Sequence[str],
    filter: DeviceFilter,
    models: Sequence[tuple[DeviceModel, int]],
    budget: WorkBudget,
) -> Iterator[ClauseTally]:
    views = [(device_view(model, filter.features), count) for model, count in models]
    for index, expression in enumerate(selectors):
        for number, text in enumerate(clauses(expression)):
            try:
                program = compiled(text, filter, budget)
            except CelCompileError:
                continue
            excluded = failed = 0
            for view, count in views:
                answer = matches(program, text, filter, view, budget)
                excluded += count if answer is False else 0
                failed += count if isinstance(answer, str) else 0
            if excluded or failed:
                reads, values = ("", ()) if isinstance(program, CompileReply) else _read(program.reads, views)
                yield ClauseTally(source, index, number, text, excluded, failed, reads, values)


def _read(reads: ReadSet, views: Sequence[tuple[DeviceView, int]]) -> tuple[str, tuple[ValueTally, ...]]:
    counts: Counter[str] = Counter()
    name = ""
    for view, count in views:
        found = value_of(reads, view)
        if found is None:
            return "", ()
        name = found[0]
        counts[found[1]] += count
    return name, tuple(ValueTally(text, count) for text, count in counts.most_common(VALUES))


def error_tallies(ask: Ask, view: NodeView, mask: int, budget: WorkBudget, texts: Work) -> Iterator[ErrorTally]:
    """Tallies of the selectors that fail for these devices. `texts`: the work for the texts of errors."""
    first: dict[tuple[str, str], ErrorTally] = {}
    for index, device in enumerate(view.devices):
        if not mask >> index & 1:
            continue
        failure = suitability(device.model, ask.filter, budget).failure
        source = failure.source if failure is not None else "node"
        text = failure.text if failure is not None else view.unmatchable.get(index, "")
        known = first.get((source, text))
        if known is not None:
            first[source, text] = msgspec.structs.replace(known, count=known.count + 1)
        elif failure is None or source in ("node", "capacity"):
            first[source, text] = ErrorTally(source, 0, "", text, "/".join(device.id), 1)
        else:
            selectors = ask.filter.class_selectors if source == "class" else ask.filter.selectors
            expression = selectors[failure.index]
            known = ErrorTally(source, failure.index, expression, text, "/".join(device.id), 1)
            first[source, text] = _worded(known, device.model, ask.filter, texts)
    yield from first.values()


def _worded(found: ErrorTally, model: DeviceModel, filter: DeviceFilter, work: Work) -> ErrorTally:
    """With the problem, a hint and the name that may be meant, if the selector can be evaluated here."""
    expression, view = found.expression, device_view(model, filter.features)
    try:
        filter.programs.compile(expression, cel_gates(filter.features), work).evaluate(view, work)
    except CelRuntimeError as error:
        found = msgspec.structs.replace(found, problem=error.message, hint=error.hint, key=error.key)
    except CelCompileError as error:
        return msgspec.structs.replace(found, problem=error.message, hint=error.hint)
    except WorkExceeded:
        return found
    try:
        word, near = misspelt(expression, found.key, view, work) if found.key else ("", "")
    except WorkExceeded:
        return found
    return msgspec.structs.replace(found, word=word, near=near)


def devices_of(view: NodeView, mask: int) -> Iterator[PooledDevice]:
    """The devices of the node that the mask has."""
    while mask:
        low = mask & -mask
        yield view.devices[low.bit_length() - 1]
        mask ^= low
