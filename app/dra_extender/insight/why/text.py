"""A diagnosis for people: why and what helps in a few lines, or everything.

Promises: lines of at most `width` columns where words allow it; nothing that the structs do not say.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dra_extender.allocation.plan import Rule
from dra_extender.allocation.tally import ClauseTally, ErrorTally, RequestTally
from dra_extender.api.core import taint_text
from dra_extender.cel.clauses import brief, pointed
from dra_extender.insight.why.report import BindingRule, ClaimState, Diagnosis, NodeGroup, Remedy, Request
from dra_extender.insight.why.summary import words as obstacle_words
from dra_extender.plurals import counted

WIDTH: Final = 80
SHORTLY: Final = 3
"""Remedies that are told when not all is asked for."""

_LOST: Final[dict[Rule, tuple[str, str]]] = {
    "binding conditions": ("has binding conditions, which are off", "have binding conditions, which are off"),
    "selector": ("is not selected", "are not selected"),
    "node": ("is for other nodes", "are for other nodes"),
    "error": ("makes a selector fail", "make a selector fail"),
    "in use": ("is in use", "are in use"),
    "capacity": ("has too little capacity left", "have too little capacity left"),
    "counters": ("needs counters that are used up", "need counters that are used up"),
    "taint": ("has a taint that is not tolerated", "have a taint that is not tolerated"),
    "constraint": ("does not satisfy the constraints", "do not satisfy the constraints"),
}


_HINTS: Final[dict[BindingRule, str]] = {
    "claim missing": "What helps: create the claim in the pod's namespace, or correct its name in spec.resourceClaims.",
    "claim not created": "What helps: create the template in the pod's namespace, or correct its name.",
    "class": "What helps: devices of this class. `kubectl get resourceslices` shows what drivers publish, and "
    "`kubectl dra devices -o wide` what can be used of it, and by which classes.",
    "claim in flight": "What helps: nothing, it is only a moment.",
    "claim leaving": "What helps: wait until the claim is gone, and create it again.",
}
"""Where there is nothing to decide again."""


def shortly(found: Diagnosis, width: int = WIDTH) -> str:
    """Two lines, and what helps."""
    lines = list(_head(found))
    lines.extend(_helping(found, found.remedies[:SHORTLY]))
    if found.state == "refused" and not found.remedies and found.groups and found.rule not in _HINTS:
        lines.append("See with --all what was found, node by node.")
    return _wrapped(lines, width)


def fully(found: Diagnosis, width: int = WIDTH) -> str:
    """Everything."""
    lines = list(_head(found))
    lines.extend(_helping(found, found.remedies))
    lines.append("")
    lines.extend(f"Claim {_claim(state)}" for state in found.claims)
    for group in found.groups:
        lines.extend(_group(group))
    if found.unchecked:
        lines.append(f"Not checked: {', '.join(found.unchecked)}.")
    if not found.complete:
        lines.append("Not everything was looked at: the cluster is large, or a selector is being evaluated.")
    if found.placement is not None:
        lines.extend(found.placement.lines())
    return _wrapped(lines, width)


def _wrapped(lines: Iterable[str], width: int) -> str:
    """Each line folded below its own indentation; what is indented by four or more stays as it is (YAML, CEL)."""
    folded: list[str] = []
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        if len(line) <= width or line.startswith("        "):
            folded.append(line)
            continue
        hanging = " " * (indent + 2)
        folded += textwrap.wrap(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return "\n".join(folded)


# --- in short ---------------------------------------------------------------------------------------------------------


def _head(found: Diagnosis) -> Iterator[str]:
    if found.state == "bound":
        yield f"Pod {found.pod}: {found.summary}."
    elif found.state == "fits":
        few = ", ".join(found.examples) + (", …" if found.fits > len(found.examples) else "")
        yield f"Pod {found.pod} fits {found.fits} of {counted(found.nodes, 'node')}: {few}."
        if found.unchecked:
            yield f"Not checked: {', '.join(found.unchecked)}."
    else:
        yield f"Pod {found.pod} fits none of {counted(found.nodes, 'node')}."
        yield f"Why: {found.summary}."


def _helping(found: Diagnosis, remedies: Sequence[Remedy]) -> Iterator[str]:
    if found.state != "refused":
        return
    if not remedies:
        yield _HINTS.get(found.rule, "No change that was tried makes it fit.")
    for number, remedy in enumerate(remedies):
        yield f"{'What helps:' if not number else 'Or:'} {remedy.text} ({fitting(remedy)})."
        for line in remedy.yaml.splitlines():
            yield f"        {line}"


def fitting(remedy: Remedy) -> str:
    """Where the pod fits then."""
    added = any(change.kind == "node added" for change in remedy.changes)
    if added:
        return "then it fits"
    return f"fits {counted(remedy.nodes, 'node')}" + (f": {remedy.example}" if remedy.nodes == 1 else "")


# --- everything -------------------------------------------------------------------------------------------------------


def _claim(state: ClaimState) -> str:
    made = f" from template {state.template}" if state.template else ""
    if state.allocated is None:
        return f"{state.claim}{made}: not allocated."
    devices = ", ".join(state.allocated) or "no devices"
    return f"{state.claim}{made}: allocated {devices}, {counted(state.consumers, 'consumer')}."


def _group(group: NodeGroup) -> Iterator[str]:
    names = ", ".join(group.nodes) + (", …" if group.count > len(group.nodes) else "")
    state = (
        "the pod fits" if group.fits
        else "devices fit" if group.verdict == "fits"
        else "devices do not fit" if group.requests  # what follows says why
        else group.reason or "does not fit"
    )  # fmt: skip
    yield f"{counted(group.count, 'node')} ({names}): {state}."
    for obstacle in group.obstacles:
        yield f"  {obstacle_words(obstacle)}"
    if not group.examined:
        yield "  not looked at in detail"
    for problem in group.pools:
        yield f"  {problem.text()}"
    for request in group.requests:
        yield from _request(request)
    for constraint in group.constraints:
        kind = "share" if constraint.kind == "matchAttribute" else "differ in"
        missing = f"; {counted(constraint.missing, 'device')} without it" if constraint.missing else ""
        yield (
            f"  claim {constraint.claim}: {constraint.wanted} devices have to {kind} {constraint.attribute}, "
            f"at most {constraint.best} do{missing}"
        )
    if group.cause:
        yield f"  the search ended at: {group.cause}"


def _request(request: Request) -> Iterator[str]:
    tally = request.tally
    wanted = "all devices" if tally.all else counted(tally.wanted, "device")
    others = f", {tally.others} of other classes" if tally.others and not tally.offered else ""
    yield (
        f"  claim {tally.claim}, request {tally.request}: {wanted} of class {tally.class_name} wanted, "
        f"{tally.offered} there{others}, {tally.left} left"
    )
    for loss in tally.losses:
        yield f"    {loss.count} {_LOST[loss.rule][loss.count != 1]}"
        if loss.rule in ("selector", "error"):
            yield from _selector(tally)
        elif loss.rule == "taint":
            for taint in tally.taints:
                shown = taint_text(taint.key, taint.value, taint.effect)
                yield f"      {taint.count} × {shown}"
        elif loss.rule == "capacity":
            for capacity in tally.capacities:
                asked, left = capacity.asked or "all", capacity.left or "none"
                yield f"      {capacity.name}: {asked} asked for, at most {left} left of {capacity.most}"
        elif loss.rule == "counters":
            for counter in tally.counters:
                yield f"      {counter.counter_set}/{counter.counter}: {counter.asked} needed, {counter.left} left"
    for holder in request.holders:
        users = ", ".join(holder.pods) or "nobody"
        yield f"      claim {holder.claim} has {holder.devices}, used by {users}"
    if not tally.losses and not tally.offered:
        yield from _selector(tally)


def _selector(tally: RequestTally) -> Iterator[str]:
    for clause in tally.clauses:
        yield f"      {_clause(clause)}"
    for error in tally.errors:
        yield from _error(error)


def _clause(clause: ClauseTally) -> str:
    parts = [f"{clause.excluded} do not satisfy it"] if clause.excluded else []
    parts += [f"it fails for {clause.failed}"] if clause.failed else []
    values = ", ".join(f"{value.text or 'none'} ({value.count})" for value in clause.values)
    return f"{brief(clause.text)}: {', '.join(parts)}" + (f"; the values are {values}" if values else "")


def _error(error: ErrorTally) -> Iterator[str]:
    meant = f"; did you mean {error.near}?" if error.near else ""
    yield f"      device {error.device}: {error.problem}" + (f" ({error.hint})" if error.hint else "") + meant
    if error.key:
        for line in pointed(error.expression, error.word or error.key).splitlines():
            yield f"        {line}"
