"""authentication.k8s.io/v1 and authorization.k8s.io/v1: whose token it is, and what that user may do."""

from __future__ import annotations

import msgspec


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
