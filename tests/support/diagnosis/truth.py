"""Evaluates the statements of a diagnosis on the raw objects, without the code that found them.

`untrue` lists the statements of an answer that do not hold. It knows what `mixed` generates: string attributes, devices
of one node, one counter set per pool, one capacity.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.statements import (
    ClassEmpty,
    ConstraintUnmet,
    DevicesUnavailable,
    NodesExcluded,
    NoNodeHasAll,
    NothingMatches,
    PodRefused,
    Requested,
    Scope,
    Statement,
    TogetherTooFew,
    TooFew,
    Unsatisfiable,
)

Json = dict[str, Any]
ID = tuple[str, str, str]
_GIBI = 2**30
_ATTRIBUTE = re.compile(r'device\.attributes\["([^"]+)"\]\.(\w+) == "([^"]*)"$')
_DRIVER = re.compile(r'device\.driver == "([^"]*)"$')


class Device(NamedTuple):
    """A device of a node as its slice publishes it."""

    id: ID
    body: Mapping[str, Any]

    def attribute(self, name: str) -> str | None:
        found = self.body.get("attributes", {}).get(name)
        return found["string"] if found is not None else None


def holds(clause: str, device: Device) -> bool:
    if match := _DRIVER.match(clause):
        return device.id[0] == match[1]
    match = _ATTRIBUTE.match(clause)
    assert match is not None, clause
    return device.id[0] == match[1] and device.attribute(match[2]) == match[3]


class Facts:
    """A cluster as JSON, and the pod that an answer is about."""

    def __init__(self, documents: Sequence[Json], pod: str) -> None:
        self.objects = {(item["kind"], item["metadata"]["name"]): item for item in documents}
        self.pod = self.objects["Pod", pod]
        self.nodes = [item["metadata"]["name"] for item in documents if item["kind"] == "Node"]
        self.slices = [item["spec"] for item in documents if item["kind"] == "ResourceSlice"]
        self.claims = [item for item in documents if item["kind"] == "ResourceClaim"]
        self.results = [
            (claim["metadata"]["name"], result)
            for claim in self.claims
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        ]
        self.owned = {_id(result) for _, result in self.results if not result.get("shareID")}

    def devices(self, node: str) -> list[Device]:
        """Of complete pools."""
        found = [spec for spec in self.slices if spec["nodeName"] == node]
        published = Counter((spec["driver"], spec["pool"]["name"]) for spec in found)
        return [
            Device((spec["driver"], spec["pool"]["name"], body["name"]), body)
            for spec in found
            if published[spec["driver"], spec["pool"]["name"]] == spec["pool"]["resourceSliceCount"]
            for body in spec.get("devices", ())
        ]

    # --- requests -----------------------------------------------------------------------------------------------------

    def wanted(self, requested: Requested) -> Json:
        """The request, or its alternative, of the claim."""
        if requested.claim not in {f"default/{item['metadata']['name']}" for item in self.claims}:
            return {"deviceClassName": requested.class_name, "count": requested.wanted}
        claim = self.objects["ResourceClaim", requested.claim.partition("/")[2]]
        name, _, alternative = requested.request.partition("/")
        request = next(item for item in claim["spec"]["devices"]["requests"] if item["name"] == name)
        if not alternative:
            found: Json = request["exactly"]
            return found
        return next(item for item in request["firstAvailable"] if item["name"] == alternative)

    def of_class(self, wanted: Json, node: str) -> list[Device]:
        selectors = self.objects["DeviceClass", wanted["deviceClassName"]]["spec"]["selectors"]
        return [device for device in self.devices(node) if _satisfies(selectors, device)]

    def matching(self, wanted: Json, node: str) -> list[Device]:
        return [device for device in self.of_class(wanted, node) if _satisfies(wanted.get("selectors", ()), device)]

    def lost(self, wanted: Json, device: Device) -> set[str]:
        """The rules that keep the device from the request now."""
        rules = {"in use"} if device.id in self.owned else set()
        if not all(any(_tolerates(t, taint) for t in wanted.get("tolerations", ())) for taint in _taints(device)):
            rules.add("taint")
        if self._capacity_left(device) < self._asked(wanted, device):
            rules.add("capacity")
        if any(amount > self._counter_left(device, name) for name, amount in _charges(device.body)):
            rules.add("counters")
        return rules

    def _asked(self, wanted: Json, device: Device) -> int:
        if "capacity" in wanted:
            return _gibi(wanted["capacity"]["requests"]["memory"])
        policy = device.body.get("capacity", {}).get("memory", {}).get("requestPolicy", {})
        return _gibi(policy["default"]) if "default" in policy else 0

    def _capacity_left(self, device: Device) -> int:
        value = device.body.get("capacity", {}).get("memory", {}).get("value", "0Gi")
        used = (result.get("consumedCapacity", {}) for _, result in self.results if _id(result) == device.id)
        return _gibi(value) - sum(_gibi(each["memory"]) for each in used if "memory" in each)

    def _counter_left(self, device: Device, counter: str) -> int:
        specs = [s for s in self.slices if (s["driver"], s["pool"]["name"]) == device.id[:2]]
        sets = [each for spec in specs for each in spec.get("sharedCounters", ())]
        total = sum(int(each["counters"][counter]["value"]) for each in sets)
        bodies = (body for spec in specs for body in spec.get("devices", ()))
        used = (b for b in bodies if (*device.id[:2], b["name"]) in self.owned)
        return total - sum(amount for body in used for name, amount in _charges(body) if name == counter)

    def free(self, wanted: Json, node: str) -> list[Device]:
        return [device for device in self.matching(wanted, node) if not self.lost(wanted, device)]

    def enough(self, requested: Requested, node: str) -> bool:
        """Enough devices match, in use or not."""
        found = len(self.matching(self.wanted(requested), node))
        return found >= (1 if requested.all else requested.wanted)

    def requests(self) -> Iterator[tuple[str, Json]]:
        """(claim, request) of the pod's claims that are not allocated"""
        for entry in self.pod["spec"]["resourceClaims"]:
            claim = self.objects["ResourceClaim", entry["resourceClaimName"]]
            if "allocation" not in claim.get("status", {}):
                for request in claim["spec"]["devices"]["requests"]:
                    yield claim["metadata"]["name"], request


