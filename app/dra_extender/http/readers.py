"""Who may read metrics and insight: users of the cluster, by the bearer token that they show.

`Readers` promises: who reads is known to the API server by the token and allowed to get the path (nonResourceURLs of a
ClusterRole), now or within the last minute; when the API server cannot be asked, everybody else is refused. Refusals
are remembered for seconds only, and apart from what is known of readers, so that they push none of it out; both
are bounded in number and bytes. Tokens are kept as keyed digests and never logged. Few questions at a time go to the
API server, whoever asks: the rest of its patience belongs to the verbs.
Rules: kube-rbac-proxy and the secured metrics of controller-runtime.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog
from cachetools import TTLCache
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dra_extender.api.authentication import AccessDecision, UserInfo
from dra_extender.api.errors import ApiError
from dra_extender.http.reports import Unanswered

log = structlog.get_logger(__name__)

KEPT_SECONDS: Final = 60.0
"""How long a token that was revoked, or a permission that was taken away, still counts."""
REFUSED_SECONDS: Final = 10.0
"""How long a permission that was granted after a refusal does not count yet."""
CACHE_BYTES: Final = 2**20
ENTRY_BYTES: Final = 2**10
"""What an entry is charged at least: it bounds their number."""
QUESTIONS: Final = 4
"""Reviews that the API server is asked for at once."""
ASKED_BY_POST: Final = frozenset(("/insight/whatif",))
"""Questions with a body: they change nothing, so who may get the path may ask."""
PATIENCE: Final = 10.0
"""Seconds in which a reader is told."""
_REPORT_SECONDS: Final = 60.0

_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)
"""RFC 6750, b64token."""
_LONGEST_TOKEN: Final = 16 * 2**10
_LONGEST_TEXT: Final = 256


class Authority(Protocol):
    """Who knows the users; both raise ApiError when they cannot say."""

    async def user_of(self, token: str) -> UserInfo | None:
        """Who has the token; None when nobody has."""

    async def may(self, user: UserInfo, verb: str, path: str) -> AccessDecision:
        """Whether the user may do this with the path."""


class Refusal(msgspec.Struct, frozen=True):
    """The answer to somebody who may not read."""

    status: int
    detail: str
    headers: Mapping[str, str] = {}


NO_TOKEN: Final = Refusal(
    401, "a bearer token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": 'Bearer realm="dra-extender"'}
)
BAD_TOKEN: Final = Refusal(
    401,
    "the API server does not know this token: it has expired, or is none of this cluster",
    {"WWW-Authenticate": 'Bearer realm="dra-extender", error="invalid_token"'},
)
UNKNOWN: Final = Refusal(503, "the API server cannot be asked who may read this", {"Retry-After": "1"})

REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    401: {"model": Unanswered, "description": "with --insight-authorization: no token, or none that counts"},
    403: {"model": Unanswered, "description": "with --insight-authorization: the user may not get the path"},
    503: {"model": Unanswered, "description": "nothing is known yet, or readers cannot be checked"},
}
"""How what a reader may ask describes the answers above."""

V = TypeVar("V")


class _Kept(Generic[V]):
    """Answers for a time, bounded in bytes and so in number; those used longest ago go first."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._entries: TTLCache[bytes, tuple[V, int]] = TTLCache(
            CACHE_BYTES, seconds, timer=clock, getsizeof=lambda entry: entry[1]
        )

    def get(self, key: bytes) -> V | None:
        entry = self._entries.get(key)
        return entry[0] if entry is not None else None

    def put(self, key: bytes, value: V) -> None:
        size = ENTRY_BYTES + len(msgspec.json.encode(value))
        if size <= CACHE_BYTES:
            self._entries[key] = value, size

    def __len__(self) -> int:
        return len(self._entries)


