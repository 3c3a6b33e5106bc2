"""What the API server in memory makes of a write, or says against it: from object to object, pure.

As far as ours depend on it: the form of names, selectors and quantities is not looked at. `tests/contract` holds it
against what a real server was recorded to answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.errors import RejectedError
from dra_extender.api.meta import Condition
from dra_extender.api.resource import AllocationResult, ResourceClaim, ResourceClaimStatus

T = TypeVar("T", ResourceClaim, Pod, Node)

MOST_CONSUMERS, MOST_RESULTS, MOST_CONFIGS = 256, 32, 64


def with_metadata(obj: T, **changed: Any) -> T:
    """The object with these fields of its metadata."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **changed))


def with_finalizer(claim: ResourceClaim, name: str) -> ResourceClaim:
    """One more finalizer. RejectedError when the claim is being deleted."""
    if name in claim.metadata.finalizers:
        return claim
    if claim.metadata.deletion_timestamp:
        raise RejectedError(422, "Invalid", "no new finalizers can be added if the object is being deleted")
    return with_metadata(claim, finalizers=(*claim.metadata.finalizers, name))


def with_defaults(claim: ResourceClaim) -> ResourceClaim:
    """A new claim: nothing is allocated, and one device of a kind is asked for where nothing else is said."""
    body = to_builtins(claim)
    for request in body.get("spec", {}).get("devices", {}).get("requests", ()):
        for wanted in filter(None, (request.get("exactly"), *request.get("firstAvailable", ()))):
            if wanted.setdefault("allocationMode", "ExactCount") == "ExactCount":
                wanted.setdefault("count", 1)
            for toleration in wanted.get("tolerations", ()):
                toleration.setdefault("operator", "Equal")
    created = with_metadata(convert(ResourceClaim, body), deletion_timestamp=None)
    return msgspec.structs.replace(created, status=ResourceClaimStatus())


def with_status(claim: ResourceClaim, status: ResourceClaimStatus) -> ResourceClaim:
    """The claim with another status. Raises RejectedError. Device states go with the allocation."""
    before = claim.status
    if before.allocation is not None and status.allocation is not None:
        _refuse(before.allocation != status.allocation, "allocation is immutable")
    elif status.allocation is not None:
        _check_allocation(claim, status.allocation)
    uids = [entry.uid for entry in status.reserved_for]
    _refuse(bool(uids) and status.allocation is None, "reservedFor without allocation")
    _refuse(len(uids) > MOST_CONSUMERS or len(set(uids)) != len(uids), "reservedFor")
    _refuse(not all(entry.resource and entry.name and entry.uid for entry in status.reserved_for), "reservedFor")
    known = {entry.uid for entry in before.reserved_for}
    _refuse(bool(claim.metadata.deletion_timestamp) and not known.issuperset(uids), "new consumers of a deleted claim")
    allocated = {result.id for result in status.allocation.devices.results} if status.allocation is not None else set()
    told = tuple(entry for entry in status.devices if (entry.driver, entry.pool, entry.device) in allocated)
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(status, devices=told))


def _check_allocation(claim: ResourceClaim, allocation: AllocationResult) -> None:
    names = set()
    for request in claim.spec.devices.requests:
        names |= {request.name, *(f"{request.name}/{wanted.name}" for wanted in request.first_available)}
    devices = allocation.devices
    _refuse(not names.issuperset(result.request for result in devices.results), "a result of no request")
    _refuse(len(devices.results) > MOST_RESULTS or len(devices.config) > MOST_CONFIGS, "too many")


def with_pod_status(pod: Pod, patch: Mapping[str, Any]) -> Pod:
    """A strategic merge patch of the pod's status: conditions go by type, objects by field, all else is replaced."""
    status = to_builtins(pod.status)
    for name, value in patch.items():
        if name == "conditions":
            known = {entry["type"]: entry for entry in status.get(name, ())}
            new = [entry for entry in value if entry["type"] not in known]
            for entry in value:
                known[entry["type"]] = known.get(entry["type"], {}) | entry
            merged = [known[entry["type"]] for entry in (*new, *status.get(name, ()))]
            status[name] = [entry for entry in merged if entry.get("$patch") != "delete"]
        elif name == "nodeAllocatableResourceClaimStatuses":
            assert value[0] == {"$patch": "replace"}, value
            status[name] = value[1:]
        else:
            status[name] = {**status.get(name, {}), **value} if isinstance(value, dict) else value
    return convert(Pod, to_builtins(pod) | {"status": status})


def is_scheduled(pod: Pod) -> Pod:
    """The fields that a binding sets besides the node. It clears a nomination."""
    told = Condition(type="PodScheduled", status="True", last_transition_time="2026-01-01T00:00:00Z")
    return with_pod_status(pod, {"conditions": [to_builtins(told)], "nominatedNodeName": ""})


def _refuse(wrong: bool, why: str) -> None:
    if wrong:
        raise RejectedError(422, "Invalid", why)
