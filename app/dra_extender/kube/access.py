"""What the service and its readers may do: questions to the API server.

`missing_permissions` promises the permissions that the API server denies, none if it grants all of them. A server that
does not serve the question (one without authorization, for example) counts as allowing everything. `Reviews` promises
an answer that the API server gave just now, or an ApiError; a permission that the answer does not grant is denied.
kube-rbac-proxy and the secured metrics of controller-runtime ask the same two questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from dra_extender.api.errors import ApiError, NotServedError
from dra_extender.api.resource import GROUP
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import Served, watched_kinds


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """A user as the API server knows one: what a TokenReview says and a SubjectAccessReview asks about."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class AccessDecision(msgspec.Struct, frozen=True, gc=False):
    """Whether a user may, and the authorizer's reason, which is often empty."""

    allowed: bool = False
    reason: str = ""


T = TypeVar("T")


class Permission(msgspec.Struct, frozen=True):
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
    optional: bool = False
    """The service is Ready without it."""

    def __str__(self) -> str:
        target = self.resource + (f"/{self.subresource}" if self.subresource else "")
        where = f" in namespace {self.namespace}" if self.namespace else " in the whole cluster (ClusterRole)"
        return f"{self.verb} {target}{f'.{self.group}' if self.group else ''}{where}: needed to {self.why}"


PREEMPTION: Final = Permission("create", "", "pods", "make room for pods of higher priority", "eviction")
"""What preemption needs, besides reading budgets."""


BINDING: Final = (
    Permission("patch", GROUP, "resourceclaims", "set the finalizer of claims"),
    Permission("patch", GROUP, "resourceclaims", "allocate and reserve claims", "status"),
    Permission("patch", GROUP, "resourceclaims", "allocate and reserve claims on Kubernetes 1.36 and newer", "binding"),
    Permission("get", GROUP, "resourceclaims", "find out what became of a write"),
    Permission("get", "", "pods", "find out what became of a binding"),
    Permission("create", "", "pods", "bind pods", "binding"),
    Permission("patch", "", "pods", "release devices of pods that are not bound, nominate pods", "status"),
    Permission("create", "events.k8s.io", "events", "report decisions to people"),
    Permission("patch", "events.k8s.io", "events", "count repeated events"),
)
"""What bind needs. `resourceclaims/binding` is asked for since 1.36, and without a namespace."""
EXTENDED_RESOURCES: Final = tuple(
    Permission(verb, GROUP, "resourceclaims", "place pods with extended resources") for verb in ("create", "delete")
)
"""What bind needs for pods that ask for devices by the name of an extended resource."""
PROVISIONING: Final = (
    *(Permission(verb, "", "podtemplates", "ask for nodes", optional=True) for verb in ("create", "patch")),
    *(Permission(verb, "autoscaling.x-k8s.io", "provisioningrequests", "ask for nodes", optional=True)
      for verb in ("list", "create", "delete")),
)  # fmt: skip
"""What `provisioning_requests` needs."""
READERS: Final = tuple(
    Permission("create", f"{group}.k8s.io", resource, "find out who may read insight")
    for group, resource in (("authentication", "tokenreviews"), ("authorization", "subjectaccessreviews"))
)
"""What it takes to find out who may read insight; the ClusterRole system:auth-delegator has them, too."""


def permissions_for_reading(served: Served, *, budgets: bool = False) -> tuple[Permission, ...]:
    """What the reflectors need on a server with these versions; `budgets`: those of PodDisruptionBudgets, too."""
    return tuple(
        Permission(verb, kind.group, kind.plural, f"follow {kind.plural}", optional=kind.optional)
        for kind in watched_kinds(served, budgets=budgets)
        for verb in (("get", "list", "watch") if kind.optional else ("list", "watch"))
    )


def permissions_for_waking(namespace: str) -> tuple[Permission, ...]:
    why = "wake pods that were refused"
    return tuple(Permission(verb, GROUP, "resourceclaims", why, namespace=namespace) for verb in ("create", "patch"))


def permissions_for_lease(namespace: str, name: str) -> tuple[Permission, ...]:
    group, why = "coordination.k8s.io", "elect a leader"
    return (
        Permission("create", group, "leases", why, namespace=namespace),
        Permission("get", group, "leases", why, namespace=namespace, name=name),
        Permission("update", group, "leases", why, namespace=namespace, name=name),
        Permission("patch", group, "leases", "set pods aside", namespace=namespace, name=name),
        Permission("watch", group, "leases", "follow who leads", namespace=namespace, name=name),
    )


async def missing_permissions(client: KubeClient, permissions: Sequence[Permission]) -> list[Permission]:
    """The permissions that are denied. Raises ApiError when the server cannot be asked."""
    granted = await asyncio.gather(*(_granted(client, permission) for permission in permissions))
    return [permission for permission, allowed in zip(permissions, granted, strict=True) if not allowed]


async def _granted(client: KubeClient, permission: Permission) -> bool:
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    attributes = {name: getattr(permission, name) for name in names}
    try:
        answer = await _review(client, "SelfSubjectAccessReview", {"resourceAttributes": attributes}, AccessDecision)
    except NotServedError:
        return True
    return answer.allowed


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()


@dataclass(slots=True, eq=False)
class Reviews:
    """Asked with the permissions of the service, which has to be allowed to create both reviews."""

    _client: KubeClient

    async def user_of(self, token: str) -> UserInfo | None:
        """The user of this token, which is not empty; None if it is not valid. The text of an ApiError has no token."""
        status = await _review(self._client, "TokenReview", {"token": token}, _TokenStatus)
        return status.user if status.authenticated and status.user.username else None

    async def may(self, user: UserInfo, attributes: Mapping[str, str]) -> AccessDecision:
        """Whether the user may do this with a `path` that is not of the API, as nonResourceURLs grant it; or with a
        resource, without a namespace in all namespaces. Raises ApiError.
        """
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes" if "path" in attributes else "resourceAttributes": attributes,
        }
        return await _review(self._client, "SubjectAccessReview", spec, AccessDecision)


async def _review(client: KubeClient, kind: str, spec: Mapping[str, Any], status: type[T]) -> T:
    """Create a review and return its status. Raises ApiError."""
    group = "authentication.k8s.io/v1" if kind == "TokenReview" else "authorization.k8s.io/v1"
    body = msgspec.json.encode({"apiVersion": group, "kind": kind, "spec": spec})
    answer = await client.create(f"/apis/{group}/{kind.lower()}s", body)
    try:
        return msgspec.convert(msgspec.json.decode(answer, type=dict[str, Any]).get("status") or {}, status)
    except (msgspec.DecodeError, ValueError):
        # Without what is wrong: a review repeats the token.
        raise ApiError(0, "Malformed", "the answer to a review cannot be decoded") from None
