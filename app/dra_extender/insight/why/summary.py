"""The rule that binds, in one sentence.

Promises: the sentence is about the nodes where the pod comes closest to fitting, and names claim, numbers and values,
never a node or a device. It is the same as long as the reason is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocation.plan import Failure
from dra_extender.allocation.tally import RequestTally
from dra_extender.api.core import taint_text
from dra_extender.api.resource import MAX_CONSUMERS, ResourceClaim
from dra_extender.cel.clauses import brief
from dra_extender.insight.why.report import BindingRule, Constraint, NodeGroup, Request
from dra_extender.insight.why.situation import Situation
from dra_extender.plurals import counted
from dra_extender.scheduling.claims import Unschedulable, created_names, full_reason
from dra_extender.scheduling.noderules import Obstacle

VALUES: Final = 4
HOLDERS: Final = 2
CLASSES: Final = 8


class Summary(NamedTuple):
    """`claim`: the one to blame (namespace/name), if there is one."""

    rule: BindingRule
    text: str
    claim: str = ""


class Name(NamedTuple):
    """How the pod calls a claim, and how many requests and alternatives that has."""

    entry: str
    requests: int


Names = Mapping[str, Name]
"""By namespace/name."""


# --- all nodes --------------------------------------------------------------------------------------------------------


def of_pod(situation: Situation) -> Summary | None:
    """Why the pod can run nowhere, whatever the nodes are; None when they decide."""
    pod = situation.pod
    gated = situation.is_gated()
    if gated == "scheduling gate":
        names = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return Summary("scheduling gate", f"the pod waits for its scheduling gate {names}: nothing is decided before")
    if gated:
        served = ", ".join(sorted(situation.view.config.scheduler_names))
        return Summary(
            "scheduler", f"scheduler {situation.scheduler} does not ask dra-extender; those that do: {served}"
        )
    prefiltered = situation.prefiltered
    if isinstance(prefiltered, Unschedulable):
        return _entries(situation) or _claims(situation) or Summary("claim", prefiltered.reason)
    if isinstance(prefiltered, Failure):
        return Summary("claim", prefiltered.error)
    if not situation.view.cluster.nodes:
        return Summary("no nodes", "there are no nodes")
    return None


def _entries(situation: Situation) -> Summary | None:
    """Claims that are not there, or are not the pod's."""
    pod = situation.pod
    namespace = pod.metadata.namespace
    created = created_names(pod)
    for entry in pod.spec.resource_claims:
        name, template = entry.resource_claim_name, entry.resource_claim_template_name
        if not name and template and entry.name not in created:
            text = f"the claim for {entry.name} is not created yet: see whether template {template} exists"
            return Summary("claim not created", text)
        name = name or created.get(entry.name)
        if not name:
            continue
        claim = situation.claim(namespace, name)
        if claim is None:
            return Summary("claim missing", f"claim {namespace}/{name} does not exist")
        if claim.metadata.deletion_timestamp:
            return Summary("claim leaving", f"claim {claim.metadata.key} is being deleted", claim.metadata.key)
    return None


def _claims(situation: Situation) -> Summary | None:
    """Claims that nothing can be decided for."""
    view, pod = situation.view, situation.pod
    created = created_names(pod)
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or created.get(entry.name)
        claim = situation.claim(pod.metadata.namespace, name) if name else None
        if claim is None:
            continue
        key = claim.metadata.key
        if view.is_unreadable(claim):
            return Summary("claim unreadable", f"claim {key} cannot be read: correct or delete it", key)
        if view.in_flight(claim):
            return Summary("claim in flight", f"claim {key} is being allocated", key)
        if view.is_promised(claim, pod):
            text = f"claim {key} will be deallocated: its pods are preempted for another pod"
            return Summary("claim in flight", text, key)
        if claim.allocation is not None:
            if isinstance(situation.prefiltered, Unschedulable) and situation.prefiltered.reason == full_reason(claim):
                return Summary("claim full", f"claim {key} has {MAX_CONSUMERS} consumers, and no claim has more", key)
            continue
        found = _class(situation, claim)
        if found is not None:
            return found
    return None


def _class(situation: Situation, claim: ResourceClaim) -> Summary | None:
    classes = situation.view.cluster.classes
    key = claim.metadata.key
    for request in claim.spec.devices.requests:
        if request.first_available and not situation.view.features.DRAPrioritizedList:
            text = f"claim {key}: firstAvailable needs the feature gate DRAPrioritizedList"
            return Summary("feature gate", text, key)
        exact = (request.exactly.device_class_name,) if request.exactly is not None else ()
        for name in (*exact, *(source.device_class_name for source in request.first_available)):
            if name not in classes:
                few = ", ".join(sorted(classes)[:CLASSES]) + (", …" if len(classes) > CLASSES else "")
                known = few or "there are none"
                text = f"claim {key}: device class {name} does not exist (classes: {known})"
                return Summary("class missing", text, key)
    return None


