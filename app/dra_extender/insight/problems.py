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


class ClusterProblem(msgspec.Struct, frozen=True):
    """`object`: kind and name."""

    kind: Annotated[
        Literal["object", "unfinished", "conflict", "permission", "server"],
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
        yield ClusterProblem(
            "server",
            "the API server",
            f"it was set back to an older state: {set_back}",
            "restart every API server if that has not been done; check pods and devices as "
            "docs/runbooks/api-server-set-back.md says; then restart the replica, which ends this report",
        )
    for found in (*cluster.problems, *set_aside):
        yield ClusterProblem("object", str(found.object), found.what, found.advice)
    for found in unfinished:
        yield ClusterProblem("unfinished", str(found.object), found.what, found.advice)
    for violation in violations:
        what = f"{violation.detail} (claims: {', '.join(violation.claims)})"
        remedy = "delete the pods of all but one of these claims, and find out which other allocator wrote them"
        yield ClusterProblem("conflict", f"{violation.kind} {violation.subject}", what, remedy)
    for permission in missing_permissions:
        what = f"the API server does not allow it: {permission}"
        yield ClusterProblem("permission", "the service's account", what, "grant it, as manifests/rbac does")
