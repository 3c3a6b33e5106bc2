"""Calls that reach a replica which does not lead: the leader decides, whichever replica is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from dra_extender.api.extender import ExtenderBindingArgs, ExtenderBindingResult
from dra_extender.http import forwarding
from dra_extender.http.authorization import AllowedClients
from dra_extender.http.forwarding import HEADER, Forwarding
from dra_extender.http.server import TLS, Certificates, HttpServer, ServerCertificates
from tests.support.http.certificates import write_certificate
from tests.support.http.served import Served
from tests.support.patience import until

CALL = {"Pod": {"metadata": {"name": "p"}, "spec": {}}, "NodeNames": ["n1", "bad"], "NodeNameToMetaVictims": {}}
BIND = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
VERBS = ("/scheduler/filter", "/scheduler/prioritize", "/scheduler/preempt", "/scheduler/bind", "/advisor/prioritize")
NOBODY = "http://127.0.0.1:1"


class Replica(Served):
    """A served application with a given leader: itself at an address of "self"."""

    def __init__(self) -> None:
        super().__init__()
        self.known = ""
        self._news = asyncio.Event()
        self.asked_who_leads = 0

    def follow(self, url: str) -> None:
        self.known, news, self._news = url, self._news, asyncio.Event()
        self.unavailable = "" if url == "self" else f"standby: {url or 'nobody'} leads"
        news.set()

    def leads(self) -> bool:
        return self.known == "self"

    def leader(self) -> str:
        self.asked_who_leads += 1
        return "" if self.leads() else self.known

    async def news(self) -> None:
        await self._news.wait()


@asynccontextmanager
async def running(
    known: str, peer: TLS | None = None, tls: TLS | None = None, clients: AllowedClients | None = None
) -> AsyncIterator[Replica]:
    made = Replica()
    made.follow(known)
    asking = Forwarding(made, peer, REPLICAS if peer else "")
    server = HttpServer(
        made.application(clients=clients or AllowedClients(), forwarding=asking), "127.0.0.1", 0, tls=tls
    )
    await server.start()
    made.url = server.url
    try:
        yield made
    finally:
        await asking.close()
        await server.stop(0)


@pytest.fixture
async def leader() -> AsyncIterator[Replica]:
    async with running("self") as made:
        yield made


@pytest.fixture
async def standby(leader: Replica) -> AsyncIterator[Replica]:
    async with running(leader.url) as made:
        yield made


async def call(
    session: aiohttp.ClientSession, url: str, path: str, **more: Any
) -> tuple[int, Any, aiohttp.ClientResponse]:
    body = BIND if path.endswith("/bind") else CALL
    async with session.post(url + path, json=body, **more) as reply:
        return reply.status, json.loads(await reply.read()), reply


@pytest.mark.parametrize("path", VERBS)
async def test_a_standby_answers_as_the_leader_does_and_closes_the_connection(
    leader: Replica, standby: Replica, session: aiohttp.ClientSession, path: str
) -> None:
    there = await call(session, leader.url, path)
    here = await call(session, standby.url, path)
    assert here[:2] == there[:2]
    assert here[2].headers["Connection"] == "close"
    assert (len(leader.verbs.asked), len(standby.verbs.asked)) == (2, 0)
    verb = "advise" if path.startswith("/advisor") else path.rpartition("/")[2]
    counted = f'dra_extender_verb_requests_total{{result="forwarded",verb="{verb}"}} 1.0'
    assert counted in standby.metrics.exposition().decode().splitlines()


async def test_what_is_wrong_with_a_call_is_said_by_the_leader(
    standby: Replica, session: aiohttp.ClientSession
) -> None:
    async with session.post(standby.url + "/scheduler/prioritize", data=b"{") as reply:
        assert (reply.status, "prioritize request" in await reply.text()) == (400, True)


async def test_a_forwarded_call_is_not_forwarded_again(
    leader: Replica, standby: Replica, session: aiohttp.ClientSession
) -> None:
    status, body, reply = await call(session, standby.url, VERBS[0], headers={HEADER.decode(): "1"})
    assert (status, reply.headers["Connection"]) == (421, "close")
    assert body["detail"] == f"dra-extender: standby: {leader.url} leads"
    assert leader.verbs.asked == []


@pytest.mark.parametrize("before", ["", NOBODY], ids=["nobody leads", "the leader has died"])
async def test_a_call_waits_for_the_next_leader_which_may_be_this_replica(
    leader: Replica, session: aiohttp.ClientSession, before: str
) -> None:
    async with running(before) as standby:
        for following, decided in ((leader.url, (1, 0)), ("self", (1, 1))):
            standby.follow(before)
            standby.asked_who_leads = 0
            waiting = asyncio.create_task(call(session, standby.url, VERBS[3]))
            await until(lambda: standby.asked_who_leads)
            standby.follow(following)
            assert (await waiting)[:2] == (200, {"Error": ""})
            assert (len(leader.verbs.asked), len(standby.verbs.asked)) == decided


async def test_a_leader_that_has_just_been_deposed_sends_the_call_to_the_next(
    leader: Replica, session: aiohttp.ClientSession
) -> None:
    async with running(leader.url) as deposed, running(deposed.url) as standby:
        waiting = asyncio.create_task(call(session, standby.url, VERBS[3]))
        await until(lambda: standby.asked_who_leads > 1)
        standby.follow(leader.url)
        assert (await waiting)[:2] == (200, {"Error": ""})
    assert (len(leader.verbs.asked), deposed.verbs.asked) == (1, [])


async def test_a_call_that_finds_no_leader_in_time_is_refused(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "LEADER_SECONDS", 0.1)
    async with running("") as standby:
        status, body, reply = await call(session, standby.url, VERBS[0])
    assert (status, body["detail"]) == (503, "dra-extender: standby: nobody leads")
    assert reply.headers["Connection"] == "close"


async def test_a_call_that_may_have_been_decided_is_not_sent_again(
    leader: Replica, standby: Replica, session: aiohttp.ClientSession
) -> None:
    async with running("self") as dying:
        ended = asyncio.Event()

        async def slow(_: ExtenderBindingArgs) -> ExtenderBindingResult:
            await ended.wait()
            return ExtenderBindingResult("")

        dying.verbs.bind_with = slow
        standby.follow(dying.url)
        waiting = asyncio.create_task(call(session, standby.url, VERBS[3]))
        await until(lambda: dying.verbs.asked)
        standby.follow(leader.url)
    status, body, _ = await waiting
    ended.set()
    assert (status, "the leader did not respond" in body["detail"]) == (503, True)
    assert leader.verbs.asked == []


# --- certificates ----------------------------------------------------------------------------------------------------

REPLICAS = "dra-extender.dra-system.svc"


def peer_tls(directory: Path, authority: trustme.CA, name: str) -> TLS:
    """A replica with one certificate for both sides of TLS."""
    certificates = Certificates(*write_certificate(directory, authority, name))
    return lambda: certificates.newest


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize(
    ("serving", "asking", "status"),
    [
        (REPLICAS, REPLICAS, 200),
        ("another.dra-system.svc", REPLICAS, 503),  # not believed to be a replica
        (REPLICAS, "web.example.com", 403),  # believed to be a client, and not an allowed one
    ],
)
async def test_replicas_know_each_other_by_a_name_in_their_certificates(
    authority: trustme.CA,
    tmp_path: Path,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    serving: str,
    asking: str,
    status: int,
) -> None:
    monkeypatch.setattr(forwarding, "LEADER_SECONDS", 0.1)
    certificates = ServerCertificates(*write_certificate(tmp_path, authority, serving))
    allowed = AllowedClients(frozenset({"dra-scheduler", REPLICAS}))
    async with running("self", tls=lambda: certificates.newest, clients=allowed) as leader:
        async with running(leader.url, peer_tls(tmp_path, authority, asking)) as standby:
            assert (await call(session, standby.url, VERBS[0]))[0] == status
        assert len(leader.verbs.asked) == (status == 200)


async def test_a_client_that_is_not_allowed_is_not_forwarded(leader: Replica, session: aiohttp.ClientSession) -> None:
    async with running(leader.url, clients=AllowedClients(frozenset({"dra-scheduler"}))) as standby:
        assert (await call(session, standby.url, VERBS[0]))[0] == 403
    assert leader.verbs.asked == []


def test_new_files_are_shown_from_the_next_connection_on(authority: trustme.CA, tmp_path: Path) -> None:
    certificates = Certificates(*write_certificate(tmp_path, authority, REPLICAS))
    before = certificates.newest
    assert not certificates.check()
    write_certificate(tmp_path, authority, REPLICAS)
    assert certificates.check()
    assert certificates.newest is not before
