"""What if, as it is posted: what is understood, and what is refused with field, problem and remedy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI, HTTPException

from dra_extender.http.application import invalid_request
from dra_extender.http.insight import QueryQueue, insight_router
from dra_extender.insight.requests import InvalidRequestError
from dra_extender.limits import BYTES_OF_WHATIF, QUEUED_QUESTIONS
from dra_extender.scheduling.view import View
from tests.support.diagnosis.gpupods import running, waiting
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scene import Scene
from tests.support.http.served import serving

Json = dict[str, Any]
Ask = Callable[[Json | bytes], Awaitable[tuple[int, Json]]]
DOCUMENTS = [
    device_class("gpu", f'device.driver == "{GPU}"'),
    *[item for name in "ab" for item in (node(name), gpus(name, "A", 2, "1Gi", "1.0.0"))],
    *running("p", "a", "gpu-0", "gpu-1"),
    *waiting("w", 2),
    *waiting("x", 2),
]


class Known:
    """A service that knows the cluster."""

    def __init__(self, view: View) -> None:
        self.view = view

    def unknown(self) -> str:
        return ""

    def terms(self, pod: object) -> None:
        return None

    def problems(self) -> Generator[None, None, list[Any]]:
        yield
        return []

    def shadow(self) -> str:
        return "no record"


@pytest.fixture
def view() -> View:
    return Scene(DOCUMENTS, gates=GATES).view()


@pytest.fixture
async def ask(view: View, session: aiohttp.ClientSession) -> AsyncIterator[Ask]:
    app = FastAPI()
    app.include_router(insight_router(Known(view)))
    app.exception_handler(InvalidRequestError)(invalid_request)
    async with serving(app) as server:

        async def post(body: Json | bytes) -> tuple[int, Json]:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with session.post(f"{server.url}/insight/whatif", data=content) as reply:
                return reply.status, await reply.json()

        yield post


def verdicts(found: Json) -> dict[str, str]:
    return {outcome["pod"].removeprefix("default/"): outcome["verdict"] for outcome in found["outcomes"]}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {"w": "fits", "x": "does not fit"}),
        ({"addNodes": [{"like": "a"}]}, {"w": "fits", "x": "would fit"}),
        ({"withoutPods": ["default/p"]}, {"w": "fits", "x": "would fit"}),
        ({"drain": ["b"]}, {"w": "no more", "x": "does not fit"}),
        ({"drain": ["a"]}, {"p": "fits", "w": "no more", "x": "does not fit"}),
        ({"pods": ["default/x"]}, {"x": "fits"}),
        ({"pods": ["default/x", "default/x"]}, {"x": "fits"}),
    ],
)
async def test_decisions_use_the_hypothetical_changes(ask: Ask, body: Json, expected: dict[str, str]) -> None:
    status, found = await ask(body)
    assert status == 200, found
    assert verdicts(found) == expected
    assert found["complete"] is True


async def test_the_answer_says_where_and_why(ask: Ask) -> None:
    _, found = await ask({"pods": ["default/w", "default/x"]})
    assert found["outcomes"][1] == {
        "pod": "default/x", "verdict": "does not fit", "displaced": False, "now": "", "node": "",
        "reason": "2 nodes lack the devices",
    }  # fmt: skip


def nested(depth: int) -> bytes:
    return b'{"pods": [' + b'{"spec":' * depth + b"1" + b"}" * depth + b"]}"


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"", 400, "the body: Input data was truncated: give an object with any of addNodes"),
        (b"[1]", 400, "the body: Expected `object`, got `array`: give an object with any of"),
        (b"\xff\xfe", 400, "the body: "),
        (nested(50_000), 400, "pods[0]: Expected `str`, got `object`"),
        ({"addNode": []}, 400, "the body: Object contains unknown field `addNode`: give an object with any of"),
        (
            {"addNodes": [{"like": "a", "count": 10**9}]},
            400,
            "addNodes[0].count: Expected `int` <= 100: give a list",
        ),
        (b'{"addNodes": [{"like": "a", "count": 1' + b"0" * 5000 + b"}]}", 400, "addNodes[0].count: "),
        ({"addNodes": [{"like": "a", "count": True}]}, 400, "addNodes[0].count: Expected `int`, got `bool`"),
        ({"addNodes": [{"count": 1}]}, 400, "addNodes[0]: Object missing required field `like`"),
        ({"addNodes": [{"like": "a", "count": 60}] * 2}, 400, "addNodes: 120 nodes: 1 to 100 can be added"),
        (
            {"addNodes": [{"like": "z"}]},
            404,
            "addNodes[0].like: node z not found",
        ),
        ({"drain": ["z"]}, 404, "drain[0]: node z not found"),
        ({"drain": "a"}, 400, "drain: Expected `array`, got `str`: give a list of names of nodes"),
        ({"drain": ["a" * 300]}, 400, "drain[0]: Expected `str` of length <= 253"),
        ({"drain": ["a"] * 1001}, 400, "drain: Expected `array` of length <= 1000"),
        ({"withoutPods": ["default/z"]}, 404, "withoutPods[0]: pod default/z not found"),
        ({"withoutPods": ["z"]}, 400, "withoutPods[0]: Expected `str` matching regex"),
        ({"pods": [1]}, 400, "pods[0]: Expected `str`, got `int`: give a list of NAMESPACE/NAME"),
        ({"pods": ["default/z"]}, 404, "pods[0]: pod default/z not found"),
    ],
)
async def test_what_is_wrong_is_told_by_field_problem_and_remedy(
    ask: Ask, body: Json | bytes, status: int, told: str
) -> None:
    got, found = await ask(body)
    assert (got, found["detail"][: len(told)]) == (status, told)
    assert len(found["detail"]) < 1_000


async def test_a_request_that_is_too_large_is_not_read_to_its_end(ask: Ask) -> None:
    status, found = await ask(b"[" * (BYTES_OF_WHATIF + 1))
    assert status == 413
    assert found["detail"] == f"the request is larger than {BYTES_OF_WHATIF} bytes: send fewer names at once"


# --- how many at once


async def test_questions_that_take_long_are_answered_one_at_a_time_and_few_wait(view: View) -> None:
    desk = QueryQueue(Known(view))
    running_now = most = 0

    def steps() -> Generator[None, None, int]:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        for _ in range(5):
            yield
        running_now -= 1
        return 1

    asked = await asyncio.gather(
        *(desk.answer_at_length(steps()) for _ in range(QUEUED_QUESTIONS + 3)), return_exceptions=True
    )
    refused = [found for found in asked if isinstance(found, HTTPException)]
    assert asked.count(1) == QUEUED_QUESTIONS
    assert most == 1
    assert [found.status_code for found in refused] == [429] * 3
    assert all(found.headers == {"Retry-After": "2"} for found in refused)
    assert await desk.answer_at_length(steps()) == 1, "who asks again is answered"


async def test_questions_that_come_at_once_do_not_all_begin_at_once(view: View) -> None:
    """The first turn decodes what was posted, which takes milliseconds."""
    desk, cycles, begun = QueryQueue(Known(view)), 0, list[int]()

    async def count() -> None:
        nonlocal cycles
        while True:
            cycles += 1
            await asyncio.sleep(0)

    def refused() -> Generator[None, None, int]:
        begun.append(cycles)
        yield from ()
        raise InvalidRequestError("pod", "is no Pod", "give a Pod")

    counting = asyncio.create_task(count())
    asked = [desk.answer_at_length(refused()) for _ in range(QUEUED_QUESTIONS)]
    await asyncio.gather(*asked, return_exceptions=True)
    counting.cancel()
    assert len(set(begun)) == QUEUED_QUESTIONS


async def test_namespaces_take_turns_and_the_one_that_asks_most_is_refused_first(view: View) -> None:
    desk, answered = QueryQueue(Known(view)), list[str]()

    def steps(name: str) -> Generator[None, None, None]:
        for _ in range(5):
            yield
        answered.append(name)

    def ask(namespace: str, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(desk.answer_at_length(steps(name), namespace))

    flood = [ask("flood", f"flood-{number}") for number in range(QUEUED_QUESTIONS)]
    await asyncio.sleep(0)
    others = [ask(name, name) for name in ("a", "b")]
    found = await asyncio.gather(*flood, *others, return_exceptions=True)
    assert answered[:3] == ["flood-0", "a", "b"]
    assert [type(each) for each in found].count(HTTPException) == 2, "as many as the others need"
    assert set(answered) == {"a", "b", *(f"flood-{n}" for n, each in enumerate(found) if each is None and n < 8)}


async def test_a_reader_that_leaves_gives_up_its_turn_and_its_place(view: View) -> None:
    desk = QueryQueue(Known(view))

    def steps() -> Generator[None, None, int]:
        for _ in range(5):
            yield
        return 1

    first, *waiting = [asyncio.create_task(desk.answer_at_length(steps(), "a")) for _ in range(QUEUED_QUESTIONS)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.sleep(0)
    first.cancel()
    again = [desk.answer_at_length(steps(), "a") for _ in range(QUEUED_QUESTIONS)]
    assert await asyncio.gather(*again) == [1] * QUEUED_QUESTIONS
