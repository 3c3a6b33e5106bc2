"""What is wrong in the cluster and what to do about each, from all who know of something.

Promises: one entry per object and problem: objects that cannot be read or used, pods and claims of which something
could not be taken back as yet, claims that hold what others hold, permissions that the service lacks. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dra_extender.devices.audit import Violation
from dra_extender.devices.problems import Problem as ObjectProblem
from dra_extender.devices.readonly import ReadOnlyCluster
from dra_extender.http.reports import Problem, ProblemKind


def problems(
    cluster: ReadOnlyCluster,
    not_taken_back: Iterable[ObjectProblem],
    violations: Iterable[Violation],
    missing_permissions: Iterable[str],
) -> Iterator[Problem]:
    """All of them, in this order."""
    yield from (_of_object(found, "object") for found in cluster.problems)
    yield from (_of_object(found, "unfinished") for found in not_taken_back)
    yield from map(_conflict, violations)
    yield from map(_missing_permission, missing_permissions)


def _of_object(found: ObjectProblem, kind: ProblemKind) -> Problem:
    return Problem(kind=kind, object=str(found.object), problem=found.what, what_to_do=found.advice)


def _conflict(violation: Violation) -> Problem:
    return Problem(
        kind="conflict",
        object=f"{violation.kind} {violation.subject}",
        problem=f"{violation.detail} (claims: {', '.join(violation.claims)})",
        what_to_do="delete the pods of all but one of these claims, and find out which other allocator wrote them",
    )


def _missing_permission(permission: str) -> Problem:
    return Problem(
        kind="permission",
        object="the service's account",
        problem=f"the API server does not allow it: {permission}",
        what_to_do="grant it, as manifests/rbac does",
    )
