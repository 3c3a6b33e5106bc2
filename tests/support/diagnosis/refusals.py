"""Evaluates on the raw objects what is said about a pod, or one of its claims, that excludes all nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dra_extender.insight.why.statements import PodRefused
from tests.support.diagnosis.facts import Facts, Json

MOST_DEVICES = 32
MOST_CONSUMERS = 256


def refused(facts: Facts, statement: PodRefused) -> Iterator[str]:
    """What is wrong with the statement."""
    claim = facts.objects.get(("ResourceClaim", statement.claim.partition("/")[2]), {})
    entries = facts.pod["spec"].get("resourceClaims", ())
    if statement.claim and claim.get("metadata", {}).get("name") not in [
        entry.get("resourceClaimName") for entry in entries
    ]:
        yield "the pod does not name the claim"
    match statement.rule:
        case "no nodes":
            true = not facts.nodes
        case "scheduling gate":
            gates = [gate["name"] for gate in facts.pod["spec"].get("schedulingGates", ())]
            true = bool(gates) and f"its scheduling gate {', '.join(gates)} is" in statement.text
        case "scheduler":
            name = facts.pod["spec"].get("schedulerName", "default-scheduler")
            served = statement.text.rpartition("these schedulers do: ")[2].split(", ")
            true = statement.text.startswith(f"scheduler {name} does") and served == sorted(facts.served) != [name]
        case "claim missing":
            names = [entry["resourceClaimName"] for entry in entries if "resourceClaimName" in entry]
            missing = [name for name in names if ("ResourceClaim", name) not in facts.objects]
            true = statement.text in [f"claim default/{name} does not exist" for name in missing]
        case "claim not created":
            made = [(entry["name"], entry.get("resourceClaimTemplateName")) for entry in entries]
            lacking = [each for each in made if each[1] and ("ResourceClaimTemplate", each[1]) not in facts.objects]
            text = "claim {} has not been created from template {}, which may not exist"
            true = statement.text in [text.format(*each) for each in lacking]
        case "claim leaving":
            true = "deletionTimestamp" in claim["metadata"]
        case "claim full":
            users = [user["uid"] for user in claim["status"]["reservedFor"]]
            true = len(users) >= MOST_CONSUMERS and facts.pod["metadata"]["uid"] not in users
        case "feature gate":
            alternatives = bool(claim) and any("firstAvailable" in request for request in _requests(claim))
            true = alternatives and not facts.features.DRAPrioritizedList and "DRAPrioritizedList" in statement.text
            true |= not statement.claim and _only_a_class_provides(facts, statement.text)
        case "class missing":
            true = _class_is_missing(facts, claim, statement.text)
        case "gang":
            true = _gang_is_incomplete(facts, statement.text)
        case "claim":
            true = _cannot_be_decided(facts, statement.text)
        case _:
            yield "no check of this rule"
            return
    if not true:
        yield "it is not so"


def _only_a_class_provides(facts: Facts, text: str) -> bool:
    match = re.match(r"only device class (\S+) provides (\S+), and the feature gate DRAExtendedResource is off$", text)
    assert match is not None, text
    provides = facts.objects["DeviceClass", match[1]]["spec"].get("extendedResourceName") == match[2]
    containers = facts.pod["spec"]["containers"]
    asked = any(match[2] in each.get("resources", {}).get("requests", {}) for each in containers)
    nodes = (facts.objects["Node", name]["status"]["allocatable"] for name in facts.nodes)
    off = not facts.features.DRAExtendedResource
    return off and provides and asked and not any(match[2] in allocatable for allocatable in nodes)


def _gang_is_incomplete(facts: Facts, text: str) -> bool:
    """The only problem of a gang of equal pods."""
    match = re.match(r"gang default/g: (\d+) of (\d+) pods exist$", text)
    assert match is not None, text
    name, size = (f"dra-extender.dev/gang{part}" for part in ("", "-size"))
    annotations = facts.pod["metadata"]["annotations"]
    found = [item for (kind, _), item in facts.objects.items() if kind == "Pod"]
    pods = [item for item in found if item["metadata"].get("annotations", {}).get(name) == annotations[name]]
    return len(pods) == int(match[1]) < int(match[2]) == int(annotations[size])


def _requests(claim: Json) -> list[Json]:
    found: list[Json] = claim["spec"]["devices"]["requests"]
    return found


def _wants(request: Json) -> list[Json]:
    found: list[Json] = request.get("firstAvailable") or [request["exactly"]]
    return found


def _class_is_missing(facts: Facts, claim: Json, text: str) -> bool:
    text = text.removesuffix(", so the other alternatives are not tried")
    match = re.search(r"device class (\S+) does not exist \(classes: ([^)]*)\)$", text)
    assert match is not None, text
    known = sorted(name for kind, name in facts.objects if kind == "DeviceClass")
    named = [want["deviceClassName"] for request in _requests(claim) for want in _wants(request)]
    return match[1] in named and match[1] not in known and match[2] in (", ".join(known), "" if known else "none")


def _cannot_be_decided(facts: Facts, text: str) -> bool:
    """The text of the scheduler about a request, which is the same on all nodes."""
    match = re.match(r"claim default/([^\s:,]+)(?:, (?:sub)?request ([^\s:]+))?: (.+)$", text)
    assert match is not None, text
    requests = _requests(facts.objects["ResourceClaim", match[1]])
    named = [request for request in requests if match[2] in (None, request["name"], request["name"].split("/")[0])]
    own = [want for request in requests for want in _wants(request) if match[2] == want.get("name")]
    wants = own or [want for request in named for want in _wants(request)]
    problem, features = match[3], facts.features
    if "admin access is requested, but the feature is disabled" in problem:
        return not features.DRAAdminAccess and any("adminAccess" in want for want in wants)
    if "has capacity requests" in problem:
        return not features.DRAConsumableCapacity and any("capacity" in want for want in wants)
    if "exceeds the claim limit of 32" in problem:
        return sum(min(map(_count, _wants(request))) for request in requests) > MOST_DEVICES
    every = any(want.get("allocationMode") == "All" for want in wants)
    if "is currently being updated" in problem:
        pools = {pool for node in facts.nodes for pool in facts.incomplete(node)}
        return every and any(f"/{pool} is" in problem for pool in pools)
    constraints = facts.objects["ResourceClaim", match[1]]["spec"]["devices"].get("constraints")
    return "cannot add device" in problem and every and bool(constraints)


def _count(want: Json) -> int:
    return 0 if want.get("allocationMode") == "All" else int(want.get("count", 1))
