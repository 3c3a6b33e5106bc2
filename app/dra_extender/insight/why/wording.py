"""The text of each statement of a diagnosis.

Promises: a text asserts what its statement does and nothing else. It names the nodes that it is about. It counts the
objects whose names are hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dra_extender.allocation.plan import rule_text
from dra_extender.allocation.tally import CapacityTally, CounterTally, RuleCount
from dra_extender.api.core import taint_text
from dra_extender.api.quantity import Quantity
from dra_extender.cel.trial import brief
from dra_extender.insight.why.statements import (
    MISMATCH,
    ClassEmpty,
    ConstraintUnmet,
    DevicesUnavailable,
    GangUnplaced,
    HoldingClaim,
    MatchingNodes,
    NodesExcluded,
    NoNodeHasAll,
    NothingMatches,
    PodRefused,
    Scope,
    SelectorFails,
    Statement,
    TogetherTooFew,
    TooFew,
    Unsatisfiable,
)
from dra_extender.plaintext import counted
from dra_extender.scheduling.noderules import Obstacle
from dra_extender.scheduling.reader import HIDDEN, listed, others

HOLDERS: Final = 2
"""Holders and taints that are named."""
NODES: Final = 3
"""Nodes that are named."""
OTHERS: Final = "others are in use"
SMALLER: Final = {"Ei": "Pi", "Pi": "Ti", "Ti": "Gi", "Gi": "Mi", "Mi": "Ki"}
"""By binary unit: the next smaller one."""
EXPLAINED: Final = {"no such overload": "no such overload: an operator or function gets a value of a wrong type"}
"""Problems of selectors in more words than those of the language."""
EVERY_NODE: Final = "every node"
USE: Final = frozenset(("in use", "capacity", "counters", "compatibility groups"))
"""Rules that exclude devices because of claims that have devices."""


def text_of(statements: Iterable[Statement]) -> str:
    return "; ".join(dict.fromkeys(map(_text, statements)))


def _text(statement: Statement) -> str:
    match statement:
        case PodRefused():
            return statement.text
        case ClassEmpty(requested):
            text = f"{requested.label}: no node has a device of class {requested.class_name}"
            return "; ".join([text, *statement.pools[:1]])
        case NothingMatches(requested):
            values = _values(statement.values, statement.more)
            return (
                f"{requested.label}: no device of class {requested.class_name} satisfies "
                f"{_clauses(statement.clauses)}{values and f' ({values})'}"
            )
        case TooFew(requested, _, most):
            match = f" that satisfy {_clauses(statement.clauses)}" if statement.clauses else ""
            wanted = f"{counted(requested.wanted, 'device')} of class {requested.class_name}{match}"
            where = f" (node {statement.node} has {most})" if statement.node else ""
            return f"{requested.label}: {wanted} requested, no node has more than {most}{where}"
        case NoNodeHasAll(places):
            requests = "both requests" if len(places) == 2 else "all requests"
            return f"no node has the devices of {requests}: {'; '.join(map(_place, places))}"
        case DevicesUnavailable():
            return _unavailable(statement)
        case ConstraintUnmet():
            return _constraint(statement)
        case TogetherTooFew():
            used = _used_by(OTHERS, statement.scope, statement.holders)
            return (
                f"{statement.label} need {counted(statement.wanted, 'device')} together, "
                f"{nodes_text(statement.scope)} has {statement.available} that can be allocated{used and f' ({used})'}"
            )
        case Unsatisfiable(label=""):
            return f"{nodes_text(statement.scope)}: {statement.cause}"
        case Unsatisfiable():
            nodes = nodes_text(statement.scope, negated=True)
            text = f"{statement.label} cannot be satisfied on {nodes}: {statement.cause}"
            used = _used_by("used", statement.scope, statement.holders)
            others = _used_by(OTHERS, statement.scope, statement.others)
            notes = "; ".join(filter(None, (", ".join(statement.constraints), used, others)))
            return text + (f" ({notes})" if notes else "")
        case SelectorFails(requested):
            whose = f"the selector of class {requested.class_name}" if statement.source == "class" else "its selector"
            problem = EXPLAINED.get(statement.problem, statement.problem)
            problem += f" in {brief(statement.clause)}" if statement.clause and problem != statement.problem else ""
            return f"{requested.label}: {whose} ends with an error on device {statement.device}: {problem}"
        case NodesExcluded():
            several = statement.scope.count > 1
            text = ", ".join(dict.fromkeys(obstacle_text(each, several) for each in statement.obstacles))
            nodes = nodes_text(statement.scope)
            if len(statement.obstacles) == 1 and (apart := _apart(statement.scope, statement.obstacles[0])):
                return apart
            missing = [each.what for each in statement.obstacles if each.rule == "resource" and not each.has]
            if nodes == EVERY_NODE and len(missing) == len(statement.obstacles) and "/" in missing[0]:
                return f"no node and no device class provides {' and '.join(missing)}"
            whose = f" for {' and '.join(statement.labels)}" if statement.labels else ""
            return f"devices{whose} fit on {nodes}, but {text}" if statement.devices else f"{nodes}: {text}"
        case GangUnplaced():
            return _gang(statement)


def _gang(statement: GangUnplaced) -> str:
    placed, labels = statement.placed, " and ".join(statement.labels)
    have = f"{counted(placed, 'pod')} {'has a node' if placed == 1 else 'have nodes'}, " if placed else ""
    pods = f"{len(statement.places)} of {statement.needed} {'others' if placed else 'pods'}"
    where = f"on nodes with one value of label {labels}" if labels else "together"
    if statement.attributes:
        where += f" with one value of device attribute {' and '.join(statement.attributes)}"
    rest = f"; not pod {statement.pod.partition('/')[2]}: {text_of(statement.reasons)}" if statement.reasons else ""
    return f"{statement.gang}: {have}{pods} fit {where}{rest}"


def nodes_text(scope: Scope, *, negated: bool = False) -> str:
    """Such as "node n1", "each of 3 nodes (n1, n2, n3)" or "every node"; after "not", "any" for "each" and "every"."""
    if scope.count == 1:
        claims = [each.partition("/")[2] for each in scope.claims]
        allocated = f"{listed('claim', claims)} {'is' if len(claims) == 1 else 'are'} allocated"
        return f"node {scope.nodes[0]}" + (f" (where {allocated})" if scope.claims else "")
    if scope.count == scope.compared:
        return "any node" if negated else EVERY_NODE
    names = ", ".join(scope.nodes[:NODES]) + (", …" if scope.count > NODES else "")
    return f"{'any' if negated else 'each'} of {scope.count} nodes ({names})"


def _apart(scope: Scope, obstacle: Obstacle) -> str:
    """The pod's claims that are allocated on different nodes; empty if another rule excludes the node."""
    if obstacle.rule != "claim elsewhere" or not obstacle.asked or not scope.claims:
        return ""
    places = sorted([(obstacle.what, obstacle.asked), *((claim, scope.nodes[0]) for claim in scope.claims)])
    told = [f"claim {claim.partition('/')[2]} is allocated on node {node}" for claim, node in places]
    return f"{', '.join(told)}, and no node can use {'both' if len(told) == 2 else 'all of them'}"


