"""Evaluates the statements of a diagnosis on the raw objects, without the code that found them.

`untrue` lists the statements of an answer that do not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.statements import (
    ClassEmpty,
    ConstraintUnmet,
    DevicesUnavailable,
    GangUnplaced,
    NodesExcluded,
    NoNodeHasAll,
    NothingMatches,
    PodRefused,
    Requested,
    Scope,
    SelectorFails,
    Statement,
    TogetherTooFew,
    TooFew,
    Unsatisfiable,
)
from tests.support.diagnosis.combinations import Combinations, unsatisfied
from tests.support.diagnosis.facts import ATTRIBUTE, ID, Device, Facts, Json, holds, id_of
from tests.support.diagnosis.gangscenes import gang_problems, placed
from tests.support.diagnosis.refusals import refused
from tests.support.diagnosis.scene import Scene


def untrue(scene: Scene, pod: str, answer: Diagnosis) -> list[str]:
    """What is wrong with the statements of the answer, and with the nodes that the pod fits."""
    facts = Facts(scene, pod)
    found = [f"no devices on {node}" for node in answer.examples if not Combinations(facts, node).exist()]
    every = [(statement, problem) for statement in answer.statements for problem in _problems(facts, statement)]
    for each in answer.statements:
        if isinstance(each, GangUnplaced):
            beside = Facts(placed(scene, each), each.pod.partition("/")[2]) if each.pod else facts
            every += [(each, problem) for problem in gang_problems(scene, each)]
            every += [(reason, problem) for reason in each.reasons for problem in _problems(beside, reason)]
    return found + [f"{problem}: {statement}" for statement, problem in every]


def _problems(facts: Facts, statement: Statement) -> Iterator[str]:
    compared = getattr(statement, "compared", None)
    if compared is not None and compared != len(facts.nodes):
        yield f"{len(facts.nodes)} nodes are there"
    if isinstance(scope := getattr(statement, "scope", None), Scope):
        if not set(scope.nodes) <= set(facts.nodes) or not len(scope.nodes) <= scope.count <= len(facts.nodes):
            yield "the scope names other nodes"
        if scope.compared != len(facts.nodes):
            yield "not all nodes were compared"
    match statement:
        case ClassEmpty(requested):
            if any(facts.of_class(facts.wanted(requested), node) for node in facts.nodes):
                yield "there is a device of the class"
        case NothingMatches():
            yield from _nothing_matches(facts, statement)
        case TooFew(requested, _, most):
            counts = {node: len(facts.matching(facts.wanted(requested), node)) for node in facts.nodes}
            if max(counts.values()) != most or most >= requested.wanted:
                yield f"nodes have {counts}"
            if statement.node and counts[statement.node] != most:
                yield f"node {statement.node} does not have {most}"
        case NoNodeHasAll():
            yield from _no_node_has_all(facts, statement)
        case DevicesUnavailable():
            yield from _unavailable(facts, statement)
        case ConstraintUnmet():
            yield from _constraint(facts, statement)
        case TogetherTooFew():
            yield from _together(facts, statement)
        case NodesExcluded():
            yield from _excluded(facts, statement)
        case PodRefused():
            yield from refused(facts, statement)
        case Unsatisfiable():
            yield from unsatisfied(facts, statement)
        case SelectorFails(requested):
            devices = facts.failing(facts.wanted(requested))
            if statement.device not in {"/".join(device.id) for device in devices}:
                yield f"selectors fail for {devices}"


def _nothing_matches(facts: Facts, statement: NothingMatches) -> Iterator[str]:
    devices = [d for node in facts.nodes for d in facts.of_class(facts.wanted(statement.requested), node)]
    if not devices:
        yield "no device is of the class"
    if any(all(holds(clause, device) for clause in statement.clauses) for device in devices):
        yield "a device satisfies the clauses"
    if statement.values:
        (clause,) = statement.clauses
        match = ATTRIBUTE.match(clause)
        actual = {device.attribute(match[2]) if match else device.id[0] for device in devices}
        if not set(statement.values) <= actual or (not statement.more and set(statement.values) != actual):
            yield f"the values are {actual}"


def _no_node_has_all(facts: Facts, statement: NoNodeHasAll) -> Iterator[str]:
    for place in statement.places:
        nodes = [node for node in facts.nodes if _any_alternative(facts, place.requested, node)]
        if place.node not in nodes or not facts.enough(place.requested, place.node):
            yield f"{place.node} has too few"
        if len(nodes) != place.count:
            yield f"{nodes} have enough"
    if any(all(_any_alternative(facts, place.requested, node) for place in statement.places) for node in facts.nodes):
        yield "a node has all"


def _any_alternative(facts: Facts, requested: Requested, node: str) -> bool:
    """Enough devices match the request or one of its alternatives."""
    name = requested.request.partition("/")[0]
    if requested.claim == "":
        return facts.enough(requested, node)
    for claim, request in facts.requests():
        if (f"default/{claim}", request["name"]) == (requested.claim, name):
            wants = request.get("firstAvailable", [request.get("exactly")])
            return any(len(facts.matching(want, node)) >= _count(want) for want in wants)
    return facts.enough(requested, node)


def _count(wanted: Json) -> int:
    return 1 if wanted.get("allocationMode") == "All" else int(wanted.get("count", 1))


def _unavailable(facts: Facts, statement: DevicesUnavailable) -> Iterator[str]:
    wanted = facts.wanted(statement.requested)
    mismatch = {"selector", "class", "node", "binding conditions", "error"} & {loss.rule for loss in statement.losses}
    for node in statement.scope.nodes:
        found = (facts.of_class if mismatch else facts.matching)(wanted, node)
        if len(found) != statement.matching:
            yield f"{len(found)} devices match on {node}"
        rules = [facts.lost(wanted, device) for device in found]
        for loss in statement.losses:
            known = loss.rule in ("in use", "taint", "capacity", "counters")
            if known and sum(loss.rule in each for each in rules) < loss.count:
                yield f"fewer devices of {node} are excluded by {loss.rule}"
        if sum(loss.count for loss in statement.losses) + statement.left != statement.matching:
            yield "the numbers do not add up"
        constraints = any(loss.rule == "constraint" for loss in statement.losses)
        if not mismatch and not constraints and sum(not each for each in rules) != statement.left:
            yield f"{sum(not each for each in rules)} devices of {node} are free"
        if statement.left >= (statement.matching or 1 if statement.requested.all else statement.requested.wanted):
            yield "enough devices are left"
    yield from _holders(facts, statement)


def _holders(facts: Facts, statement: DevicesUnavailable | TogetherTooFew) -> Iterator[str]:
    first = {device.id for device in facts.devices(statement.scope.nodes[0])}
    users = {f"default/{claim}" for claim, result in facts.results if id_of(result) in first}
    if not {holder.claim for holder in statement.holders} <= users:
        yield f"the devices are used by {users}"


def _constraint(facts: Facts, statement: ConstraintUnmet) -> Iterator[str]:
    for node in statement.scope.nodes:
        devices: dict[ID, Device] = {}
        for claim, request in facts.requests():
            if f"default/{claim}" == statement.claim:
                for want in request.get("firstAvailable", [request.get("exactly")]):
                    devices |= {device.id: device for device in facts.free(want, node)}
        values = Counter(device.attribute(statement.attribute) for device in devices.values())
        missing = values.pop(None, 0)
        if missing != statement.missing:
            yield f"on {node} {missing} free devices have no {statement.attribute}"
        best = max(values.values(), default=0) if statement.kind == "matchAttribute" else len(values)
        if best != statement.best or best >= statement.wanted:
            yield f"on {node} {best} satisfy the constraint"


def _together(facts: Facts, statement: TogetherTooFew) -> Iterator[str]:
    for node in statement.scope.nodes:
        requests = [*facts.requests(), *facts.through_devices(node)]
        exact = [request["exactly"] for _, request in requests if "exactly" in request]
        alone = [want for want in exact if not want.get("adminAccess") and not _shares(facts, want, node)]
        needed = sum(int(want["count"]) if "count" in want else len(facts.free(want, node)) for want in alone)
        if needed != statement.wanted or "<" in statement.label:
            yield f"{needed} devices are requested that nobody else may use"
        free = {device.id for want in exact for device in facts.free(want, node)}
        if len(free) < statement.available or statement.available >= statement.wanted:
            yield f"{len(free)} are free on {node}"
    yield from _holders(facts, statement)


def _shares(facts: Facts, wanted: Json, node: str) -> bool:
    return any(facts.is_shared(device) for device in facts.free(wanted, node))


def _excluded(facts: Facts, statement: NodesExcluded) -> Iterator[str]:
    spec = facts.pod["spec"]
    for name in statement.scope.nodes:
        node = facts.objects["Node", name]
        for obstacle in statement.obstacles:
            match obstacle.rule:
                case "cordoned":
                    true = node["spec"].get("unschedulable", False)
                case "node taint":
                    texts = [f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in node["spec"].get("taints", ())]
                    true = obstacle.what in texts
                case "node selector":
                    label = node["metadata"]["labels"].get(obstacle.what, "")
                    wanted = spec["nodeSelector"][obstacle.what]
                    true = label != wanted == obstacle.asked and (statement.scope.count > 1 or label == obstacle.has)
                case "cpu":
                    free = int(node["status"]["allocatable"]["cpu"]) - facts.cpu_used(name)
                    true = obstacle.has == str(free) and int(obstacle.asked) > free
                case "claim elsewhere":
                    claim = facts.objects["ResourceClaim", obstacle.what.partition("/")[2]]
                    results = claim["status"]["allocation"]["devices"]["results"]
                    ids = {id_of(each) for each in results}
                    true = not ids <= {device.id for device in facts.devices(name)}
                    true &= not obstacle.asked or ids <= {device.id for device in facts.devices(obstacle.asked)}
                case "resource":
                    true = obstacle.what in spec["containers"][0]["resources"]["requests"]
                case _:
                    true = False
            if not true:
                yield f"{obstacle} is not so on {name}"