class Readers:
    """The users whom `authority` knows and allows."""

    def __init__(self, authority: Authority, clock: Callable[[], float] = time.monotonic) -> None:
        self._authority = authority
        self._secret = secrets.token_bytes(32)
        self._users: _Kept[UserInfo] = _Kept(KEPT_SECONDS, clock)
        self._strangers: _Kept[bool] = _Kept(REFUSED_SECONDS, clock)
        self._allowed: _Kept[bool] = _Kept(KEPT_SECONDS, clock)
        self._denied: _Kept[AccessDecision] = _Kept(REFUSED_SECONDS, clock)
        self._turn = asyncio.Semaphore(QUESTIONS)
        self._reported: TTLCache[str, None] = TTLCache(100, _REPORT_SECONDS, timer=clock)

    async def refusal(self, headers: Iterable[tuple[bytes, bytes]], method: str, path: str) -> Refusal | None:
        """Why a request with these headers is not answered; None when it is."""
        shown = [value for name, value in headers if name == b"authorization"]
        if not shown:
            return NO_TOKEN
        found = _BEARER.fullmatch(shown[0].strip()) if len(shown) == 1 else None
        if found is None or len(found[1]) > _LONGEST_TOKEN:
            return BAD_TOKEN
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._judge(found[1], method.lower(), path)
        except (ApiError, TimeoutError) as problem:
            self._report(problem)
            return UNKNOWN

    async def _judge(self, token: bytes, verb: str, path: str) -> Refusal | None:
        user = await self._user(token)
        if user is None:
            return BAD_TOKEN
        decision = await self._decision(user, verb, path)
        return None if decision.allowed else _forbidden(user, verb, path, decision.reason)

    async def _user(self, token: bytes) -> UserInfo | None:
        key = self._digest(token)
        known = self._users.get(key)
        if known is not None or self._strangers.get(key):
            return known
        async with self._turn:
            known = self._users.get(key)
            if known is not None or self._strangers.get(key):
                return known
            user = await self._authority.user_of(token.decode())
        if user is None:
            self._strangers.put(key, True)
        else:
            self._users.put(key, user)
        return user

    async def _decision(self, user: UserInfo, verb: str, path: str) -> AccessDecision:
        key = self._digest(msgspec.json.encode((user, verb, path)))
        known = self._known_decision(key)
        if known is not None:
            return known
        async with self._turn:
            known = self._known_decision(key)
            if known is not None:
                return known
            decision = await self._authority.may(user, verb, path)
        if decision.allowed:
            self._allowed.put(key, True)
        else:
            self._denied.put(key, decision)
        return decision

    def _known_decision(self, key: bytes) -> AccessDecision | None:
        return AccessDecision(allowed=True) if self._allowed.get(key) else self._denied.get(key)

    def _digest(self, text: bytes) -> bytes:
        return hmac.digest(self._secret, text, "sha256")

    def _report(self, problem: ApiError | TimeoutError) -> None:
        text = str(problem)[:_LONGEST_TEXT] or "no answer in time"
        if text not in self._reported:
            self._reported[text] = None
            log.warning("readers of insight cannot be checked and are refused", problem=text)


def _forbidden(user: UserInfo, verb: str, path: str, reason: str) -> Refusal:
    detail = (
        f"{user.username[:_LONGEST_TEXT]} may not {verb} {path[:_LONGEST_TEXT]}: "
        "that takes a ClusterRole with the path in nonResourceURLs, such as dra-extender-insight-reader"
    )
    return Refusal(403, f"{detail} ({reason[:_LONGEST_TEXT]})" if reason else detail)


class Guard:
    """ASGI middleware: every request except those for `open_paths` needs a reader who may make it."""

    def __init__(self, app: ASGIApp, readers: Readers, open_paths: frozenset[str]) -> None:
        self._app = app
        self._readers = readers
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            method = "get" if scope["path"] in ASKED_BY_POST else scope["method"]
            refusal = await self._readers.refusal(scope["headers"], method, scope["path"])
            if refusal is not None:
                answer = JSONResponse({"detail": refusal.detail}, refusal.status, dict(refusal.headers))
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
