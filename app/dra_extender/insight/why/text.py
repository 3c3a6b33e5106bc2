"""A diagnosis as text: short, complete, or as an event.

Promises: a line has at most `width` columns, unless one word is longer. The text contains only what the structs
contain. The note of an event has at most `LONGEST` characters, including the remedy. Its reason is constant per rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, get_args

from dra_extender.allocation.plan import rule_text
from dra_extender.allocation.tally import ClauseTally, ErrorTally, RequestTally
from dra_extender.api.core import taint_text
from dra_extender.cel.trial import brief, pointed
from dra_extender.insight.why.report import ClaimState, DiagnosedRequest, Diagnosis, NodeGroup, Remedy
from dra_extender.insight.why.statements import BindingRule, NodesExcluded, PodRefused, SelectorFails
from dra_extender.insight.why.wording import obstacle_text
from dra_extender.plaintext import counted, printable, wrapped
from dra_extender.scheduling.noderules import UNHEALTHY, NodeRule
from dra_extender.scheduling.preemption.terms import for_devices
from dra_extender.scheduling.reader import HIDDEN, listed

WIDTH: Final = 80
LIMITED: Final = "Not everything was compared or tried, because the work for one answer is limited."
NO_CHANGE: Final = "No single change that was tried lets the pod fit."
FEW: Final = 3
"""Remedies in the short text."""
LONGEST: Final = 200
"""Characters of the note of an event."""
LONGEST_REMEDY: Final = 120
"""An event leaves out a longer remedy, because too few characters would remain for the summary."""

_HINTS: Final[dict[BindingRule, str]] = {
    "claim missing": "Suggestion: create the claim in the pod's namespace, or correct its name in spec.resourceClaims.",
    "claim not created": "Suggestion: create the template in the pod's namespace, or correct its name.",
    "class": "Suggestion: install a driver that publishes devices of this class. `kubectl get resourceslices` shows "
    "what drivers publish, `kubectl dra devices -o wide` shows the classes of these devices, and which can be used.",
    "claim in flight": "No action needed: this resolves within seconds.",
    "claim failed": "No action needed now: dra-extender deallocates the claim and tries again. If it fails again, find "
    "out why in the log of the driver. `kubectl get resourceclaim -o yaml` shows the conditions of the devices.",
    "gang": "The pod alone would fit, but enough pods of its gang have to exist and to fit at the same time. Use why "
    "for the other pods.",
    "feature gate": "Suggestion: enable the feature gate in the control plane and in dra-extender.",
    "no node has all": "Suggestion: use several pods, each with claims of its own: all devices of a pod have to be "
    "usable on one node.",
    "claim leaving": "Suggestion: wait until the claim is deleted, and create it again.",
}
"""Suggestions that cannot be verified."""

_FIRST: Final[dict[BindingRule, tuple[str, str]]] = {
    "class": (_HINTS["class"], "is its driver installed?"),
    "taint": (
        "Suggestion: find out why the devices are tainted (`kubectl dra devices -o wide` shows them). Repair them, or "
        "wait until the taint is removed.",
        "repair them, or remove the taint",
    ),
    "pools": (
        "Suggestion: wait until the driver has published its devices. If that takes longer than a minute, find out why "
        "in the log of the driver.",
        "wait for the driver",
    ),
    "service": ("Suggestion: find out why dra-extender does not run (`kubectl get pods -A`).", "start it"),
}
"""Suggestions that cannot be verified, and that come before all others: as a sentence, and for an event."""

_REASONS: Final[dict[BindingRule, str]] = {
    "claim missing": "ClaimMissing",
    "claim not created": "ClaimNotCreated",
    "class missing": "DeviceClassMissing",
    "feature gate": "FeatureDisabled",
    "claim leaving": "ClaimLeaving",
    "claim full": "ClaimFull",
    "claim unreadable": "ClaimUnreadable",
    "claim": "ClaimUnusable",
    "error": "SelectorFailed",
}
_WITHOUT_EVENT: Final[frozenset[BindingRule]] = frozenset(
    ("", "claim in flight", "scheduling gate", "scheduler", "no nodes")
)
"""Rules that resolve by themselves, or do not concern devices."""


class DiagnosisEvent(NamedTuple):
    """`claim`: the claim (namespace/name) that is the cause; empty if no claim is."""

    reason: str
    note: str
    claim: str


def event_of(found: Diagnosis) -> DiagnosisEvent | None:
    """The event for a refused pod. None for other pods, and for rules that need no event."""
    if found.state != "refused" or found.rule in _WITHOUT_EVENT:
        return None
    reason = _REASONS.get(found.rule, "NodesUnavailable" if found.rule in get_args(NodeRule) else "DevicesUnavailable")
    return DiagnosisEvent(reason, _note(found), found.claim)


def _note(found: Diagnosis) -> str:
    first = _first(found)
    if first is not None and not _comes_first(found.remedies):
        return printable(found.summary, LONGEST - len(first[1]) - 2) + f"; {first[1]}"
    for remedy in found.remedies[:1]:
        fits = "" if _adds_node(remedy) else f" ({_fits(remedy)})"
        tail = f"; {remedy.short}{fits}"
        if len(tail) <= LONGEST_REMEDY:
            return printable(found.summary, LONGEST - len(tail)) + tail
    return printable(found.summary, LONGEST)


def _first(found: Diagnosis) -> tuple[str, str] | None:
    """An extended resource needs a provider first, if no node has one; a node that is not ready needs repair."""
    groups = found.groups if found.rule != "feature gate" else ()
    obstacles = [{(each.rule, each.what) for each in group.obstacles if not each.has} for group in groups]
    for name in sorted(what for rule, what in set.intersection(*obstacles or [set()]) if rule == "resource"):
        if "/" not in name:
            return f"Suggestion: reserve {name} on a node, and restart its kubelet.", f"reserve {name} on a node"
        text = f"Suggestion: install the driver whose DeviceClass has extendedResourceName {name}. If a device plugin "
        text += "provides it, find out why no node has it in status.allocatable (`kubectl describe nodes`)."
        return text, "is its driver installed?"
    for each in found.statements[:1]:
        if isinstance(each, SelectorFails) and each.source == "class":
            name = each.requested.class_name
            text = f"Suggestion: have an administrator correct the selector of class {name}."
            return text, f"correct the selector of class {name}"
        if isinstance(each, NodesExcluded) and any(it.what.startswith(UNHEALTHY) for it in each.obstacles):
            text = f"Suggestion: repair the node (`kubectl describe node {each.scope.nodes[0]}` shows its conditions)."
            return text, "repair the node"
    return _FIRST.get(found.rule)


def _comes_first(remedies: Sequence[Remedy]) -> bool:
    """True when the first remedy corrects a mistake or frees a device, which is better than what cannot be verified."""
    return bool(remedies) and not remedies[0].weakens


def _adds_node(remedy: Remedy) -> bool:
    return any(change.kind == "node added" for change in remedy.changes)


def shortly(found: Diagnosis, width: int = WIDTH) -> str:
    """The result, the reason, and the first suggestions."""
    lines = [*_result(found), *_suggestions(found, found.remedies[:FEW])]
    if found.state == "refused" and not found.remedies and found.groups and _hint(found) == NO_CHANGE:
        lines.append("Use --all to see the findings node by node.")
    return wrapped(lines, width)


def fully(found: Diagnosis, width: int = WIDTH) -> str:
    lines = [*_result(found), *_suggestions(found, found.remedies, complete=True), ""]
    lines.extend(f"Claim {_claim(state)}" for state in found.claims)
    for group in found.groups:
        lines.extend(group_lines(group))
    if found.unchecked:
        lines.append(f"Not checked: {', '.join(found.unchecked)}.")
    if not found.complete:
        lines.append(LIMITED)
    if (it := found.preemption) is not None:
        pods = f"{listed('pod', it.pods)} on node {it.node}{for_devices(it.devices)}"
        lines.append(f"would preempt {pods if it.pods else f'no pod: {it.reason}'}")
    return wrapped(lines, width)


def _result(found: Diagnosis) -> Iterator[str]:
    if found.state == "bound":
        yield f"Pod {found.pod}: {found.summary}."
    elif found.state == "fits":
        few = ", ".join(found.examples) + (", …" if found.fits > len(found.examples) else "")
        yield f"Pod {found.pod} fits {found.fits} of {counted(found.nodes, 'node')}: {few}."
        if found.summary:
            yield f"But {found.summary}."
        if found.unchecked:
            yield f"Not checked: {', '.join(found.unchecked)}."
    else:
        yield f"Pod {found.pod} fits none of {counted(found.nodes, 'node')}."
        yield f"Reason: {found.summary}."


def _suggestions(found: Diagnosis, remedies: Sequence[Remedy], complete: bool = False) -> Iterator[str]:
    """With the commands of the first remedy, or of all of them if `complete`."""
    if found.state != "refused":
        return
    told = False
    if (first := _first(found)) is not None and not _comes_first(remedies):
        yield first[0]
        told = True
    elif not remedies:
        yield _hint(found)
    for remedy in remedies:
        yield f"{'Or:' if told else 'Suggestion:'} {remedy.text} ({fitting(remedy)})."
        for line in (*remedy.yaml.splitlines(), *(() if told and not complete else remedy.commands)):
            yield f"        {line}"
        told = True


def _hint(found: Diagnosis) -> str:
    """A suggestion that cannot be verified."""
    namespace, _, claim = found.claim.partition("/")
    for each in found.statements[:1]:
        if isinstance(each, PodRefused) and each.rule == "claim elsewhere":
            pods = f"the pods that `kubectl get resourceclaim {claim} -n {namespace} -o yaml` lists in"
            return f"Suggestion: delete {pods} status.reservedFor. The claim is then deallocated."
        if isinstance(each, NodesExcluded) and each.obstacles[0].rule == "claim elsewhere":
            node = f"node {each.obstacles[0].asked}" if each.obstacles[0].asked else "one of its nodes"
            only = f"While claim {claim} is allocated, the pod can only run there."
            others = " and ".join(each.labels) or "the other claims of the pod"
            return f"Suggestion: in {others}, request only devices that {node} has. {only}"
    return _HINTS.get(found.rule, NO_CHANGE)


def suggestion(found: Diagnosis) -> str:
    """The first suggestion, without commands; empty if the pod fits."""
    return next(_suggestions(found, found.remedies[:1]), "")


def fitting(remedy: Remedy) -> str:
    """How many nodes the pod fits after the remedy."""
    if _adds_node(remedy) and not remedy.pods:
        return "then it fits"
    return _fits(remedy) + (f": {remedy.example}" if remedy.nodes == 1 and not remedy.pods else "")


def _fits(remedy: Remedy) -> str:
    return f"then {remedy.pods} pods fit together" if remedy.pods else f"then it fits {counted(remedy.nodes, 'node')}"


def _claim(state: ClaimState) -> str:
    made = f" from template {state.template}" if state.template else ""
    if state.allocated is None:
        return f"{state.claim}{made}: not allocated."
    devices = ", ".join(state.allocated) or "no devices"
    return f"{state.claim}{made}: allocated {devices}, {counted(state.consumers, 'consumer')}."


def group_lines(group: NodeGroup) -> Iterator[str]:
    """What was found on these nodes."""
    names = ", ".join(group.nodes) + (", …" if group.count > len(group.nodes) else "")
    state = (
        "the pod fits" if group.fits
        else "devices fit" if group.verdict == "fits"
        else "devices do not fit" if group.requests  # the lines below say why
        else group.reason or "does not fit"
    )  # fmt: skip
    yield f"{counted(group.count, 'node')} ({names}): {state}."
    for obstacle in group.obstacles:
        yield f"  {obstacle_text(obstacle, group.count > 1)}"
    if not group.examined:
        yield "  not examined in detail"
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
        yield f"  no devices satisfy all requests together: {group.cause}"


def _request(request: DiagnosedRequest) -> Iterator[str]:
    tally = request.tally
    wanted = "all devices" if tally.all else counted(tally.wanted, "device")
    others = f", {tally.others} of other classes" if tally.others and not tally.offered else ""
    yield (
        f"  claim {tally.claim}, request {tally.request}: {wanted} of class {tally.class_name} requested, "
        f"the node has {tally.offered}{others}, {tally.left} left"
    )
    for loss in tally.losses:
        yield f"    {rule_text(loss.rule, loss.count)}"
        if loss.rule in ("selector", "error"):
            yield from _selector(tally)
        elif loss.rule == "taint":
            for taint in tally.taints:
                yield f"      {taint.count} × {taint_text(taint.key, taint.value, taint.effect)}"
        elif loss.rule == "capacity":
            for capacity in tally.capacities:
                asked, left = capacity.asked or "all", capacity.left or "none"
                yield f"      {capacity.name}: {asked} requested, at most {left} left of {capacity.most}"
        elif loss.rule == "counters":
            for counter in tally.counters:
                yield f"      {counter.counter_set}/{counter.counter}: {counter.asked} needed, {counter.left} left"
    for holder in request.holders:
        used = f", used by {', '.join(holder.pods) or 'no pod'}" if holder.claim != HIDDEN else ""
        yield f"      {listed('claim', (holder.claim,))} holds {holder.devices}{used}"
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
