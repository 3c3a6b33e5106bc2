"""A simulation, as it is posted: the answer, and errors with their status."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI

from dra_extender.http.application import invalid_request
from dra_extender.http.insight import insight_router
from dra_extender.insight.requests import InvalidRequestError
from dra_extender.limits import BYTES_OF_WHATIF
from tests.http.test_whatif import DOCUMENTS, Known
from tests.support.diagnosis.heldcluster import GATES
from tests.support.diagnosis.scene import Scene
from tests.support.http.served import serving

Json = dict[str, Any]
Ask = Callable[[Json | bytes], Awaitable[tuple[int, Json]]]


@pytest.fixture
async def ask(session: aiohttp.ClientSession) -> AsyncIterator[Ask]:
    app = FastAPI()
    app.include_router(insight_router(Known(Scene(DOCUMENTS, gates=GATES).view())))
    app.exception_handler(InvalidRequestError)(invalid_request)
    async with serving(app) as server:

        async def post(body: Json | bytes) -> tuple[int, Json]:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with session.post(f"{server.url}/v1/simulate", data=io.BytesIO(content)) as reply:
                return reply.status, await reply.json()

        yield post


async def test_the_answer_has_nodes_devices_reasons_and_numbers(ask: Ask) -> None:
    status, found = await ask({"pod": "default/w", "nodes": ["a"], "newNodes": [{"like": "a"}], "placed": []})
    assert (status, found) == (
        200,
        {
            "fit": {"a-like-1": [f"gpu.example.com/a-gpu-like-1/gpu-{number}" for number in (0, 1)]},
            "refused": {"a": ["cannot allocate all claims"]},
            "pods": {"default/w": {"node": "a-like-1", "reason": "", "decided": True}},
            "fits_on": [0, 1],
            "least": 1,
            "left_whole": 0,
            "left_in_parts": 0.0,
            "problems": [],
            "complete": True,
        },
    )


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"", 400, "the body: Input data was truncated: give an object with any of pod, gang, placed, count"),
        (b'{"pod":' + b"[" * 100_000, 400, "pod: Expected `str | object`, got `array`"),
        (b'{"pod":{"spec":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", 400, "the body: "),
        (b'{"pod": "\xff"}', 400, "the body: "),
        ({}, 400, "pod: needs one of pod and gang"),
        ({"pod": "default/z"}, 404, "pod: pod default/z not found"),
        ({"pod": "default/w", "newNodes": [{"like": "z"}]}, 404, "newNodes[0].like: node z not found"),
        ({"pod": "default/w", "count": 0}, 400, "count: Expected `int` >= 1: give a whole number from 1 to 1,000"),
        (b"[" * (BYTES_OF_WHATIF + 1), 413, "the request is larger than 524288 bytes: leave out"),
    ],
)
async def test_what_is_wrong_gets_a_status_and_its_field(ask: Ask, body: Json | bytes, status: int, told: str) -> None:
    got, found = await ask(body)
    assert (got, found["detail"][: len(told)]) == (status, told)
    assert len(found["detail"]) < 1_000
