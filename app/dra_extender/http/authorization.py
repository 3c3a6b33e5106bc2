"""Who may call the verbs, and who may read metrics and insight.

`AllowedClients` checks the names in a client's TLS certificate; TLS itself has verified the certificate. Promise: the
log names a refused client at most once a minute.

`TokenAuthorizer` checks bearer tokens as kube-rbac-proxy and the secured metrics of controller-runtime do: TokenReview,
then SubjectAccessReview for the path (nonResourceURLs of a ClusterRole). Questions about one pod are also for users who
may get the pod; they read names of other namespaces only if they may list all pods and claims.

Promises: a request is granted only if the API server has granted it now or within `GRANTED_SECONDS`; if the API server
does not answer, other requests are refused. Denials are remembered for `DENIED_SECONDS`, apart from grants, so they
displace none; both caches are bounded in number and bytes. Tokens are kept as keyed digests and never logged. At most
`REVIEWS` reviews run at a time, so the rest of the API server's capacity serves the verbs.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import msgspec
import structlog
from cachetools import TTLCache
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from dra_extender.api.errors import ApiError
from dra_extender.api.resource import GROUP
from dra_extender.http.responses import ErrorBody, error_response
from dra_extender.kube.access import AccessDecision, Reviews, UserInfo
from dra_extender.kube.credentials import FORWARDED_TOKEN
from dra_extender.limits import BYTES_OF_TOKEN
from dra_extender.scheduling.reader import ADMINISTRATOR, Reader

log = structlog.get_logger(__name__)

T = TypeVar("T")

CLIENT_NAMES: Final = "client_names"
"""Key in the state of a request: the names of its client (`frozenset[str]`)."""
CLIENT_NOT_ALLOWED: Final = (
    "dra-extender: this client is not allowed to call the verbs: its certificate has none of the allowed names"
)
GRANTED_SECONDS: Final = 60.0
"""How long a revoked token or a removed permission still counts."""
DENIED_SECONDS: Final = 10.0
"""How long a denial counts after the permission was granted."""
CACHE_BYTES: Final = 2**20
ENTRY_BYTES: Final = 2**10
"""Minimum charge of an entry, which bounds the number of entries."""
REVIEWS: Final = 4
"""Reviews that run at a time."""
REVIEW_SECONDS: Final = 10.0
"""Time limit for all reviews of one request."""
ABOUT_POD: Final = "/insight/diagnosis"
TOKEN_HEADERS: Final = frozenset((b"authorization", FORWARDED_TOKEN.lower().encode()))
SEE_ALL: Final[tuple[dict[str, str], ...]] = (
    {"verb": "list", "resource": "pods"},
    {"verb": "list", "group": GROUP, "resource": "resourceclaims"},
)
"""Who may do this in all namespaces reads the names of all pods and claims."""
READ_BY_POST: Final = frozenset(("/insight/whatif", "/v1/simulate"))
"""Questions with a body. They change nothing, so the permission to `get` the path suffices."""
_REPORT_SECONDS: Final = 60.0
_REPORTS: Final = 100

_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)
"""RFC 6750, b64token."""
_LONGEST_TEXT: Final = 256


class AllowedClients:
    """The clients with these names; without names, every client."""

    def __init__(self, allowed: frozenset[str] = frozenset(), clock: Callable[[], float] = time.monotonic) -> None:
        self._allowed = allowed
        self._reported: TTLCache[frozenset[str], None] = TTLCache(_REPORTS, _REPORT_SECONDS, timer=clock)

    def refusal(self, state: Mapping[str, Any]) -> str:
        """Why the client of a request with this state may not call the verbs; empty when it may."""
        if not self._allowed:
            return ""
        names: frozenset[str] = state.get(CLIENT_NAMES, frozenset())
        if names & self._allowed:
            return ""
        if names not in self._reported:
            self._reported[names] = None
            log.warning("client not allowed", names=sorted(names), allowed=sorted(self._allowed))
        return CLIENT_NOT_ALLOWED


def certified_names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The common names, DNS names and URIs of a client's certificate, in the form of ssl.SSLObject.getpeercert."""
    shown = certificate or {}
    common = {value for relative in shown.get("subject", ()) for kind, value in relative if kind == "commonName"}
    return frozenset(common | {value for kind, value in shown.get("subjectAltName", ()) if kind in ("DNS", "URI")})


NO_TOKEN: Final = HTTPException(
    401, "a bearer token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": 'Bearer realm="dra-extender"'}
)
BAD_TOKEN: Final = HTTPException(
    401,
    "the API server does not accept this token: it has expired, or belongs to another cluster",
    {"WWW-Authenticate": 'Bearer realm="dra-extender", error="invalid_token"'},
)
NO_REVIEW: Final = HTTPException(
    503, "cannot check whether you may read this: the API server does not answer", {"Retry-After": "1"}
)

DENIALS: Final[dict[int | str, dict[str, Any]]] = {
    401: {"model": ErrorBody, "description": "with --insight-authorization: no token, or an invalid one"},
    403: {"model": ErrorBody, "description": "with --insight-authorization: the user may not get the path or pod"},
    503: {"model": ErrorBody, "description": "the cluster is not known yet, or the API server cannot review the token"},
}
"""The OpenAPI descriptions of the responses above."""