def _id(result: Json) -> ID:
    return result["driver"], result["pool"], result["device"]


def _satisfies(selectors: Sequence[Json], device: Device) -> bool:
    clauses = [clause for each in selectors for clause in each["cel"]["expression"].split(" && ")]
    return all(holds(clause, device) for clause in clauses)


def _taints(device: Device) -> list[Json]:
    return [taint for taint in device.body.get("taints", ()) if taint["effect"] in ("NoSchedule", "NoExecute")]


def _tolerates(toleration: Json, taint: Json) -> bool:
    return bool(toleration["key"] == taint["key"]) and toleration.get("effect", taint["effect"]) == taint["effect"]


def _charges(body: Mapping[str, Any]) -> list[tuple[str, int]]:
    found = (each["counters"] for each in body.get("consumesCounters", ()))
    return [(name, int(amount["value"])) for counters in found for name, amount in counters.items()]


def _gibi(text: str) -> int:
    return int(text.removesuffix("Gi")) if text.endswith("Gi") else int(text) // _GIBI


# --- statements -------------------------------------------------------------------------------------------------------


def untrue(documents: Sequence[Json], pod: str, answer: Diagnosis) -> list[str]:
    """What is wrong with the statements of the answer."""
    facts = Facts(documents, pod)
    return [f"{problem}: {statement}" for statement in answer.statements for problem in _problems(facts, statement)]


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
            counts = [len(facts.matching(facts.wanted(requested), node)) for node in facts.nodes]
            if max(counts) != most or most >= requested.wanted:
                yield f"nodes have {counts}"
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
        case PodRefused() | Unsatisfiable():
            pass  # what they quote is the allocator's answer, which has tests of its own
        case _:
            yield "no check of this kind"


def _nothing_matches(facts: Facts, statement: NothingMatches) -> Iterator[str]:
    devices = [d for node in facts.nodes for d in facts.of_class(facts.wanted(statement.requested), node)]
    if not devices:
        yield "no device is of the class"
    if any(all(holds(clause, device) for clause in statement.clauses) for device in devices):
        yield "a device satisfies the clauses"
    if statement.values:
        (clause,) = statement.clauses
        match = _ATTRIBUTE.match(clause)
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
    mismatch = {"selector", "class", "node", "binding conditions"} & {loss.rule for loss in statement.losses}
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
    first = {device.id for device in facts.devices(statement.scope.nodes[0])}
    users = {f"default/{claim}" for claim, result in facts.results if _id(result) in first}
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
        values.pop(None, None)
        best = max(values.values(), default=0) if statement.kind == "matchAttribute" else len(values)
        if best != statement.best or best >= statement.wanted:
            yield f"on {node} {best} satisfy the constraint"


def _together(facts: Facts, statement: TogetherTooFew) -> Iterator[str]:
    for node in statement.scope.nodes:
        exact = [request["exactly"] for _, request in facts.requests() if "exactly" in request]
        free = {device.id for want in exact for device in facts.free(want, node)}
        if len(free) < statement.available or statement.available >= statement.wanted:
            yield f"{len(free)} are free on {node}"


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
                    true = obstacle.has == node["status"]["allocatable"]["cpu"] and int(obstacle.asked) > int(
                        obstacle.has
                    )
                case "claim elsewhere":
                    claim = facts.objects["ResourceClaim", obstacle.what.partition("/")[2]]
                    results = claim["status"]["allocation"]["devices"]["results"]
                    ids = {_id(each) for each in results}
                    true = not ids <= {device.id for device in facts.devices(name)}
                    true &= not obstacle.asked or ids <= {device.id for device in facts.devices(obstacle.asked)}
                case "resource":
                    true = obstacle.what in spec["containers"][0]["resources"]["requests"]
                case _:
                    true = False
            if not true:
                yield f"{obstacle} is not so on {name}"
