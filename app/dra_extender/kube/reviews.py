"""What the API server says about users who are not ours: whose token it is, and what they may do.

`Reviews` promises an answer that the API server gave just now, or an ApiError; what it does not say counts as no.
Rules: kube-rbac-proxy and the secured metrics of controller-runtime ask the same two questions.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dra_extender.api.authentication import AccessDecision, UserInfo
from dra_extender.api.errors import ApiError
from dra_extender.kube.client import KubeClient

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessReview(msgspec.Struct, frozen=True):
    status: AccessDecision = AccessDecision()


T = TypeVar("T")


class Reviews:
    """Asked with the permissions of the service, which has to be allowed to create both reviews."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def user_of(self, token: str) -> UserInfo | None:
        """Who has this token; None when nobody has. `token` is not empty. Raises ApiError, whose text has no token."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = _decoded(await self._client.create(_TOKENS, msgspec.json.encode(review)), _TokenReview).status
        return status.user if status.authenticated and status.user.username else None

    async def may(self, user: UserInfo, verb: str, path: str) -> AccessDecision:
        """Whether the user may do this with a path that is not of the API, as nonResourceURLs grant it. Raises
        ApiError.
        """
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"verb": verb, "path": path},
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return _decoded(await self._client.create(_ACCESS, msgspec.json.encode(review)), _AccessReview).status


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, ValueError):
        # Without what is wrong: a review repeats the token.
        raise ApiError(0, "Malformed", "the answer to a review cannot be decoded") from None
