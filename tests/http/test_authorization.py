"""Who may read metrics and insight."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping

import aiohttp
import pytest
from starlette.exceptions import HTTPException
from structlog.testing import capture_logs
from yarl import URL

from dra_extender.api.errors import ApiError, RejectedError, UnreachableError
from dra_extender.http import authorization
from dra_extender.http.application import create_app
from dra_extender.http.authorization import (
    BAD_TOKEN,
    CACHE_BYTES,
    ENTRY_BYTES,
    NO_REVIEW,
    NO_TOKEN,
    REVIEWS,
    TokenAuthorizer,
)
from dra_extender.http.verbs import VerbContext, verb_routes
from dra_extender.kube.access import AccessDecision, Reviews, UserInfo
from dra_extender.scheduling.reader import ADMINISTRATOR, Reader
from tests.support.http.served import Served, serving

PROMETHEUS = UserInfo("system:serviceaccount:monitoring:prometheus", "u1", ("system:authenticated",))
NOBODY = UserInfo("nobody", "u2")


class ScriptedAuthority(Reviews):
    """Knows the tokens `good` and `poor`, and grants /metrics to the first; counts questions and keeps their number at
    any time.
    """

    def __init__(self) -> None:
        self.users = {"good": PROMETHEUS, "poor": NOBODY}
        self.granted = {(PROMETHEUS.username, "get", "/metrics")}
        self.asked: list[str] = []
        self.problem: ApiError | None = None
        self.gate: asyncio.Event | None = None
        self.at_once = self.most_at_once = 0
        self.now = 0.0

    async def user_of(self, token: str) -> UserInfo | None:
        await self._answer("token")
        return self.users.get(token)

    async def may(self, user: UserInfo, attributes: Mapping[str, str]) -> AccessDecision:
        await self._answer("access")
        parts = (attributes.get(part, "") for part in ("resource", "namespace", "name"))
        target = attributes.get("path") or "/".join(parts)
        return AccessDecision((user.username, attributes["verb"], target) in self.granted)

    async def _answer(self, question: str) -> None:
        self.asked.append(question)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if self.gate is not None:
            await self.gate.wait()
        self.at_once -= 1
        if self.problem is not None:
            raise self.problem


@pytest.fixture
def authority() -> ScriptedAuthority:
    return ScriptedAuthority()


@pytest.fixture
def judged(authority: ScriptedAuthority) -> TokenAuthorizer:
    return TokenAuthorizer(authority, lambda: authority.now)


async def status(judged: TokenAuthorizer, token: str, path: str = "/metrics", method: str = "GET") -> int:
    """200 when a request with the token is answered."""
    found = await judged.reader([(b"authorization", f"Bearer {token}".encode())], method, path)
    return found.status_code if isinstance(found, HTTPException) else 200


# --- who is refused


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        ([], NO_TOKEN),
        ([(b"accept", b"*/*")], NO_TOKEN),
        ([(b"authorization", b"")], BAD_TOKEN),
        ([(b"authorization", b"Bearer")], BAD_TOKEN),
        ([(b"authorization", b"Bearer ")], BAD_TOKEN),
        ([(b"authorization", b"Basic Z29vZDpnb29k")], BAD_TOKEN),
        ([(b"authorization", b"good")], BAD_TOKEN),
        ([(b"authorization", b"Bearer good good")], BAD_TOKEN),
        ([(b"authorization", b"Bearer good"), (b"authorization", b"Bearer good")], BAD_TOKEN),
        ([(b"authorization", b"Bearer g\xf6\xf6d")], BAD_TOKEN),
        ([(b"authorization", b'Bearer g"}}')], BAD_TOKEN),
        ([(b"authorization", b"Bearer " + b"x" * 20_000)], BAD_TOKEN),
        ([(b"authorization", b"Bearer good"), (b"dra-extender-authorization", b"Bearer good")], BAD_TOKEN),
        ([(b"authorization", b"Bearer good")], ADMINISTRATOR),
        ([(b"authorization", b"bearer  good ")], ADMINISTRATOR),
        ([(b"dra-extender-authorization", b"Bearer good")], ADMINISTRATOR),
    ],
)
async def test_what_is_no_token_is_refused_without_a_question(
    judged: TokenAuthorizer,
    authority: ScriptedAuthority,
    headers: list[tuple[bytes, bytes]],
    want: HTTPException | Reader,
) -> None:
    assert await judged.reader(headers, "GET", "/metrics") == want
    assert bool(authority.asked) == (want == ADMINISTRATOR)


@pytest.mark.parametrize(
    ("token", "method", "path", "want"),
    [
        ("good", "GET", "/metrics", 200),
        ("good", "POST", "/metrics", 403),
        ("good", "GET", "/insight/devices", 403),
        ("good", "POST", "/insight/whatif", 403),
        ("good", "POST", "/v1/simulate", 403),
        ("poor", "GET", "/metrics", 403),
        ("garbage", "GET", "/metrics", 401),
    ],
)
async def test_the_api_server_decides_by_user_verb_and_path(
    judged: TokenAuthorizer, token: str, method: str, path: str, want: int
) -> None:
    assert await status(judged, token, path, method) == want


@pytest.mark.parametrize(
    ("granted", "want"),
    [
        ([], 403),
        (["get pods/team-b/p"], 403),
        (["get pods/team-a/q"], 403),
        (["list pods//", "list resourceclaims//"], 403),
        (["get pods/team-a/p"], Reader("team-a")),
        (["get pods/team-a/p", "list pods//"], Reader("team-a")),
        (["get pods/team-a/p", "list resourceclaims//"], Reader("team-a")),
        (["get pods/team-a/p", "list pods//", "list resourceclaims//"], ADMINISTRATOR),
        (["get /insight/diagnosis"], ADMINISTRATOR),
    ],
)
async def test_who_may_get_a_pod_reads_why_it_waits_and_only_who_lists_all_reads_all_names(
    judged: TokenAuthorizer, authority: ScriptedAuthority, granted: list[str], want: int | Reader
) -> None:
    authority.granted = {(NOBODY.username, *each.split(" ", 1)) for each in granted}  # type: ignore[misc]
    found = await judged.reader([(b"authorization", b"Bearer poor")], "GET", "/insight/diagnosis", "team-a/p")
    assert (found.status_code if isinstance(found, HTTPException) else found) == want


async def test_who_may_not_hears_as_whom_and_what_it_takes(
    judged: TokenAuthorizer, authority: ScriptedAuthority
) -> None:
    refusal = await judged.reader([(b"authorization", b"Bearer poor")], "GET", "/metrics")
    assert isinstance(refusal, HTTPException)
    assert refusal.detail.startswith("nobody may not get /metrics: bind a ClusterRole")


@pytest.mark.parametrize("problem", [UnreachableError(0, "Unreachable", "no route"), RejectedError(403, "Forbidden")])
async def test_when_the_api_server_cannot_be_asked_nobody_reads(
    judged: TokenAuthorizer, authority: ScriptedAuthority, problem: ApiError
) -> None:
    authority.problem = problem
    with capture_logs() as logs:
        assert [await status(judged, "good") for _ in range(5)] == [NO_REVIEW.status_code] * 5
    assert [entry["event"] for entry in logs] == ["cannot check tokens: requests for metrics and insight are refused"]
    authority.problem = None
    assert await status(judged, "good") == 200, "an answer that did not come is not remembered"


async def test_a_question_without_an_answer_ends(
    judged: TokenAuthorizer, authority: ScriptedAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization, "REVIEW_SECONDS", 0.0)
    authority.gate = asyncio.Event()
    assert await status(judged, "good") == 503


# --- what is remembered


async def test_answers_are_kept_for_a_time_and_outlive_an_outage(
    judged: TokenAuthorizer, authority: ScriptedAuthority
) -> None:
    for problem in (None, UnreachableError(0), None):
        authority.problem = problem
        assert await status(judged, "good") == 200
    assert authority.asked == ["token", "access"]
    authority.granted.clear()
    authority.now += authorization.GRANTED_SECONDS + 1
    assert await status(judged, "good") == 403
    authority.granted.add((PROMETHEUS.username, "get", "/metrics"))
    authority.now += authorization.DENIED_SECONDS + 1
    assert await status(judged, "good") == 200
    authority.now += authorization.GRANTED_SECONDS + 1
    authority.problem = UnreachableError(0)
    assert await status(judged, "good") == 503
    authority.problem = None
    del authority.users["good"]
    assert await status(judged, "good") == 401


async def test_however_many_strangers_come_readers_are_remembered_and_memory_is_bounded(
    judged: TokenAuthorizer, authority: ScriptedAuthority
) -> None:
    assert await status(judged, "good") == 200
    for index in range(3 * CACHE_BYTES // ENTRY_BYTES):
        await status(judged, f"garbage-{index}")
    authority.asked.clear()
    assert await status(judged, "good") == 200
    assert authority.asked == []
    kept = (judged._granted, judged._denied)
    assert all(len(cache) <= CACHE_BYTES // ENTRY_BYTES for cache in kept)


async def test_a_user_larger_than_the_cache_is_asked_for_each_time(
    judged: TokenAuthorizer, authority: ScriptedAuthority
) -> None:
    authority.users["good"] = UserInfo(PROMETHEUS.username, groups=("g" * CACHE_BYTES,))
    for _ in range(2):
        assert await status(judged, "good") == 200
    assert authority.asked.count("token") == 2


async def test_no_token_is_kept_in_clear(judged: TokenAuthorizer) -> None:
    token = "a-token-that-nothing-else-in-this-process-holds"
    assert await status(judged, token) == 401
    held: list[object] = []
    seen: set[bytes] = set()
    for cache in (judged._granted, judged._denied):
        held += gc.get_referents(cache, *cache.items())
        seen |= set(cache)
    assert any(len(key) == 32 for key in seen)
    assert token not in repr((held, seen))


async def test_few_questions_are_asked_at_once_and_those_who_wait_share_an_answer(
    judged: TokenAuthorizer, authority: ScriptedAuthority
) -> None:
    authority.gate = asyncio.Event()
    strangers = [asyncio.create_task(status(judged, f"garbage-{index}")) for index in range(20)]
    same = [asyncio.create_task(status(judged, "good")) for _ in range(20)]
    while authority.at_once < REVIEWS:
        await asyncio.sleep(0)
    authority.gate.set()
    assert set(await asyncio.gather(*strangers)) == {401}
    assert set(await asyncio.gather(*same)) == {200}
    assert authority.most_at_once == REVIEWS
    assert len(authority.asked) < 20 + 2 * REVIEWS + 1


# --- over HTTP


@pytest.fixture
async def guarded(served: Served, judged: TokenAuthorizer) -> AsyncIterator[list[str]]:
    """The URLs of an address of insight alone, and of one that serves the verbs as well."""
    context = VerbContext(lambda: "", served.metrics)
    alone = create_app(served.pages, judged)
    both = create_app(served.pages, judged, verb_routes(lambda: served.extender, context))
    async with serving(alone) as one, serving(both) as other:
        yield [one.url, other.url]


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/livez", 200),
        ("/readyz", 200),
        ("/metrics", 401),
        ("/openapi.json", 401),
        ("/insight/devices", 401),
        ("/nothing", 401),
        ("/livez/", 401),
        ("//livez", 401),
        ("/livez/../metrics", 401),
        ("/livez?/../metrics", 200),
        ("/livez%2f..%2fmetrics", 401),
        ("/%6detrics", 401),
    ],
)
async def test_only_probes_are_open(guarded: list[str], session: aiohttp.ClientSession, path: str, want: int) -> None:
    for url in guarded:
        async with session.get(URL(url + path, encoded=True)) as reply:
            assert (reply.status, url) == (want, url)
            assert (reply.headers.get("WWW-Authenticate", "").split()[:1] == ["Bearer"]) == (want == 401)


@pytest.mark.parametrize(("token", "want"), [("good", 200), ("poor", 403), ("garbage", 401)])
async def test_metrics_are_for_those_who_may(
    guarded: list[str], session: aiohttp.ClientSession, token: str, want: int
) -> None:
    for url in guarded:
        async with session.get(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"}) as reply:
            assert reply.status == want
            assert "dra_extender_ready" in await reply.text() if want == 200 else "detail" in await reply.json()


async def test_verbs_are_not_for_readers_to_protect(guarded: list[str], session: aiohttp.ClientSession) -> None:
    call = {"Pod": {"metadata": {}, "spec": {}}, "NodeNames": ["n1"]}
    async with session.post(f"{guarded[1]}/scheduler/filter", json=call) as reply:
        assert reply.status == 200


async def test_when_the_api_server_cannot_be_asked_probes_are_still_answered(
    guarded: list[str], session: aiohttp.ClientSession, authority: ScriptedAuthority
) -> None:
    authority.problem = UnreachableError(0)
    headers = {"Authorization": "Bearer good"}
    for path, want in (("/livez", 200), ("/metrics", 503)):
        async with session.get(guarded[0] + path, headers=headers) as reply:
            assert (reply.status, "Retry-After" in reply.headers) == (want, want == 503)


async def test_no_token_is_in_the_log_whatever_happens(judged: TokenAuthorizer, authority: ScriptedAuthority) -> None:
    with capture_logs() as logs:
        for problem in (None, UnreachableError(0, "Unreachable", "POST /apis: refused")):
            authority.problem = problem
            for token in ("good", "poor", "a-secret"):
                await status(judged, token)
    assert not any(token in repr(logs) for token in ("good", "poor", "a-secret"))
