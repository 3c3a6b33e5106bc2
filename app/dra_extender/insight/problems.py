"""Problems of the cluster, with what to do about each, and conditions of the service itself.

Promises: one entry per object and problem: unusable objects, claims and pods whose rollback is not finished, claims
that are allocated the same device, permissions that the service lacks, an API server that was set back. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from dra_extender.devices.audit import Violation
from dra_extender.devices.readonly import ReadOnlyCluster
from dra_extender.devices.validity import ObjectProblem

ProblemKind = Literal["object", "unfinished", "conflict", "permission", "server"]


class ClusterProblem(msgspec.Struct, frozen=True):
    """`object`: kind and name."""

    kind: Annotated[
        ProblemKind,
        msgspec.Meta(
            description="object: it cannot be used; unfinished: its rollback is not finished; conflict: claims are "
            "allocated the same device; permission: the service lacks it; server: the API server was set back to an "
            "older state"
        ),
    ]
    object: Annotated[str, msgspec.Meta(description="kind and name")]
    problem: str
    what_to_do: str


class ProblemList(msgspec.Struct, frozen=True):
    """`total` counts the problems that are not listed, too."""

    total: int
    problems: Sequence[ClusterProblem]


class Check(msgspec.Struct, frozen=True):
    """One condition of the service. `problem` is empty when the condition holds without remarks."""

    name: str
    ok: bool
    problem: str = ""


def cluster_problems(
    cluster: ReadOnlyCluster,
    unfinished: Iterable[ObjectProblem],
    violations: Iterable[Violation],
    missing_permissions: Iterable[str],
    set_back: str = "",
    set_aside: Iterable[ObjectProblem] = (),
) -> Iterator[ClusterProblem]:
    """All problems, in this order. `unfinished`: objects whose rollback is not finished. `set_back`: what the API
    server showed when it was set back; empty if it was not. `set_aside`: pods that nothing is decided on.
    """
    if set_back:
        yield _set_back(set_back)
    yield from (_of_object(found, "object") for found in (*cluster.problems, *set_aside))
    yield from (_of_object(found, "unfinished") for found in unfinished)
    yield from map(_conflict, violations)
    yield from map(_missing_permission, missing_permissions)


def _of_object(found: ObjectProblem, kind: ProblemKind) -> ClusterProblem:
    return ClusterProblem(kind=kind, object=str(found.object), problem=found.what, what_to_do=found.advice)


def _conflict(violation: Violation) -> ClusterProblem:
    return ClusterProblem(
        kind="conflict",
        object=f"{violation.kind} {violation.subject}",
        problem=f"{violation.detail} (claims: {', '.join(violation.claims)})",
        what_to_do="delete the pods of all but one of these claims, and find out which other allocator wrote them",
    )


def _set_back(shown: str) -> ClusterProblem:
    return ClusterProblem(
        kind="server",
        object="the API server",
        problem=f"it was set back to an older state: {shown}",
        what_to_do="restart every API server if that has not been done; check pods and devices as "
        "docs/runbooks/api-server-set-back.md says; then restart the replica, which ends this report",
    )


def _missing_permission(permission: str) -> ClusterProblem:
    return ClusterProblem(
        kind="permission",
        object="the service's account",
        problem=f"the API server does not allow it: {permission}",
        what_to_do="grant it, as manifests/rbac does",
    )