def _cache(seconds: float, clock: Callable[[], float]) -> TTLCache[bytes, tuple[Any, int]]:
    """Answers of reviews with their sizes, bounded in bytes and so in number; the least recently used go first."""
    return TTLCache(CACHE_BYTES, seconds, timer=clock, getsizeof=lambda entry: entry[1])


class TokenAuthorizer:
    """One per service."""

    def __init__(self, reviewer: Reviews, clock: Callable[[], float] = time.monotonic) -> None:
        self._reviewer = reviewer
        self._secret = secrets.token_bytes(32)
        self._granted = _cache(GRANTED_SECONDS, clock)
        self._denied = _cache(DENIED_SECONDS, clock)
        self._turn = asyncio.Semaphore(REVIEWS)
        self._reported: TTLCache[str, None] = TTLCache(_REPORTS, _REPORT_SECONDS, timer=clock)

    async def reader(
        self, headers: Iterable[tuple[bytes, bytes]], method: str, path: str, pod: str = ""
    ) -> Reader | HTTPException:
        """Who reads the answer to this request, or why it is not authorized. `pod`: the pod (namespace/name) that it is
        about; who may get the pod may read the answer.
        """
        shown = [value for name, value in headers if name in TOKEN_HEADERS]
        if not shown:
            return NO_TOKEN
        found = _BEARER.fullmatch(shown[0].strip()) if len(shown) == 1 else None
        if found is None or len(found[1]) > BYTES_OF_TOKEN:
            return BAD_TOKEN
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                return await self._review(found[1], method.lower(), path, pod)
        except (ApiError, TimeoutError) as problem:
            self._report(problem)
            return NO_REVIEW

    async def _review(self, token: bytes, verb: str, path: str, pod: str) -> Reader | HTTPException:
        user = await self._remembered(b"token " + token, lambda: self._reviewer.user_of(token.decode()), bool)
        if user is None:
            return BAD_TOKEN
        decision = await self._may(user, {"verb": verb, "path": path})
        if decision.allowed:
            return ADMINISTRATOR
        if not pod:
            detail = (
                f"{user.username[:_LONGEST_TEXT]} may not {verb} {path[:_LONGEST_TEXT]}: bind a ClusterRole with the "
                "path in nonResourceURLs, such as dra-extender-insight-reader"
            )
            why = f" ({decision.reason[:_LONGEST_TEXT]})" if decision.reason else ""
            return HTTPException(403, detail + why)
        namespace, _, name = pod.partition("/")
        wanted = {"verb": "get", "resource": "pods", "namespace": namespace, "name": name}
        if not (await self._may(user, wanted)).allowed:
            who, which = user.username[:_LONGEST_TEXT], pod[:_LONGEST_TEXT]
            return HTTPException(403, f"{who} may neither {verb} {path} nor get pod {which}")
        for attributes in SEE_ALL:
            if not (await self._may(user, attributes)).allowed:
                return Reader(namespace)
        return ADMINISTRATOR

    async def _may(self, user: UserInfo, attributes: Mapping[str, str]) -> AccessDecision:
        question = b"access " + msgspec.json.encode((user, attributes))
        return await self._remembered(question, lambda: self._reviewer.may(user, attributes), attrgetter("allowed"))

    async def _remembered(self, question: bytes, ask: Callable[[], Awaitable[T]], is_grant: Callable[[T], bool]) -> T:
        """The remembered answer, or a new one. Requests that wait for their turn share an answer."""
        key = hmac.digest(self._secret, question, "sha256")
        known = self._known(key)
        if known is not None:
            answer: T = known[0]
            return answer
        async with self._turn:
            known = self._known(key)
            answer = known[0] if known is not None else await ask()
        if known is None:
            size = ENTRY_BYTES + len(msgspec.json.encode(answer))
            if size <= CACHE_BYTES:
                (self._granted if is_grant(answer) else self._denied)[key] = answer, size
        return answer

    def _known(self, key: bytes) -> tuple[Any, int] | None:
        return self._granted.get(key) or self._denied.get(key)

    def _report(self, problem: ApiError | TimeoutError) -> None:
        text = str(problem)[:_LONGEST_TEXT] or "no answer in time"
        if text not in self._reported:
            self._reported[text] = None
            log.warning("cannot check tokens: requests for metrics and insight are refused", problem=text)


def reader_of(request: Request) -> Reader:
    """Who reads the answer to this request. Without authorization everybody reads everything."""
    return cast(Reader, getattr(request.state, "reader", ADMINISTRATOR))


@dataclass(slots=True, eq=False)
class AuthorizationMiddleware:
    """ASGI middleware: authorizes every request except those for `open_paths`, and keeps its reader in its state."""

    app: ASGIApp
    authorizer: TokenAuthorizer
    open_paths: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self.open_paths:
            method = "get" if scope["path"] in READ_BY_POST else scope["method"]
            reader = await self.authorizer.reader(scope["headers"], method, scope["path"], _pod(scope))
            if isinstance(reader, HTTPException):
                await error_response(reader.status_code, reader.detail, reader.headers)(scope, receive, send)
                return
            scope["state"] = {**scope.get("state", {}), "reader": reader}
        await self.app(scope, receive, send)


def _pod(scope: Scope) -> str:
    """The pod (namespace/name) that the question is about; empty unless exactly one is named."""
    if scope["path"] != ABOUT_POD:
        return ""
    pods = QueryParams(scope["query_string"]).getlist("pod")
    parts = pods[0].split("/") if len(pods) == 1 else []
    return pods[0] if len(parts) == 2 and all(parts) else ""