def _clauses(clauses: Sequence[str]) -> str:
    return " && ".join(brief(clause) for clause in clauses) or "the selectors"


def _values(values: Sequence[str], more: bool) -> str:
    if not any(values):
        return "no device has it" if values and not more else ""
    shown = ", ".join(value or "none" for value in values) + (", …" if more else "")
    return f"the {'value is' if len(values) == 1 and not more else 'values are'} {shown}"


def _place(place: MatchingNodes) -> str:
    others = f" and {counted(place.count - 1, 'other node')}" if place.count > 1 else ""
    requested = place.requested
    wanted = "the devices" if requested.all else counted(requested.wanted, "device")
    return f"{requested.label} ({wanted} of class {requested.class_name}) matches devices of {place.node}{others}"


def _unavailable(statement: DevicesUnavailable) -> str:
    requested, scope, matching = statement.requested, statement.scope, statement.matching
    matched = requested.selectors and not any(loss.rule in MISMATCH for loss in statement.losses)
    if requested.all:
        every = "all matching devices" if matched else f"all devices of class {requested.class_name}"
        wanted = f"{every} requested, {nodes_text(scope)} has {matching}"
    else:
        found = counted(matching, "matching device") if matched else f"{matching} of class {requested.class_name}"
        wanted = f"{counted(requested.wanted, 'device')} requested, {nodes_text(scope)} has {found}"
    used = _used(statement.holders) if USE & {loss.rule for loss in statement.losses} else ""
    where = f"on {scope.nodes[0]} " if scope.count > 1 else ""
    parts = [_loss(statement, loss) for loss in statement.losses]
    for index, loss in enumerate(statement.losses):
        if used and loss.rule in USE:
            lead = {"in use": "", "capacity": "the rest is used "}.get(loss.rule, "used ")
            if loss.rule == "counters" and _have_several(statement.counters):
                lead = ""
            parts[index] += f" ({lead}{where}by {used})"
            break
    if statement.left:
        parts.append(f"{statement.left} {'is' if statement.left == 1 else 'are'} free")
    lead = ", of which " if scope.count > 1 else ": "
    return f"{requested.label}: {wanted}{lead if parts else ''}{', '.join(parts)}"


