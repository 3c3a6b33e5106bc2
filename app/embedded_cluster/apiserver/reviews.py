"""Questions about users: whose token it is, what a user may do; and the tokens of service accounts.

`AccessReviews` promises the answers of a real API server (tests/contract/scenarios/reviews.yaml), except that tokens
are random text, not JSON Web Tokens, and that an answer gives no reason. A token is valid until it expires, the server
ends, or its account is deleted or created again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from embedded_cluster.apiserver.access import Access, Attributes, groups_of
from embedded_cluster.apiserver.requests import APIResponse, Incoming, RequestInfo, document
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    StatusError,
    bad_request,
    invalid_value,
    method_not_allowed,
    not_found,
)
from embedded_cluster.apiserver.store import Store
from embedded_cluster.apiserver.strategy import Clock

AUTHENTICATION: Final = "authentication.k8s.io"
AUTHORIZATION: Final = "authorization.k8s.io"
AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"
_SELF: Final = "selfsubjectaccessreviews"
KINDS: Final = {
    (AUTHENTICATION, "tokenreviews"): "TokenReview",
    (AUTHORIZATION, "subjectaccessreviews"): "SubjectAccessReview",
    (AUTHORIZATION, _SELF): "SelfSubjectAccessReview",
}
"""What can be asked, by group and resource; all of it is version v1 and cluster-wide."""
_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Issued:
    """A token's service account, for whom the token is meant, and until when it counts."""

    namespace: str
    account: str
    uid: str
    audiences: tuple[str, ...]
    expires: datetime

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.account}"


class AccessReviews:
    """The answers. `user` returns the user of a request, by the tokens issued here and those of `access`."""

    def __init__(self, access: Access, store: Store, clock: Clock) -> None:
        self._access = access
        self._store = store
        self._clock = clock
        self._issued: dict[str, Issued] = {}

    def user(self, authorization: str) -> str:
        """The user behind an Authorization header."""
        issued = self._valid(authorization.removeprefix("Bearer ").strip(), (AUDIENCE,))
        return issued.user if issued is not None else self._access.user(authorization)

    def answer(self, info: RequestInfo, incoming: Incoming, user: str) -> APIResponse | None:
        """None when the request asks for something else. Raises StatusError."""
        if (info.group, info.resource, info.subresource) == ("", "serviceaccounts", "token"):
            if info.verb != "create":
                raise method_not_allowed()
            self._access.require(_attributes(info, user))
            return document(self._token(info, incoming.json_object()), 201)
        kind = KINDS.get((info.group, info.resource))
        if kind is None:
            return None
        if info.verb != "create":
            raise method_not_allowed()
        if info.resource != _SELF:
            self._access.require(_attributes(info, user))
        body = incoming.json_object()
        spec = body.get("spec") or {}
        status = self._owner(spec) if kind == "TokenReview" else self._decision(spec, kind, user)
        version = f"{info.group}/{info.version}"
        return document({"kind": kind, "apiVersion": version, "metadata": {}, "spec": spec, "status": status}, 201)

    # tokens

    def _token(self, info: RequestInfo, body: JSON) -> JSON:
        """Answer a TokenRequest."""
        stored = self._store.get("serviceaccounts", info.name, info.namespace)
        if stored is None:
            raise not_found("", "serviceaccounts", info.name)
        meta = stored["metadata"]
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or _HOUR
        audiences = spec.get("audiences") or [AUDIENCE]
        expires = self._clock() + timedelta(seconds=seconds)
        token = secrets.token_urlsafe(32)
        self._issued[token] = Issued(info.namespace, info.name, meta["uid"], tuple(audiences), expires)
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{AUTHENTICATION}/v1",
            "metadata": {key: meta[key] for key in ("name", "namespace", "uid", "creationTimestamp")},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": None},
            "status": {"token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ")},
        }

    def _owner(self, spec: JSON) -> JSON:
        """The status of a TokenReview."""
        token = spec.get("token") or ""
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        audiences = spec.get("audiences") or [AUDIENCE]
        issued = self._valid(token, audiences)
        if issued is not None:
            user: JSON = {"username": issued.user, "uid": issued.uid, "groups": groups_of(issued.user)}
            return {"authenticated": True, "user": user, "audiences": [AUDIENCE]}
        known = self._access.tokens.get(token)
        if known is not None:
            user = {"username": known, "groups": ["system:authenticated"]}
            return {"authenticated": True, "user": user, "audiences": audiences}
        return {"user": {}, "error": "invalid bearer token"}

    def _valid(self, token: str, audiences: Sequence[str]) -> Issued | None:
        """Whom the token was issued to, if it still counts and is meant for one of these audiences."""
        issued = self._issued.get(token)
        if issued is None or issued.expires <= self._clock() or not set(audiences) & set(issued.audiences):
            return None
        stored = self._store.get("serviceaccounts", issued.account, issued.namespace)
        return issued if stored is not None and stored["metadata"]["uid"] == issued.uid else None

    # access

    def _decision(self, spec: JSON, kind: str, user: str) -> JSON:
        """The status of a review of access: of the user who asks, or of the one who is named."""
        asked, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if asked is None and other is None:
            raise _invalid(kind, invalid_value("spec", None, "exactly one must be specified"))
        if asked is not None and other is not None:
            why = "cannot be specified in combination with resourceAttributes"
            raise _invalid(kind, invalid_value("spec", None, why))
        if kind == "SubjectAccessReview":
            user = spec.get("user") or ""
            if not user and not spec.get("groups"):
                raise _invalid(kind, invalid_value("spec.user", "", "at least one of user or group must be specified"))
        named = {**(asked or {}), **(other or {})}
        names = ("verb", "group", "resource", "subresource", "namespace", "name", "path")
        return {"allowed": self._access.policy(Attributes(user, *(named.get(name, "") for name in names)))}


def _attributes(info: RequestInfo, user: str) -> Attributes:
    return Attributes(user, info.verb, info.group, info.resource, info.subresource, info.namespace, info.name)


def _invalid(kind: str, problem: FieldError) -> StatusError:
    message = f'{kind}.{AUTHORIZATION} "" is invalid: {problem.message}'
    cause = {"reason": problem.reason, "message": problem.text, "field": problem.field}
    return StatusError(422, "Invalid", message, {"group": AUTHORIZATION, "causes": [cause]})
