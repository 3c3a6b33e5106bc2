"""Acceptance tests 38 to 40: advice to the in-tree allocator, two schedulers, and allocators we know nothing of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.case import Case
from tests.e2e.disturbance import Then, once, verb
from tests.e2e.ground import SCHEDULER, Ground
from tests.e2e.wire import Exchange
from tests.support.patience import until

pytestmark = pytest.mark.e2e

STOCK = "default-scheduler"
ADVICE_SECONDS = 2.0


@pytest.fixture(scope="module")
def advised(ground: Ground) -> Iterator[str]:
    """The cluster's own scheduler, which allocates by itself and asks for advice; slow machines may think longer."""

    def change(config: dict[str, Any]) -> None:
        config["extenders"][0]["httpTimeout"] = f"{ADVICE_SECONDS:g}s"

    ground.start_scheduler(STOCK, "advisor.yaml", change)
    yield ground.plane.stock_scheduler
    ground.plane.stop_component(STOCK)


def garbage() -> Then:
    async def then(exchange: Exchange) -> web.Response:
        return web.Response(body=b"\x00{not json")

    return then


def broken(code: int) -> Then:
    async def then(exchange: Exchange) -> web.Response:
        return web.Response(status=code)

    return then


def slow() -> Then:
    async def then(exchange: Exchange) -> None:
        await asyncio.sleep(ADVICE_SECONDS + 1)

    return then


TROUBLE = {"garbage": garbage(), "500": broken(500), "unreachable": broken(502), "slow": slow()}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_38_bad_advice_does_not_keep_a_pod_from_its_devices(
    case: Case, ground: Ground, advised: str, trouble: str
) -> None:
    for node in ("node-1", "node-2"):
        case.publish(node, 1)
    with ground.calls.rule(before=once(verb("prioritize", case.key("one")), TROUBLE[trouble])):
        case.pod_with_claim("one", scheduler=advised)
        case.until_runs("one")
    assert ground.calls.calls("prioritize", case.key("one"))
    assert ground.calls.calls("bind", case.key("one")) == []


def test_38_advice_is_integers_about_the_nodes_in_question(case: Case, ground: Ground, advised: str) -> None:
    for node in ground.nodes:
        case.publish(node, 1)
    alternatives = [{"name": "any", "deviceClassName": case.name}]
    case.claim("one", {"name": "r", "firstAvailable": alternatives})
    case.pod("one", "one", scheduler=advised)
    case.until_runs("one")
    (call,) = ground.calls.calls("prioritize", case.key("one"))
    assert call.path == "/advisor/prioritize"
    assert sorted(score["Host"] for score in call.answer) == sorted(ground.nodes)
    assert {type(score["Score"]) for score in call.answer} == {int}


def test_38_advice_decides_between_nodes_that_are_otherwise_alike(case: Case, ground: Ground, advised: str) -> None:
    for node in ground.nodes:
        case.publish(node, 3)

    async def prefer_the_last(exchange: Exchange) -> web.Response | None:
        if exchange.verb != "prioritize":
            return None
        names = exchange.json["NodeNames"]
        return web.json_response([{"Host": name, "Score": 10 * (name == "node-4")} for name in names])

    names = ["one", "two", "three"]
    with ground.calls.rule(before=prefer_the_last):
        for name in names:
            case.pod_with_claim(name, scheduler=advised)
            assert case.until_bound(name) == "node-4"


def test_39_two_schedulers_and_one_extender_give_no_device_twice(case: Case, ground: Ground, hasty: str) -> None:
    for node in ground.nodes:
        case.publish(node, 4)
    names = [f"pod-{index}" for index in range(24)]
    for index, name in enumerate(names):
        case.pod_with_claim(name, scheduler=hasty if index % 2 else SCHEDULER)
    ground.eventually(lambda: len(case.bound(names)) == 16, "a binding for every device")
    for name in set(names) - set(case.bound(names)):
        case.until_refused(name, "cannot allocate all claims")
    held = [(result["pool"], result["device"]) for name in names for result in case.results(name)]
    assert len(held) == len(set(held)) == 16


def test_40_a_device_that_somebody_else_takes_between_filter_and_bind_is_left_alone(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.claim("foreign")

    def holders() -> set[str]:
        """The claims that hold devices of the node, as far as the extender knows."""
        devices = ground.extender.ask("/insight/devices?node=node-1")["devices"]
        return {holder["claim"] for device in devices for holder in device.get("holders", ())}

    async def take(exchange: Exchange) -> None:
        await case.allocate_elsewhere("foreign", "node-1")
        await until(lambda: case.key("foreign") in holders(), "the news of it")

    with ground.calls.rule(before=once(verb("bind", case.key("one")), take)):
        case.pod_with_claim("one")
        case.until_refused("one")
    assert case.results("one") == []
    assert case.devices("foreign") == ["device-0"]
    case.until_refused("one", "Unschedulable", "cannot allocate all claims")
    case.delete_claim("foreign")
    case.until_runs("one")