def _is_less(amount: str, other: str) -> bool:
    return Quantity.parse(amount) < Quantity.parse(other)


def _is_short(tally: CapacityTally) -> bool:
    return not tally.asked or not tally.devices or any(_is_less(amount, tally.asked) for amount in tally.amounts)


def _loss(statement: DevicesUnavailable, loss: RuleCount) -> str:
    one = loss.count == 1
    count = "all" if loss.count == statement.matching and not one else loss.count
    if loss.rule == "taint" and statement.taints:
        taints = ", ".join(taint_text(each.key, each.value, each.effect) for each in statement.taints[:HOLDERS])
        several = "taint" if len(statement.taints) == 1 else "taints"
        return f"{count} {'has' if one else 'have'} the {several} {taints}, which the request does not tolerate"
    if loss.rule == "capacity" and statement.capacities:
        if not any(map(_is_short, statement.capacities)):
            return f"{loss.count} cannot provide the requested capacity, which the request policy rounds up or limits"
        capacity = next(filter(_is_short, statement.capacities))
        if not capacity.devices:
            lead = "none has" if count == "all" else f"{count} {'has' if one else 'have'} no"
            return f"{lead} capacity {capacity.name}"
        lacking = (each for each in capacity.amounts if not capacity.asked or _is_less(each, capacity.asked))
        most = next(lacking, capacity.left or "0")
        free = "" if most == capacity.most else " free"
        has = f"{count} {'has' if one else 'have'} at most {most} of {capacity.name}{free}"
        return f"{has}, {f'less than the requested {capacity.asked}' if capacity.asked else 'and all is requested'}"
    if loss.rule == "counters" and statement.counters:
        counter = statement.counters[0]
        name = f"{counter.counter_set}/{counter.counter}"
        if _have_several(statement.counters):
            verb = "shares" if one or count == "all" else "share"
            if statement.holders:
                return f"{'each' if count == 'all' else count} {verb} counters with devices in use"
            lead = f"{count} {'needs' if one else 'need'} more of a counter than is left"
            return f"{lead}, such as {counter.asked} of {name}"
        return f"{count} {'needs' if one else 'need'} {counter.asked} of counter {name}, which has {counter.left} left"
    if loss.rule == "constraint" and statement.constraints:
        lead = "none satisfies" if count == "all" else f"{count} {'does' if one else 'do'} not satisfy"
        return f"{lead} {' and '.join(statement.constraints)}"
    return rule_text(loss.rule, loss.count)


def _have_several(counters: Sequence[CounterTally]) -> bool:
    return len({each.counter_set for each in counters}) > 1


