"""List and watch against a server that cuts, forgets and refuses."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dra_extender.api.errors import SetBackError
from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.kube.client import KubeClient
from dra_extender.kube.knownobjects import KnownObjects
from dra_extender.kube.reflector import Backoff, Reflector, batches
from dra_extender.kube.resources import NODES, PAGE_ITEMS
from dra_extender.service.engine import WatchHealth
from tests.support.kube.scripted import Lines, ScriptedServer
from tests.support.patience import until

PATH = "/api/v1/nodes"


def node(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


def page(version: str, *names: str, token: str = "") -> tuple[int, Any]:
    """One page of a list: nodes as `name` or `name version`."""
    items = [node(name, int(at or 1)) for name, _, at in (each.partition(" ") for each in names)]
    return 200, {"metadata": {"resourceVersion": version, "continue": token}, "items": items}


def event(kind: str, name: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": node(name, version)}


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


class Harness:
    def __init__(self, client: KubeClient, **options: Any) -> None:
        self.nodes: dict[str, str] = {}
        self.synced = 0
        self.reflector = Reflector(
            client,
            KnownObjects(NODES, self.apply),
            on_synced=self.on_synced,
            **{"backoff": Backoff(0.001, 0.002), **options},
        )

    def apply(self, event: ClusterEvent) -> None:
        if isinstance(event, Applied):
            self.nodes[event.key.name] = event.object.metadata.resource_version
        elif isinstance(event, Removed):
            del self.nodes[event.key.name]

    def on_synced(self) -> None:
        self.synced += 1


def watches(server: ScriptedServer) -> int:
    """The number of watches so far."""
    return sum("watch" in asked.query for asked in server.asked)


@pytest.fixture
def harness(client: KubeClient) -> Harness:
    return Harness(client)


async def test_it_lists_in_consistent_pages_and_watches_from_there(
    server: ScriptedServer, harness: Harness, watch_lines: Lines
) -> None:
    server.on("GET", PATH, page("10", "a", token="next"), page("10", "b"))
    server.on("GET", PATH, watch_lines(event("ADDED", "c", 11)), watch=True)
    await harness.reflector.step()
    first, second, watch = (asked.query for asked in server.asked)
    assert first == {"limit": str(PAGE_ITEMS)}
    assert second == {"limit": str(PAGE_ITEMS), "continue": "next"}
    assert {key: watch[key] for key in ("watch", "allowWatchBookmarks", "resourceVersion")} == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "10",
    }
    assert harness.nodes == {"a": "1", "b": "1", "c": "11"}
    assert harness.synced == 1


@pytest.mark.parametrize(
    ("late", "asked"),
    [
        pytest.param(-1, [None, "10", None, "99"], id="before its time"),
        pytest.param(0, [None, "10", "99"], id="in time"),
        pytest.param(60, [None, "10", None, "99"], id="while this process stood still"),
    ],
)
async def test_a_watch_goes_on_where_it_was_only_if_the_server_has_ended_it_in_time(
    server: ScriptedServer, client: KubeClient, watch_lines: Lines, late: int, asked: list[str | None]
) -> None:
    now = 0.0

    async def watch(request: web.Request) -> Any:
        nonlocal now
        now += int(request.query["timeoutSeconds"]) + late
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}
        return await watch_lines(event("ADDED", "a", 11), bookmark)(request)

    harness = Harness(client, clock=lambda: now)
    server.on("GET", PATH, page("10"), page("99", "a 11"))
    server.on("GET", PATH, watch, watch_lines(), watch=True)
    await harness.reflector.step()
    await harness.reflector.step()
    assert [each.query.get("resourceVersion") for each in server.asked] == asked
    assert set(harness.nodes) == {"a"}


@pytest.mark.parametrize("answer", ["event", "status"])
async def test_gone_events_lead_to_a_new_list_that_reports_what_vanished(
    server: ScriptedServer, harness: Harness, watch_lines: Lines, answer: str
) -> None:
    server.on("GET", PATH, page("10", "a", "b"), page("20", "b", "c 15"))
    gone = watch_lines(GONE) if answer == "event" else (410, {"code": 410, "reason": "Expired"})
    server.on("GET", PATH, gone, watch_lines(), watch=True)
    await harness.reflector.step()
    await harness.reflector.step()
    assert set(harness.nodes) == {"b", "c"}
    assert harness.synced == 1
    assert harness.reflector.lists == 2


async def test_a_new_list_is_reported_in_one_step_however_many_pages_it_has(
    server: ScriptedServer, harness: Harness, watch_lines: Lines
) -> None:
    """A bind that had lost its watch saw its own write on the first page of the new list, took that for "everything
    earlier was seen", and bound a pod although an earlier claim with the same device was to come on the second page.
    """
    seen: list[dict[str, str]] = []

    async def last_page(_: web.Request) -> web.Response:
        seen.append(dict(harness.nodes))
        return web.json_response(page("20", "c 16")[1])

    server.on("GET", PATH, page("10", "b"), page("20", "a 15", token="next"), last_page)
    server.on("GET", PATH, watch_lines(GONE), watch_lines(), watch=True)
    await harness.reflector.step()
    await harness.reflector.step()
    assert seen == [{"b": "1"}]
    assert set(harness.nodes) == {"a", "c"}


async def test_a_continue_token_that_expired_starts_the_list_over(
    server: ScriptedServer, harness: Harness, watch_lines: Lines
) -> None:
    server.on("GET", PATH, page("10", "a", token="next"), (410, {"code": 410}), page("20", "a", "b"))
    server.on("GET", PATH, watch_lines(), watch=True)
    await harness.reflector.step()
    assert harness.synced == 0
    await harness.reflector.step()
    assert harness.synced == 1
    assert set(harness.nodes) == {"a", "b"}


@pytest.mark.parametrize(
    ("listed", "watched"),
    [
        pytest.param(page("900", "a"), (), id="a list of an older state"),
        pytest.param(page("2000", "a 2"), (), id="an older object in a newer list"),
        pytest.param(page("2000", "a 1000", "b 999"), (), id="an object that was deleted"),
        pytest.param(page("2000", "a 1000"), (event("MODIFIED", "a", 1500),), id="an older event"),
        pytest.param(
            page("2000", "a 1000"),
            ({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1999"}}},),
            id="an older bookmark",
        ),
    ],
)
async def test_a_reflector_ends_when_the_server_was_set_back_and_applies_nothing_of_that(
    server: ScriptedServer,
    harness: Harness,
    watch_lines: Lines,
    listed: tuple[int, Any],
    watched: tuple[dict[str, Any], ...],
) -> None:
    server.on("GET", PATH, page("999"), listed)
    server.on("GET", PATH, watch_lines(event("ADDED", "a", 1000)), watch_lines(*watched), watch=True)
    with pytest.raises(SetBackError):
        await harness.reflector.run()
    assert harness.nodes == {"a": "1000"}


@pytest.mark.parametrize("status", [403, 404, 500, 503])
async def test_a_refused_list_is_tried_again_and_says_why_meanwhile(
    server: ScriptedServer, harness: Harness, watch_lines: Lines, status: int
) -> None:
    server.on("GET", PATH, (status, {"message": "not now"}), page("10", "a"))
    server.on("GET", PATH, watch_lines(), watch=True)
    pause = await harness.reflector.step()
    assert pause > 0
    assert harness.reflector.problem == "not now"
    await harness.reflector.step()
    assert harness.reflector.problem == ""
    assert set(harness.nodes) == {"a"}


async def test_a_malformed_event_does_not_end_it(server: ScriptedServer, harness: Harness, watch_lines: Lines) -> None:
    server.on("GET", PATH, page("10"))
    server.on("GET", PATH, watch_lines(b"{nonsense\n"), watch_lines(event("ADDED", "a", 11)), watch=True)
    await harness.reflector.step()
    await harness.reflector.step()
    assert set(harness.nodes) == {"a"}


async def test_selectors_are_sent_with_lists_and_watches(
    server: ScriptedServer, client: KubeClient, watch_lines: Lines
) -> None:
    harness = Harness(client, selector={"fieldSelector": "status.phase!=Failed"})
    server.on("GET", PATH, page("10"))
    server.on("GET", PATH, watch_lines(), watch=True)
    await harness.reflector.step()
    assert [asked.query["fieldSelector"] for asked in server.asked] == ["status.phase!=Failed"] * 2


async def test_it_shows_how_long_nobody_has_been_watching(
    server: ScriptedServer, client: KubeClient, watch_lines: Lines
) -> None:
    now = 100.0

    def clock() -> float:
        return now

    harness = Harness(client, clock=clock)
    server.on("GET", PATH, page("10", "a"))
    server.on("GET", PATH, watch_lines(hold=True), watch=True)
    now = 103.0
    assert harness.reflector.behind == 3.0
    task = asyncio.create_task(harness.reflector.run())
    await until(lambda: len(server.asked) == 2)
    await until(lambda: harness.reflector.behind == 0.0)
    now = 500.0
    assert harness.reflector.behind == 0.0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    now = 507.0
    assert harness.reflector.behind == 7.0


@pytest.mark.parametrize("answer", ["event", "outage"])
async def test_a_watch_that_fails_leads_to_a_new_list(
    server: ScriptedServer, harness: Harness, watch_lines: Lines, answer: str
) -> None:
    """Meanwhile the server may have been set back, and have got as far again."""
    bad: Any = watch_lines(b"{nonsense\n") if answer == "event" else (503, {})
    server.on("GET", PATH, page("10", "a"), page("20", "b 15"))
    server.on("GET", PATH, bad, watch_lines(event("ADDED", "c", 21)), watch=True)
    for _ in range(2):
        await harness.reflector.step()
    assert [asked.query.get("resourceVersion") for asked in server.asked] == [None, "10", None, "20"]
    assert set(harness.nodes) == {"b", "c"}


async def test_events_that_arrive_together_are_applied_in_several_turns(
    server: ScriptedServer, client: KubeClient, watch_lines: Lines
) -> None:
    now, turn, applied = 0.0, 0, Counter[int]()

    class Slow(Harness):
        def apply(self, event: ClusterEvent) -> None:
            nonlocal now
            now += 0.002
            applied[turn] += 1

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    harness = Slow(client, clock=lambda: now)
    server.on("GET", PATH, page("10"))
    server.on("GET", PATH, watch_lines(*(event("ADDED", f"n{n}", 11 + n) for n in range(200))), watch=True)
    counting = asyncio.create_task(count_turns())
    await harness.reflector.step()
    counting.cancel()
    assert applied.total() == 200
    assert max(applied.values()) <= 3


async def test_a_watch_that_is_opened_and_fails_again_and_again_counts_as_behind(
    server: ScriptedServer, client: KubeClient, watch_lines: Lines
) -> None:
    now = 0.0
    harness = Harness(client, clock=lambda: now)
    following = WatchHealth([harness.reflector], 30.0)
    server.on("GET", PATH, page("10"), page("12"), (503, {"message": "no list either"}), page("20"))
    bad = watch_lines(b"{nonsense\n")
    server.on("GET", PATH, bad, bad, watch_lines(hold=True), watch=True)
    for moment in (0.0, 10.0):
        now = moment
        await harness.reflector.step()
    now = 25.0
    assert [(check.ok, check.problem[:15]) for check in following.checks()] == [(True, "watch of nodes:")]
    now = 50.0
    await harness.reflector.step()
    assert following.unavailable() == "not watching: Node for 40 s (no list either)"
    assert [check.ok for check in following.checks()] == [False]
    task = asyncio.create_task(harness.reflector.run())
    await until(lambda: watches(server) == 3)
    await until(lambda: following.unavailable() == "")
    now = 54.0
    assert harness.reflector.behind == 4.0  # open, and nothing shows that it works
    now = 90.0
    assert harness.reflector.behind == 0.0  # it would have failed by now
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_after_a_watch_that_worked_for_a_while_pauses_are_short_again(
    server: ScriptedServer, client: KubeClient, watch_lines: Lines
) -> None:
    now = 0.0

    async def long_watch(request: Any) -> Any:
        nonlocal now
        now += 60.0
        return await watch_lines()(request)

    backoff = Backoff(1.0, 64.0, chance=lambda: 1.0)
    harness = Harness(client, clock=lambda: now, backoff=backoff)
    server.on("GET", PATH, (503, {}), (503, {}), (503, {}), page("10"))
    server.on("GET", PATH, long_watch, (503, {}), watch=True)
    assert [await harness.reflector.step() for _ in range(3)] == [1.0, 2.0, 4.0]
    await harness.reflector.step()
    assert await harness.reflector.step() == 1.0


async def test_a_run_survives_a_watch_that_ends_at_once_again_and_again(
    server: ScriptedServer, harness: Harness, watch_lines: Lines
) -> None:
    server.on("GET", PATH, page("10"))
    server.on("GET", PATH, watch_lines(), watch=True)
    task = asyncio.create_task(harness.reflector.run())
    await until(lambda: watches(server) >= 5)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("sizes", "portions"),
    [([], []), ([1] * 250, [100, 100, 50]), ([2**19] * 5, [2, 2, 1]), ([2**21, 1, 2**21], [1, 2]), ([1], [1])],
)
def test_large_objects_are_decoded_a_few_at_a_time(sizes: list[int], portions: list[int]) -> None:
    items = [msgspec.Raw(b"x" * size) for size in sizes]
    assert [len(batch) for batch in batches(items)] == portions
