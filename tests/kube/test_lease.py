"""Candidates for one Lease, with clocks that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dra_extender.kube.client import KubeClient
from dra_extender.kube.lease import LeaderElection, Lease, LeaseSettings
from tests.support.kube.scripted import Lines, ScriptedServer
from tests.support.patience import LONGEST, until

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/dra-system/leases"
PATH = COLLECTION + "/dra-extender"


class LeaseStore:
    """The one Lease, with resourceVersion preconditions."""

    def __init__(self, server: ScriptedServer) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.broken = False
        server.on("GET", PATH, self.get)
        server.on("POST", COLLECTION, self.post)
        server.on("PUT", PATH, self.put)

    def store(self, lease: dict[str, Any]) -> web.Response:
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease = lease
        return web.json_response(lease)

    def error(self, status: int) -> web.Response:
        details = {"group": "coordination.k8s.io", "kind": "leases", "name": "dra-extender"}
        return web.json_response({"message": f"HTTP {status}", "details": details}, status=status)

    async def get(self, _: web.Request) -> web.Response:
        if self.broken:
            return self.error(500)
        return web.json_response(self.lease) if self.lease else self.error(404)

    async def post(self, request: web.Request) -> web.Response:
        return self.error(409) if self.lease else self.store(msgspec.json.decode(await request.read()))

    async def put(self, request: web.Request) -> web.Response:
        lease = msgspec.json.decode(await request.read())
        if self.broken:
            return self.error(500)
        if self.lease is None or lease["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return self.error(409)
        return self.store(lease)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(server: ScriptedServer) -> LeaseStore:
    return LeaseStore(server)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def candidate(client: KubeClient, clock: Clock, identity: str, changes: list[bool] | None = None) -> LeaderElection:
    settings = LeaseSettings("dra-system", "dra-extender", identity)
    told = changes if changes is not None else []
    return LeaderElection(client, settings, on_change=told.append, clock=clock)


async def test_the_first_candidate_creates_the_lease_and_leads(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    changes: list[bool] = []
    election = candidate(client, clock, "a", changes)
    await election.step()
    assert election.leading
    assert changes == [True]
    assert (store.spec["holderIdentity"], store.spec["leaseDurationSeconds"]) == ("a", 15)


async def test_renewing_keeps_the_time_of_acquisition(store: LeaseStore, client: KubeClient, clock: Clock) -> None:
    election = candidate(client, clock, "a")
    await election.step()
    acquired, transitions = store.spec["acquireTime"], store.spec["leaseTransitions"]
    clock.now += 5
    await election.step()
    assert (store.spec["acquireTime"], store.spec["leaseTransitions"]) == (acquired, transitions)
    assert store.version == 2


async def test_a_second_candidate_waits_until_the_lease_stood_still_for_its_duration(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock, "a"), candidate(client, clock, "b")
    await first.step()
    await second.step()
    clock.now += 14
    await second.step()
    assert (second.leading, second.holder) == (False, "a")
    clock.now += 2
    await second.step()
    assert second.leading
    assert (store.spec["holderIdentity"], store.spec["leaseTransitions"]) == ("b", 2)


async def test_a_renewal_seen_by_the_second_starts_its_wait_anew(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock, "a"), candidate(client, clock, "b")
    await first.step()
    await second.step()
    clock.now += 9
    await first.step()
    await second.step()
    clock.now += 14
    await second.step()
    assert not second.leading


async def test_a_leader_that_cannot_renew_stops_before_anybody_may_take_over(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    changes: list[bool] = []
    election = candidate(client, clock, "a", changes)
    await election.step()
    store.broken = True
    clock.now += 9.9
    await election.step()
    assert (election.leading, election.holder) == (True, "a")
    clock.now += 0.2
    assert (election.leading, election.holder) == (False, "a"), "by the clock alone, even when no step runs"
    await election.step()
    assert changes == [True, False]


async def test_a_deposed_leader_notices_and_does_not_take_the_lease_back(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock, "a"), candidate(client, clock, "b")
    await first.step()
    await second.step()
    clock.now += 16
    await second.step()
    await first.step()
    assert (first.leading, second.leading) == (False, True)
    assert store.spec["holderIdentity"] == "b"


async def test_a_leader_that_stops_while_another_leads_is_told_that_it_lost_the_lease_and_that_it_leads_again(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    changes: list[bool] = []
    first, second = candidate(client, clock, "a", changes), candidate(client, clock, "b")
    await first.step()
    await second.step()
    clock.now += 16
    await second.step()
    clock.now += 5
    await second.release()
    await first.step()
    assert (first.leading, store.spec["leaseTransitions"]) == (True, 4)
    assert changes == [True, False, True]


async def test_a_released_lease_is_taken_at_once(store: LeaseStore, client: KubeClient, clock: Clock) -> None:
    first, second = candidate(client, clock, "a"), candidate(client, clock, "b")
    await first.step()
    await second.step()
    await first.release()
    assert not first.leading
    assert store.spec["holderIdentity"] == ""
    await second.step()
    assert second.leading


async def test_a_released_lease_is_not_taken_back_by_a_step_that_comes_late(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    election = candidate(client, clock, "a")
    await election.step()
    await asyncio.gather(election.step(), election.release(), election.step())
    assert (election.leading, store.spec["holderIdentity"]) == (False, "")


async def test_releasing_what_was_never_held_asks_nothing(
    server: ScriptedServer, store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    await candidate(client, clock, "a").release()
    assert server.asked == []


async def test_releasing_leaves_anothers_lease_alone(store: LeaseStore, client: KubeClient, clock: Clock) -> None:
    first, second = candidate(client, clock, "a"), candidate(client, clock, "b")
    await first.step()
    await second.step()
    clock.now += 16
    await second.step()
    await first.release()
    assert store.spec["holderIdentity"] == "b"


# --- fit to lead, and where ------------------------------------------------------------------------------------------


async def test_a_candidate_that_could_not_do_the_work_neither_takes_the_lease_nor_asks_for_it(
    server: ScriptedServer, store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    settings = LeaseSettings("dra-system", "dra-extender", "a")
    election = LeaderElection(client, settings, fit=lambda: False, clock=clock)
    await election.step()
    assert (election.leading, store.lease, server.asked) == (False, None, [])


async def test_a_leader_that_cannot_do_the_work_any_more_gives_the_lease_back_and_competes_again_later(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    able, changes = [True], list[bool]()
    settings = LeaseSettings("dra-system", "dra-extender", "a")
    election = LeaderElection(client, settings, on_change=changes.append, fit=lambda: bool(able), clock=clock)
    await election.step()
    able.clear()
    await election.step()
    assert (election.leading, store.spec["holderIdentity"]) == (False, "")
    able.append(True)
    await election.step()
    assert changes == [True, False, True]


async def test_the_lease_says_where_its_holder_serves_and_keeps_what_others_wrote_on_it(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    first = LeaderElection(
        client, LeaseSettings("dra-system", "dra-extender", "a", "https://10.0.0.1:8443"), clock=clock
    )
    second = candidate(client, clock, "b")
    await first.step()
    assert store.lease is not None
    store.lease["metadata"]["annotations"]["somebody"] = "else"
    await first.step()
    await second.step()
    assert (first.address, second.address) == ("", "https://10.0.0.1:8443")
    await first.release()
    assert store.lease["metadata"]["annotations"] == {"somebody": "else"}
    await second.step()
    await first.step()
    assert (second.leading, first.holder, first.address) == (True, "b", "")


async def test_handing_over_takes_one_request_of_each(
    server: ScriptedServer, store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock, "a"), candidate(client, clock, "b")
    await first.step()
    await second.step()
    asked = len(server.asked)
    await first.release()
    assert store.lease is not None
    second._observe(msgspec.convert(store.lease, Lease))  # as its watch would show it
    await second.step()
    assert [request.method for request in server.asked[asked:]] == ["PUT", "PUT"]
    assert second.leading


async def test_a_lease_that_is_not_free_any_more_is_looked_at_anew(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    first, second, third = (candidate(client, clock, name) for name in "abc")
    await first.step()
    await first.release()
    assert store.lease is not None
    free = msgspec.convert(store.lease, Lease)
    await second.step()
    third._observe(free)
    await third.step()
    assert (third.leading, third.holder) == (False, "b")


@pytest.mark.parametrize("free", [False, True])
async def test_a_lease_is_created_as_last_seen(store: LeaseStore, client: KubeClient, clock: Clock, free: bool) -> None:
    """One that is deleted, while it is held or free, has the annotations that others wrote."""
    first, second = candidate(client, clock, "a"), candidate(client, clock, "b")
    await first.step()
    store.store({**(store.lease or {}), "metadata": {"name": "dra-extender", "annotations": {"somebody": "else"}}})
    await first.step()
    await (first.release() if free else first.step())
    await second.look()
    store.lease = None
    await second.step()
    await second.step()
    assert (second.leading, second.annotation("somebody")) == (True, "else")


async def test_a_lease_that_was_annotated_meanwhile_is_given_back_all_the_same(
    store: LeaseStore, client: KubeClient, clock: Clock
) -> None:
    election = candidate(client, clock, "a")
    await election.step()
    assert store.lease is not None
    store.store(store.lease)
    await election.release()
    assert store.spec["holderIdentity"] == ""


# --- seeing what happens ---------------------------------------------------------------------------------------------

SLOW = LeaseSettings("dra-system", "dra-extender", "b", "", LONGEST, LONGEST, LONGEST)
"""Nothing that is seen in time is seen by asking from time to time."""


def event(holder: str, version: int, kind: str = "MODIFIED") -> dict[str, Any]:
    lease = {"metadata": {"name": "dra-extender", "resourceVersion": str(version)}, "spec": {"holderIdentity": holder}}
    return {"type": kind, "object": lease}


async def test_a_lease_that_is_given_back_is_taken_when_the_watch_shows_it(
    server: ScriptedServer, store: LeaseStore, client: KubeClient, watch_lines: Lines
) -> None:
    store.store(event("a", 1)["object"])
    given_back = asyncio.Event()
    server.on("GET", COLLECTION, watch_lines(event("", 2), hold=True, gate=given_back), watch=True)
    second = LeaderElection(client, SLOW)
    running = asyncio.create_task(second.run())
    await until(lambda: second.holder == "a")
    store.store(event("", 2)["object"])
    given_back.set()
    await until(lambda: second.leading)
    (watched,) = (asked for asked in server.asked if asked.query.get("watch"))
    assert watched.query["fieldSelector"] == "metadata.name=dra-extender"
    await ended(running)


async def test_a_lease_is_taken_when_it_expires_and_not_at_the_next_look(
    server: ScriptedServer, store: LeaseStore, client: KubeClient, watch_lines: Lines
) -> None:
    server.on("GET", COLLECTION, watch_lines(hold=True), watch=True)
    store.store(event("a", 1)["object"])
    second = LeaderElection(client, msgspec.structs.replace(SLOW, lease_duration=0.2))
    running = asyncio.create_task(second.run())
    await until(lambda: second.leading)
    looks = [asked for asked in server.asked if (asked.method, asked.path) == ("GET", PATH)]
    assert (store.spec["holderIdentity"], len(looks)) == ("b", 2), "one look at who has it, one when it has expired"
    await ended(running)


async def test_what_the_watch_tells_late_does_not_replace_what_is_known(
    server: ScriptedServer, store: LeaseStore, client: KubeClient, watch_lines: Lines
) -> None:
    store.store(event("a", 1)["object"])
    store.version = 6
    store.store(event("a", 7)["object"])
    late = [event("", 5), event("x", 6), event("c", 8)]
    gate = asyncio.Event()
    server.on("GET", COLLECTION, watch_lines(*late, hold=True, gate=gate), watch=True)
    second = LeaderElection(client, SLOW)
    running = asyncio.create_task(second.run())
    await until(lambda: second.holder == "a")
    heard, news = list[str](), second.news()
    gate.set()
    await news
    heard.append(second.holder)
    assert (heard, second.leading) == (["c"], False)
    await ended(running)


async def test_a_line_that_cannot_be_read_ends_the_watch_and_nothing_else(
    server: ScriptedServer, store: LeaseStore, client: KubeClient, watch_lines: Lines
) -> None:
    store.store(event("a", 1)["object"])
    quick = msgspec.structs.replace(SLOW, retry_period=0.01)
    answers = watch_lines(b"nonsense\n"), watch_lines(event("c", 9), hold=True)
    server.on("GET", COLLECTION, *answers, watch=True)
    second = LeaderElection(client, quick)
    running = asyncio.create_task(second.run())
    await until(lambda: len([asked for asked in server.asked if asked.query.get("watch")]) == 2)
    assert not running.done()
    await ended(running)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
