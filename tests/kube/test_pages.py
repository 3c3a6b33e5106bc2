"""Lists in pages, and all objects of a kind at once."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from app.api.decoding import encode
from app.api.errors import ApiError
from app.kube.client import KubeClient
from app.kube.pages import SIZE
from app.kube.resources import NODES
from app.kube.snapshot import list_all
from tests.support.kube.scripted import ScriptedServer

PATH = "/api/v1/nodes"


def node(name: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "u"}}


async def test_all_pages_are_read_and_what_makes_no_sense_is_kept_apart(
    server: ScriptedServer, client: KubeClient
) -> None:
    first = {"metadata": {"continue": "next"}, "items": [node("one"), node(2)]}
    server.on("GET", PATH, (200, first), (200, {"metadata": {}, "items": [node("three")]}))
    found, problems = await list_all(client, NODES, {"labelSelector": "a=b"})
    assert [item.name for item in found] == ["one", "three"]
    assert len(problems) == 1
    asked = [request.query for request in server.requests("GET", PATH)]
    assert asked == [
        {"labelSelector": "a=b", "limit": str(SIZE)},
        {"labelSelector": "a=b", "limit": str(SIZE), "continue": "next"},
    ]


async def test_a_list_without_items_is_empty(server: ScriptedServer, client: KubeClient) -> None:
    server.on("GET", PATH, (200, {"metadata": {"resourceVersion": "5"}, "items": None}))
    assert await list_all(client, NODES) == ([], [])


async def test_an_item_that_is_nested_without_end_is_an_item_like_the_others(
    server: ScriptedServer, client: KubeClient
) -> None:
    deep = b'{"metadata":{"name":"deep","resourceVersion":"4"},"spec":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    whole = b'{"kind":"NodeList","metadata":{"resourceVersion":"5","continue":"next"},"items":[%s,%s,%s]}'
    body = whole % (encode(node("one")), deep, encode(node("two")))

    async def first(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    server.on("GET", PATH, first, (200, {"metadata": {}, "items": [node("three")]}))
    found, problems = await list_all(client, NODES)
    assert [item.name for item in found] == ["one", "two", "three"]
    assert [problem.name for problem in problems] == ["deep"]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"items":' * 100_000, b'{"metadata":{},"items":[' + b"[" * 100_000])
async def test_a_list_that_is_torn_off_in_the_depth_is_an_error(
    server: ScriptedServer, client: KubeClient, body: bytes
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    server.on("GET", PATH, answer)
    with pytest.raises(ApiError, match="list of nodes"):
        await list_all(client, NODES)


async def test_a_malformed_list_is_an_error(server: ScriptedServer, client: KubeClient) -> None:
    server.on("GET", PATH, (200, ["<html>"]))
    with pytest.raises(ApiError, match="list of nodes"):
        await list_all(client, NODES)