# --- nodes ------------------------------------------------------------------------------------------------------------


def closest(groups: Sequence[NodeGroup]) -> NodeGroup | None:
    """Where the pod comes closest to fitting."""
    return min(groups, key=_distance, default=None)


def _distance(group: NodeGroup) -> tuple[bool, int, int, int, int]:
    devices = group.verdict != "fits"
    rules = {found.rule for found in group.obstacles}
    strange = sum(item.rule == "class" for item in group.requests)
    short = max(sum(_short(item.tally) for item in group.requests), group.wanted - group.available)
    return not group.examined, strange, devices + len(rules), short, -group.count


def _short(tally: RequestTally) -> int:
    """How many devices are missing. A node of whose devices none is selected lacks them all, if all are asked for."""
    wanted = tally.offered if tally.all and not tally.left else tally.wanted
    return max(wanted - tally.left, 0)


def of_nodes(groups: Sequence[NodeGroup], entries: Names) -> Summary:
    """Why no node can have the pod. `entries`: how the pod calls its claims, by namespace/name."""
    group = closest(groups)
    if group is None:
        return Summary("no nodes", "there are no nodes")
    if group.verdict == "fits" or not group.requests:
        if group.obstacles:
            return _obstacle(groups, group)
        return Summary("claim" if group.verdict == "error" else "search", group.reason)
    found = _devices(groups, group, entries)
    if group.obstacles:
        other = ", ".join(dict.fromkeys(words(obstacle) for obstacle in group.obstacles))
        return found._replace(text=f"{found.text}; besides {other}")
    return found


def words(obstacle: Obstacle) -> str:
    """For people: what is wrong with a node."""
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
            return f"host port {obstacle.what} is taken" + (f" by pod {obstacle.has}" if obstacle.has else "")
        case "pods":
            return f"no room for another pod ({obstacle.has})"
        case "claim elsewhere":
            return f"claim {obstacle.what} is allocated for another node, or not usable"
        case "resource" if not obstacle.has:
            return f"nothing offers {obstacle.what}: neither the node nor a device class"
        case _:
            return f"{obstacle.what}: {obstacle.asked} asked for, {obstacle.has or '0'} free"


def _obstacle(groups: Sequence[NodeGroup], group: NodeGroup) -> Summary:
    """Devices fit there, or none are needed, and something else is in the way."""
    first = group.obstacles[0]
    rest = ", ".join(dict.fromkeys(words(obstacle) for obstacle in group.obstacles[1:]))
    text = words(first) + (f"; {rest}" if rest else "")
    if group.requests:
        count = sum(item.count for item in groups if item.verdict == "fits")
        text = f"devices fit on {counted(count, 'node')}, but {text}"
    return Summary(first.rule, text, first.what if first.rule == "claim elsewhere" else "")


def _devices(groups: Sequence[NodeGroup], group: NodeGroup, entries: Names) -> Summary:
    if group.pools and not any(request.tally.offered for request in group.requests):
        return Summary("pools", group.pools[0].text(), group.requests[0].tally.claim)
    for request in group.requests:
        if request.rule:
            return _request(groups, request, entries)
    for constraint in group.constraints:
        if constraint.best < constraint.wanted:
            return _constraint(groups, constraint, entries)
    claim = group.requests[0].tally.claim
    if group.wanted > group.available:
        text = f"{_together(group, entries)} ask for {group.wanted} devices together, {group.available} are there"
        return Summary("together", text, claim)
    if any(request.tally.errors for request in group.requests):
        return _error(next(request for request in group.requests if request.tally.errors), entries)
    cause = group.cause or group.reason
    return Summary("search", f"{_together(group, entries)} cannot be met together: {cause}", claim)


def _together(group: NodeGroup, entries: Names) -> str:
    names = dict.fromkeys(_entry(entries, item.tally.claim) for item in group.requests)
    if len(names) == 1:
        return f"the requests of claim {next(iter(names))}"
    return f"claims {', '.join(names)}"


def label(tally: RequestTally, entries: Names) -> str:
    """The claim as its pod calls it, with the request where that says something."""
    name = entries.get(tally.claim)
    if name is None:
        return "extended resources"
    return f"claim {name.entry}" + (f", request {tally.request}" if name.requests > 1 else "")


def _entry(entries: Names, claim: str) -> str:
    return entries[claim].entry if claim in entries else claim


