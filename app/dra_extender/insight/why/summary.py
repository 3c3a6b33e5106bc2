"""Finds the binding rule of a diagnosis, and explains it in one sentence.

Promises: the sentence is about the nodes where the pod comes closest to fitting. It names claims, numbers and values,
but no node and no device. The sentence changes only when the reason changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocation.plan import Failure
from dra_extender.allocation.tally import ConstraintTally, RequestTally
from dra_extender.api.core import taint_text
from dra_extender.api.resource import MAX_CONSUMERS, ResourceClaim
from dra_extender.cel.clauses import brief
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.report import BindingRule, DiagnosedRequest, NodeGroup
from dra_extender.plurals import counted
from dra_extender.scheduling.claims import Unschedulable, full_reason
from dra_extender.scheduling.noderules import Obstacle
from dra_extender.scheduling.reader import ADMINISTRATOR, Reader

VALUES: Final = 4
HOLDERS: Final = 2
CLASSES: Final = 8


class Summary(NamedTuple):
    """`claim`: the claim (namespace/name) that is the cause; empty if no claim is."""

    rule: BindingRule
    text: str
    claim: str = ""


class Name(NamedTuple):
    """`entry`: the name that users know the claim by. `requests`: the number of its requests and alternatives."""

    entry: str
    requests: int


Names = Mapping[str, Name]
"""By namespace/name."""


# --- rules that do not depend on nodes --------------------------------------------------------------------------------


def of_pod(found: SimulatedPod) -> Summary | None:
    """The rule that keeps the pod from all nodes; None if no such rule applies."""
    rule = found.is_kept_out()
    if rule == "scheduling gate":
        names = ", ".join(gate.name for gate in found.pod.spec.scheduling_gates)
        return Summary("scheduling gate", f"the pod is not scheduled until its scheduling gate {names} is removed")
    if rule:
        served = ", ".join(sorted(found.view.config.scheduler_names))
        text = f"scheduler {found.scheduler} does not call dra-extender; these schedulers do: {served}"
        return Summary("scheduler", text)
    if isinstance(found.prefiltered, Unschedulable):
        return _missing_claim(found) or _unusable_claim(found) or Summary("claim", found.prefiltered.reason)
    if isinstance(found.prefiltered, Failure):
        return Summary("claim", found.prefiltered.error)
    if not found.view.cluster.nodes:
        return Summary("no nodes", "the cluster has no nodes")
    return None


def _missing_claim(found: SimulatedPod) -> Summary | None:
    created = {status.name for status in found.pod.status.resource_claim_statuses}
    for entry in found.pod.spec.resource_claims:
        template = entry.resource_claim_template_name
        if not entry.resource_claim_name and template and entry.name not in created:
            text = f"the claim for {entry.name} has not been created yet: check that template {template} exists"
            return Summary("claim not created", text)
        name = found.claim_names.get(entry.name)
        claim = found.claim(name) if name else None
        if name and claim is None:
            return Summary("claim missing", f"claim {found.pod.metadata.namespace}/{name} does not exist")
        if claim is not None and claim.metadata.deletion_timestamp:
            return Summary("claim leaving", f"claim {claim.metadata.key} is being deleted", claim.metadata.key)
    return None


def _unusable_claim(found: SimulatedPod) -> Summary | None:
    view = found.view
    for name in found.claim_names.values():
        claim = found.claim(name)
        if claim is None:
            continue
        key = claim.metadata.key
        if view.is_unreadable(claim):
            return Summary("claim unreadable", f"claim {key} cannot be read: correct or delete it", key)
        preempted = view.is_preempted(claim, found.pod)
        if view.in_flight(claim) or (preempted and claim.allocation is None):
            return Summary("claim in flight", f"claim {key} is being allocated", key)
        if preempted:
            text = f"claim {key} will be deallocated: its pods are preempted for another pod"
            return Summary("claim in flight", text, key)
        if claim.allocation is not None:
            if isinstance(found.prefiltered, Unschedulable) and found.prefiltered.reason == full_reason(claim):
                return Summary("claim full", f"claim {key} has {MAX_CONSUMERS} consumers, which is the maximum", key)
        elif (problem := _unusable_class(found, claim)) is not None:
            return problem
    return None


def _unusable_class(found: SimulatedPod, claim: ResourceClaim) -> Summary | None:
    classes, key = found.view.cluster.classes, claim.metadata.key
    for request in claim.spec.devices.requests:
        if request.first_available and not found.view.features.DRAPrioritizedList:
            text = f"claim {key}: firstAvailable requires the feature gate DRAPrioritizedList"
            return Summary("feature gate", text, key)
        exact = (request.exactly.device_class_name,) if request.exactly is not None else ()
        for name in (*exact, *(source.device_class_name for source in request.first_available)):
            if name not in classes:
                few = ", ".join(sorted(classes)[:CLASSES]) + (", …" if len(classes) > CLASSES else "")
                text = f"claim {key}: device class {name} does not exist (classes: {few or 'none'})"
                return Summary("class missing", text, key)
    return None


# --- nodes ------------------------------------------------------------------------------------------------------------


def closest(groups: Sequence[NodeGroup]) -> NodeGroup | None:
    """The group where the pod comes closest to fitting."""
    return min(groups, key=_distance, default=None)


def _distance(group: NodeGroup) -> tuple[bool, int, int, int, int]:
    devices = group.verdict != "fits"
    rules = {found.rule for found in group.obstacles}
    no_class = sum(item.rule == "class" for item in group.requests)
    short = max(sum(_short(item.tally) for item in group.requests), group.wanted - group.available)
    return not group.examined, no_class, devices + len(rules), short, -group.count


def _short(tally: RequestTally) -> int:
    """How many devices are missing. If all devices are requested and none is left, every offered device is missing."""
    wanted = tally.offered if tally.all and not tally.left else tally.wanted
    return max(wanted - tally.left, 0)


def of_nodes(groups: Sequence[NodeGroup], names: Names, reader: Reader = ADMINISTRATOR) -> Summary:
    """Why the pod fits no node."""
    group = closest(groups)
    if group is None:
        return Summary("no nodes", "the cluster has no nodes")
    if group.verdict == "fits" or not group.requests:
        if group.obstacles:
            return _obstacle(groups, group, reader)
        return Summary("claim" if group.verdict == "error" else "search", group.reason)
    found = _devices(groups, group, names, reader)
    if group.obstacles:
        other = ", ".join(dict.fromkeys(obstacle_text(obstacle, reader) for obstacle in group.obstacles))
        return found._replace(text=f"{found.text}; also {other}")
    return found


def obstacle_text(obstacle: Obstacle, reader: Reader = ADMINISTRATOR) -> str:
    """What keeps the pod from a node, for people."""
    match obstacle.rule:
        case "cordoned":
            return "the node is cordoned"
        case "node taint":
            return f"the node has the taint {obstacle.what}, which the pod does not tolerate"
        case "node selector":
            label = f"the label {obstacle.what} is {obstacle.has}" if obstacle.has else f"no label {obstacle.what}"
            return f"nodeSelector {obstacle.what}={obstacle.asked} ({label})"
        case "node affinity":
            return "the required node affinity does not match"
        case "host port":
            user = reader.listed("pod", filter(None, (obstacle.has,)))
            return f"host port {obstacle.what} is in use" + (f" by {user}" if user else "")
        case "pods":
            return f"the node has its maximum number of pods ({obstacle.has} free)"
        case "claim elsewhere":
            return f"claim {obstacle.what} is allocated for another node, or its allocation cannot be used"
        case "resource" if not obstacle.has:
            return f"neither the node nor a device class provides {obstacle.what}"
        case _:
            return f"{obstacle.what}: {obstacle.asked} requested, {obstacle.has or '0'} free"


def _obstacle(groups: Sequence[NodeGroup], group: NodeGroup, reader: Reader) -> Summary:
    """The summary for a group whose devices suffice, but whose nodes have obstacles."""
    first = group.obstacles[0]
    others = ", ".join(dict.fromkeys(obstacle_text(other, reader) for other in group.obstacles[1:]))
    text = "; ".join(filter(None, (obstacle_text(first, reader), others)))
    if group.requests:
        count = sum(item.count for item in groups if item.verdict == "fits")
        text = f"devices fit on {counted(count, 'node')}, but {text}"
    return Summary(first.rule, text, first.what if first.rule == "claim elsewhere" else "")


def _devices(groups: Sequence[NodeGroup], group: NodeGroup, names: Names, reader: Reader) -> Summary:
    if group.pools and not any(request.tally.offered for request in group.requests):
        return Summary("pools", group.pools[0].text(), group.requests[0].tally.claim)
    for request in group.requests:
        if request.rule:
            return _request(groups, request, names, reader)
    for constraint in group.constraints:
        if constraint.best < constraint.wanted:
            return _constraint(groups, constraint, names)
    claim, entries = group.requests[0].tally.claim, dict.fromkeys(_entry(names, item) for item in group.requests)
    together = f"the requests of claim {', '.join(entries)}" if len(entries) == 1 else f"claims {', '.join(entries)}"
    if group.wanted > group.available:
        text = f"{together} need {group.wanted} devices together, but a node has {group.available}"
        return Summary("together", text, claim)
    if any(request.tally.errors for request in group.requests):
        return _error(next(request for request in group.requests if request.tally.errors), names)
    return Summary("search", f"{together} cannot be satisfied together: {group.cause or group.reason}", claim)


def _entry(names: Names, item: DiagnosedRequest) -> str:
    claim = item.tally.claim
    return names[claim].entry if claim in names else claim


def label(tally: RequestTally, names: Names) -> str:
    """The name that users know the claim by. If the claim has several requests, the request follows."""
    name = names.get(tally.claim)
    if name is None:
        return "extended resources"
    return f"claim {name.entry}" + (f", request {tally.request}" if name.requests > 1 else "")


def _request(groups: Sequence[NodeGroup], request: DiagnosedRequest, names: Names, reader: Reader) -> Summary:
    tally = request.tally
    if request.rule == "error":
        return _error(request, names)
    if request.rule == "constraint":
        for group in groups:
            for constraint in group.constraints:
                if constraint.claim == tally.claim and tally.request in constraint.requests:
                    return _constraint(groups, constraint, names)
    same = [(group, item) for group in groups for item in group.requests if _is_same(item, tally)]
    texts: Mapping[str, Callable[[], str]] = {
        "offered": lambda: f"a node has at most {max(item.tally.offered for _, item in same)}",
        "selector": lambda: f"{_selected(tally)} satisfy {_clauses(same)}",
        "taint": lambda: f"{_lost(tally, 'taint')} {_taints(tally)}",
        "in use": lambda: f"{_lost(tally, 'in use')} in use{_held(request, reader)}",
        "capacity": lambda: _capacity(tally),
        "counters": lambda: _counters(tally),
        "node": lambda: f"{_lost(tally, 'node')} for other nodes",
    }
    wanted = "all devices" if tally.all else counted(tally.wanted, "device")
    text = f"{wanted} requested, {texts.get(request.rule, lambda: f'{tally.left} left')()}"
    if request.rule == "class":
        text = f"no node has a device of class {tally.class_name}"
    elif request.rule == "binding conditions":
        text = f"{_lost(tally, 'binding conditions')} with binding conditions, which are turned off"
    return Summary(request.rule, f"{label(tally, names)}: {text}", tally.claim)


def _is_same(item: DiagnosedRequest, tally: RequestTally) -> bool:
    return (item.tally.claim, item.tally.request) == (tally.claim, tally.request)


def _lost(tally: RequestTally, rule: str) -> str:
    count = next((loss.count for loss in tally.losses if loss.rule == rule), 0)
    return f"{count} of {tally.offered} {'is' if count == 1 else 'are'}"


def _selected(tally: RequestTally) -> str:
    left = tally.offered - next((loss.count for loss in tally.losses if loss.rule == "selector"), 0)
    return f"{left if left else 'none'} of {tally.offered}"


def _clauses(same: Sequence[tuple[NodeGroup, DiagnosedRequest]]) -> str:
    """The clause that excludes most devices, followed by the values that devices have."""
    excluded: Counter[tuple[str, str]] = Counter()
    values: dict[tuple[str, str], Counter[str]] = {}
    for group, item in same:
        for clause in item.tally.clauses:
            if clause.source == "request":
                key = clause.text, clause.reads
                excluded[key] += clause.excluded * group.count
                counts = values.setdefault(key, Counter())
                for value in clause.values:
                    counts[value.text] += value.count * group.count
    if not excluded:
        return "the selector"
    (text, reads), _ = excluded.most_common(1)[0]
    return brief(text) + (f" ({values_text(values[text, reads])})" if reads and values[text, reads] else "")


def values_text(counts: Counter[str]) -> str:
    """Such as "the values are A100 (8), H100 (16)"."""
    shown = ", ".join(f"{value or 'none'} ({count})" for value, count in counts.most_common(VALUES))
    more = ", …" if len(counts) > VALUES else ""
    return f"the {'value is' if len(counts) == 1 else 'values are'} {shown}{more}"


def _taints(tally: RequestTally) -> str:
    shown = ", ".join(taint_text(taint.key, taint.value, taint.effect) for taint in tally.taints[:HOLDERS])
    return f"tainted {shown}, which is not tolerated"


def _held(request: DiagnosedRequest, reader: Reader) -> str:
    seen = [holder for holder in request.holders if reader.sees(holder.claim)]
    users = [", ".join(holder.pods) or f"claim {holder.claim}" for holder in seen]
    others = reader.others("claim", len(request.holders) - len(seen))
    shown = ", ".join([*users[:HOLDERS], *["…"] * (len(users) > HOLDERS), *filter(None, (others,))])
    return f" (by {shown})" if shown else ""


def _capacity(tally: RequestTally) -> str:
    for capacity in tally.capacities:
        if not capacity.devices:
            return f"no device has capacity {capacity.name}"
        return f"each with {capacity.asked or 'all'} of {capacity.name}, but a device has at most {capacity.left} left"
    return f"{_lost(tally, 'capacity')} short of capacity"


def _counters(tally: RequestTally) -> str:
    for counter in tally.counters:
        name = f"counter {counter.counter_set}/{counter.counter}"
        return f"{_lost(tally, 'counters')} short: {name} has {counter.left} left, {counter.asked} needed"
    return f"{_lost(tally, 'counters')} short of counters"


def _error(request: DiagnosedRequest, names: Names) -> Summary:
    tally, found = request.tally, request.tally.errors[0]
    whose = f"class {tally.class_name}" if found.source == "class" else "the selector"
    return Summary("error", f"{label(tally, names)}: {whose} fails: {found.problem}", tally.claim)


def _constraint(groups: Sequence[NodeGroup], constraint: ConstraintTally, names: Names) -> Summary:
    place = constraint.claim, constraint.index
    best = max(item.best for group in groups for item in group.constraints if (item.claim, item.index) == place)
    name = names[constraint.claim].entry if constraint.claim in names else constraint.claim
    identifier = constraint.attribute.rpartition("/")[2]
    if not best:
        text = f"no remaining device has the attribute {constraint.attribute}"
        return Summary("constraint", f"claim {name}: {text}", constraint.claim)
    if constraint.kind == "matchAttribute":
        text = f"at most {counted(best, 'device')} of a node {'has' if best == 1 else 'share'} one {identifier}"
    else:
        text = f"the devices of a node have at most {counted(best, 'different value')} of {identifier}"
    return Summary("constraint", f"claim {name}: {text}, {constraint.wanted} requested", constraint.claim)
