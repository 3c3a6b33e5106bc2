"""Whether we are allowed to do what we are about to do, asked before it fails in the middle of something.

`missing_rights` promises one plain sentence per right that the API server denies, empty when all are granted. Servers
that do not answer the question (no authorization at all, for example) are taken to allow everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from app.api.errors import ApiError, NotFoundError
from app.api.resource import GROUP
from app.kube.client import KubeClient

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(msgspec.Struct, frozen=True):
    """One verb on one resource, or on its object with that name. `why` completes "needed to ..."; an empty namespace
    means the whole cluster.
    """

    verb: str
    group: str
    resource: str
    why: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        target = self.resource + (f"/{self.subresource}" if self.subresource else "")
        where = f" in namespace {self.namespace}" if self.namespace else " in the whole cluster (ClusterRole)"
        return f"{self.verb} {target}{f'.{self.group}' if self.group else ''}{where}: needed to {self.why}"


class _Result(msgspec.Struct, frozen=True):
    allowed: bool = True


class _Review(msgspec.Struct, frozen=True):
    status: _Result = _Result()


def rights_for_reading(*, taint_rules: bool) -> tuple[Right, ...]:
    """What the reflectors need."""
    watched = [("", "nodes"), ("", "pods"), (GROUP, "resourceclaims"), (GROUP, "resourceslices")]
    watched += [(GROUP, "deviceclasses")] + ([(GROUP, "devicetaintrules")] if taint_rules else [])
    return tuple(
        Right(verb, group, resource, f"follow {resource}") for group, resource in watched for verb in ("list", "watch")
    )


def rights_for_binding() -> tuple[Right, ...]:
    """What bind needs. `resourceclaims/binding` is asked for since 1.36, and without a namespace."""
    return (
        Right("patch", GROUP, "resourceclaims", "set the finalizer of claims"),
        Right("patch", GROUP, "resourceclaims", "allocate and reserve claims", "status"),
        Right("patch", GROUP, "resourceclaims", "allocate and reserve claims on Kubernetes 1.36 and newer", "binding"),
        Right("get", GROUP, "resourceclaims", "find out what became of a write"),
        Right("get", "", "pods", "find out what became of a binding"),
        Right("create", "", "pods", "bind pods", "binding"),
        Right("create", "events.k8s.io", "events", "tell people about decisions"),
        Right("patch", "events.k8s.io", "events", "count repeated events"),
    )


def rights_for_extended_resources() -> tuple[Right, ...]:
    """What bind needs for pods that ask for devices by the name of an extended resource."""
    why = "place pods with extended resources"
    return (
        Right("create", GROUP, "resourceclaims", why),
        Right("delete", GROUP, "resourceclaims", why),
        Right("patch", "", "pods", why, "status"),
        Right("update", "", "pods", "own claims where OwnerReferencesPermissionEnforcement is on", "finalizers"),
    )


def rights_for_waking(namespace: str) -> tuple[Right, ...]:
    """What the doorbell claim needs."""
    why = "wake pods that were refused"
    return tuple(Right(verb, GROUP, "resourceclaims", why, namespace=namespace) for verb in ("create", "patch"))


def rights_for_lease(namespace: str, name: str) -> tuple[Right, ...]:
    """What leader election needs."""
    group, why = "coordination.k8s.io", "elect a leader"
    return (
        Right("create", group, "leases", why, namespace=namespace),
        Right("get", group, "leases", why, namespace=namespace, name=name),
        Right("update", group, "leases", why, namespace=namespace, name=name),
    )


async def missing_rights(client: KubeClient, rights: Iterable[Right]) -> list[str]:
    """The rights that are denied, as text. Raises ApiError when the server cannot be asked."""
    asked = tuple(rights)
    granted = await asyncio.gather(*(_granted(client, right) for right in asked))
    return [str(right) for right, allowed in zip(asked, granted, strict=True) if not allowed]


async def _granted(client: KubeClient, right: Right) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": right.verb,
                "group": right.group,
                "resource": right.resource,
                "subresource": right.subresource,
                "namespace": right.namespace,
                "name": right.name,
            }
        },
    }
    try:
        answer = await client.create(_PATH, msgspec.json.encode(review))
    except NotFoundError:
        return True
    try:
        return msgspec.json.decode(answer, type=_Review).status.allowed
    except (msgspec.DecodeError, ValueError) as problem:
        raise ApiError(0, "Malformed", f"access review: {problem}") from None
