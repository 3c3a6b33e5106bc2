"""Acceptance tests 41 to 44: one leads, the others wait; no replica decides before it has seen the whole cluster."""

from __future__ import annotations

import asyncio
import http.client
from urllib.parse import urlsplit

import pytest

from tests.e2e.case import Case
from tests.e2e.disturbance import finalizer, once
from tests.e2e.extender import Extender, scheduler_trust
from tests.e2e.ground import Ground
from tests.e2e.wire import Exchange, ask
from tests.support.patience import LONGEST

pytestmark = pytest.mark.e2e

QUESTION = '{"Pod":{"metadata":{"name":"p","namespace":"d","uid":"u"},"spec":{}},"Nodes":null,"NodeNames":["node-1"]}'


def test_41_a_leader_that_slept_too_long_writes_nothing_more(
    case: Case, ground: Ground, pair: tuple[Extender, Extender]
) -> None:
    old, new = pair
    case.publish("node-1", 2)
    asleep: list[Exchange] = []

    async def sleep(exchange: Exchange) -> None:
        old.pause()
        asleep.append(exchange)

    with ground.api.rule(after=once(finalizer("one"), sleep)):
        case.pod_with_claim("one")
        ground.eventually(lambda: asleep, "the old leader's sleep")
    ground.eventually(lambda: new.leading, "the new leader")
    ground.calls.target = new.url
    case.pod_with_claim("two")
    case.until_runs("two")
    seen = len(ground.api.log)  # only the old leader talks through this wire
    old.resume()
    ground.eventually(lambda: old.is_standby, "the old leader's resignation")
    case.until_runs("one")
    writes = [f"{exchange.method} {exchange.path}" for exchange in ground.api.log[seen:] if exchange.method != "GET"]
    assert [write for write in writes if case.name in write] == []
    held = {case.devices(name)[0] for name in ("one", "two")}
    assert held == {"device-0", "device-1"}


def test_42_a_standby_answers_503_and_closes_connections_that_were_open(
    ground: Ground, pair: tuple[Extender, Extender]
) -> None:
    first, second = pair
    trust = scheduler_trust(ground.plane.credentials)
    connection = http.client.HTTPSConnection(urlsplit(first.url).netloc, context=trust, timeout=LONGEST)
    connection.request("POST", "/scheduler/filter", QUESTION)
    answer = connection.getresponse()
    assert (answer.status, answer.read() != b"") == (200, True)
    first.pause()
    ground.eventually(lambda: second.leading, "the change of leaders")
    first.resume()
    ground.eventually(lambda: first.is_standby, "the resignation")
    connection.request("POST", "/scheduler/filter", QUESTION)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Connection")) == (503, "close")
    connection.close()


def test_44_nobody_decides_before_everything_was_listed(ground: Ground) -> None:
    go_on = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        if exchange.path.endswith("/resourceslices"):
            await go_on.wait()

    late = ground.new_extender("dra-extender-late", server=ground.api.url, leader_election="false")
    with ground.api.rule(before=hold):
        late.start(wait=False)
        ground.eventually(lambda: late.status("/readyz") == 503 and late.status("/livez") == 200, "the start")
        trust = scheduler_trust(ground.plane.credentials)
        assert ask(late.url + "/scheduler/filter", trust, QUESTION)[0] == 503
        ground.call(go_on.set)
        late.until_ready()
    late.stop()
