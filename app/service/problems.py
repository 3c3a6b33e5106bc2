"""What is wrong in the cluster and what to do about each, from all who know of something.

Promises: one entry per object and problem: objects that cannot be read or used, claims that hold what others hold,
permissions that the service lacks. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.devices.audit import Violation
from app.devices.readonly import ReadOnlyCluster
from app.http.reports import Problem

_UNREADABLE = {
    "ResourceSlice": "its devices are left out: the driver that publishes it has to correct or delete it",
    "DeviceClass": "claims that name it are refused: correct or delete it",
    "ResourceClaim": "what could be read of it last still counts, and it keeps its devices: correct or delete it",
    "DeviceTaintRule": "its taints do not apply: correct or delete it",
    "Node": "pods with claims are not placed there: correct it",
    "Pod": "what could be read of it last still counts: correct or delete it",
}


def problems(
    cluster: ReadOnlyCluster, violations: Iterable[Violation], missing_permissions: Iterable[str]
) -> Iterator[Problem]:
    """All of them, in this order."""
    yield from _objects(cluster)
    yield from map(_conflict, violations)
    yield from map(_missing_permission, missing_permissions)


def _objects(cluster: ReadOnlyCluster) -> Iterator[Problem]:
    for (kind, key), why in sorted(cluster.unreadable.items()):
        yield Problem(object=f"{kind} {key}", problem=f"cannot be read: {why}", what_to_do=_UNREADABLE[kind])
    for name, problem in sorted(cluster.inventory.problems()):
        what, _, advice = problem.rpartition(": ")
        yield Problem(object=f"ResourceSlice {name}", problem=what, what_to_do=advice)


def _conflict(violation: Violation) -> Problem:
    return Problem(
        object=f"{violation.kind} {violation.subject}",
        problem=f"{violation.detail} (claims: {', '.join(violation.claims)})",
        what_to_do="delete the pods of all but one of these claims, and find out which other allocator wrote them",
    )


def _missing_permission(permission: str) -> Problem:
    return Problem(
        object="the service's account",
        problem=f"the API server does not allow it: {permission}",
        what_to_do="grant it, as manifests/rbac does",
    )