def _request(groups: Sequence[NodeGroup], request: Request, entries: Names) -> Summary:
    tally = request.tally
    same = [item for group in groups for item in group.requests if _is_same(item, tally)]
    weights = [group.count for group in groups for item in group.requests if _is_same(item, tally)]
    told: Mapping[str, Callable[[], str]] = {
        "class": lambda: f"no node has a device of class {tally.class_name}",
        "offered": lambda: f"{_wanted(tally)}, a node has at most {max(item.tally.offered for item in same)}",
        "selector": lambda: f"{_wanted(tally)}, {_selected(tally)} satisfy {_clauses(same, weights)}",
        "taint": lambda: f"{_wanted(tally)}, {_lost(tally, 'taint')} {_taints(tally)}",
        "in use": lambda: f"{_wanted(tally)}, {_lost(tally, 'in use')} in use{_held(request)}",
        "capacity": lambda: f"{_wanted(tally)}, {_capacity(same, tally)}",
        "counters": lambda: f"{_wanted(tally)}, {_counters(tally)}",
        "constraint": lambda: "",
        "node": lambda: f"{_wanted(tally)}, {_lost(tally, 'node')} for other nodes",
        "binding conditions": lambda: f"{_lost(tally, 'binding conditions')} with binding conditions, which are off",
    }
    if request.rule == "error":
        return _error(request, entries)
    if request.rule == "constraint":
        for group in groups:
            for constraint in group.constraints:
                if constraint.claim == tally.claim and tally.request in constraint.requests:
                    return _constraint(groups, constraint, entries)
    text = told.get(request.rule, lambda: f"{_wanted(tally)}, {tally.left} left")()
    return Summary(request.rule, f"{label(tally, entries)}: {text}", tally.claim)


def _is_same(item: Request, tally: RequestTally) -> bool:
    return (item.tally.claim, item.tally.request) == (tally.claim, tally.request)


def _wanted(tally: RequestTally) -> str:
    return "all devices asked for" if tally.all else f"{counted(tally.wanted, 'device')} asked for"


def _lost(tally: RequestTally, rule: str) -> str:
    count = next((loss.count for loss in tally.losses if loss.rule == rule), 0)
    return f"{count} of {tally.offered} {'is' if count == 1 else 'are'}"


def _selected(tally: RequestTally) -> str:
    lost = next((loss.count for loss in tally.losses if loss.rule == "selector"), 0)
    left = tally.offered - lost
    return f"{left if left else 'none'} of {tally.offered}"


def _clauses(same: Sequence[Request], weights: Sequence[int]) -> str:
    """The clause that excludes most, with the values there are."""
    excluded: Counter[tuple[str, str]] = Counter()
    values: dict[tuple[str, str], Counter[str]] = {}
    for item, weight in zip(same, weights, strict=True):
        for clause in item.tally.clauses:
            if clause.source == "request":
                key = clause.text, clause.reads
                excluded[key] += clause.excluded * weight
                counts = values.setdefault(key, Counter())
                for value in clause.values:
                    counts[value.text] += value.count * weight
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


def _held(request: Request) -> str:
    users = [", ".join(holder.pods) or f"claim {holder.claim}" for holder in request.holders]
    shown = ", ".join(users[:HOLDERS]) + (", …" if len(users) > HOLDERS else "")
    return f" (by {shown})" if shown else ""


def _capacity(same: Sequence[Request], tally: RequestTally) -> str:
    for capacity in tally.capacities:
        if not capacity.devices:
            return f"no device has capacity {capacity.name}"
        return f"{capacity.asked or 'all'} of {capacity.name} each: a device has at most {capacity.left} left"
    return f"{_lost(tally, 'capacity')} short of capacity"


def _counters(tally: RequestTally) -> str:
    for counter in tally.counters:
        name = f"counter {counter.counter_set}/{counter.counter}"
        return f"{_lost(tally, 'counters')} short: {name} has {counter.left} left, {counter.asked} needed"
    return f"{_lost(tally, 'counters')} short of counters"


def _error(request: Request, entries: Names) -> Summary:
    tally = request.tally
    found = tally.errors[0]
    whose = f"class {tally.class_name}" if found.source == "class" else "the selector"
    text = f"{label(tally, entries)}: {whose} fails: {found.problem}"
    return Summary("error", text, tally.claim)


def _constraint(groups: Sequence[NodeGroup], constraint: Constraint, entries: Names) -> Summary:
    place = constraint.claim, constraint.index
    best = max(item.best for group in groups for item in group.constraints if (item.claim, item.index) == place)
    name = _entry(entries, constraint.claim)
    identifier = constraint.attribute.rpartition("/")[2]
    if not best:
        text = f"no device that is left has the attribute {constraint.attribute}"
        return Summary("constraint", f"claim {name}: {text}", constraint.claim)
    if constraint.kind == "matchAttribute":
        text = f"at most {counted(best, 'device')} of a node {'has' if best == 1 else 'share'} one {identifier}"
    else:
        text = f"the devices of a node have at most {counted(best, 'different value')} of {identifier}"
    return Summary("constraint", f"claim {name}: {text}, {constraint.wanted} are asked for", constraint.claim)