def _used(holders: Sequence[HoldingClaim]) -> str:
    users = [", ".join(each.pods) or f"claim {each.claim}" for each in holders if each.claim != HIDDEN]
    hidden = others("claim", len(holders) - len(users))
    return ", ".join([*users[:HOLDERS], *["…"] * (len(users) > HOLDERS), *filter(None, (hidden,))])


def _constraint(statement: ConstraintUnmet) -> str:
    identifier, best = statement.attribute.rpartition("/")[2], statement.best
    nodes = nodes_text(statement.scope)
    if not best:
        return (
            f"{statement.label}: {statement.kind} {statement.attribute}: no free device of {nodes} has this attribute"
        )
    if statement.kind == "matchAttribute":
        wanted = f"{statement.wanted} devices with the same {identifier}"
        text = f"{wanted} requested, {nodes} has at most {best} such {'device' if best == 1 else 'devices'} free"
    else:
        text = (
            f"{statement.wanted} devices with different values of {identifier} requested, the free devices of {nodes} "
            f"have only {counted(best, 'different value')}"
        )
    missing = f"{counted(statement.missing, 'free device')} without it" if statement.missing else ""
    notes = ", ".join(filter(None, (missing, _used_by(OTHERS, statement.scope, statement.holders))))
    return f"{statement.label}: {text}{notes and f' ({notes})'}"


def _used_by(text: str, scope: Scope, holders: Sequence[HoldingClaim]) -> str:
    """Such as "used on n1 by default/p"; empty without holders."""
    used = _used(holders)
    return used and f"{text}{f' on {scope.nodes[0]}' if scope.count > 1 else ''} by {used}"


def obstacle_text(obstacle: Obstacle, several: bool = False) -> str:
    """What keeps the pod from a node, or from each of several nodes, for people."""
    what, asked = obstacle.what, obstacle.asked
    node, are, have, do = ("the nodes", "are", "have", "do") if several else ("the node", "is", "has", "does")
    most = "at most " if several else ""
    match obstacle.rule:
        case "cordoned":
            return f"{node} {are} cordoned"
        case "node taint":
            return f"{node} {have} the taint {what}, which the pod does not tolerate"
        case "node selector":
            label = f"{what}={obstacle.has}" if obstacle.has else f"no label {what}"
            return f"{node} {do} not match nodeSelector {what}={asked}" + ("" if several else f" (it has {label})")
        case "node affinity":
            return f"{node} {do} not match the required node affinity{asked and f' ({asked})'}"
        case "host port":
            user = listed("pod", filter(None, (obstacle.has,)))
            return f"host port {what} is in use" + (f" by {user}" if user else "")
        case "pods":
            return f"{node} {have} the maximum number of pods ({obstacle.has} free)"
        case "claim elsewhere":
            claim = f"claim {what.partition('/')[2]} is allocated"
            if asked:
                return f"{claim} on node {asked}, and only pods on that node can use it"
            return f"{claim} for another node, or its allocation cannot be used"
        case "node allocatable":
            needs = f"the pod and its devices need {asked}, {most}{in_unit(obstacle.has, asked)} free"
            return f"{what}: {needs}" if asked else what
        case "resource" if not obstacle.has and "/" in what:
            return f"neither {node} nor a device class provides {what}"
        case _:
            free = "none" if obstacle.has in ("", "0") else f"{most}{in_unit(obstacle.has, asked)}"
            return f"{what}: {asked} requested, {free} free"


def in_unit(amount: str, like: str) -> str:
    """The amount in the unit of another one, rounded down to hundredths: "32873652Ki" like "64Gi" is "31.35Gi". Less
    than one binary unit is in the next smaller unit: "100Gi" like "1Ti" stays "100Gi".
    """
    unit = like.lstrip("0123456789.")
    try:
        nano, one = Quantity.parse(amount).nano, Quantity.parse(f"1{unit}").nano
    except ValueError:  # several amounts, such as "0 of 110"
        return amount
    if 0 < nano < one and unit in SMALLER:
        return in_unit(amount, SMALLER[unit])
    return f"{nano * 100 // one / 100}".removesuffix(".0") + unit
