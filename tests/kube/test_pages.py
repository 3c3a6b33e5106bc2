"""Lists in pages."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from dra_extender.api.decoding import encode
from dra_extender.api.errors import ApiError
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import NODES, PAGE_BYTES, PAGE_ITEMS, identify, list_pages
from tests.support.kube.scripted import ScriptedServer

PATH = "/api/v1/nodes"


async def items_of(client: KubeClient) -> list[str]:
    """The names of all items, as far as they can be read."""
    return [identify(item).name async for page in list_pages(client, NODES, {}) for item in page.items or ()]


def node(name: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "u"}}


async def test_all_pages_are_read(server: ScriptedServer, client: KubeClient) -> None:
    first = {"metadata": {"resourceVersion": "5", "continue": "next"}, "items": [node("one"), node(2)]}
    server.on("GET", PATH, (200, first), (200, {"metadata": {"resourceVersion": "5"}, "items": [node("three")]}))
    assert await items_of(client) == ["one", "", "three"]
    asked = [request.query for request in server.requests("GET", PATH)]
    assert asked == [
        {"limit": str(PAGE_ITEMS)},
        {"limit": str(PAGE_ITEMS), "continue": "next"},
    ]


async def test_a_list_without_items_is_empty(server: ScriptedServer, client: KubeClient) -> None:
    server.on("GET", PATH, (200, {"metadata": {"resourceVersion": "5"}, "items": None}))
    assert await items_of(client) == []


@pytest.mark.parametrize("body", [{}, {"kind": "Status"}, {"metadata": {}, "items": []}])
@pytest.mark.parametrize("pages", [0, 1])
async def test_what_a_proxy_answers_is_no_list(
    server: ScriptedServer, client: KubeClient, body: dict[str, Any], pages: int
) -> None:
    first = {"metadata": {"resourceVersion": "5", "continue": "next"}, "items": [node("one")]}
    server.on("GET", PATH, *[(200, first)] * pages, (200, body))
    with pytest.raises(ApiError, match="it has no metadata"):
        await items_of(client)


async def test_an_item_that_is_nested_without_end_is_an_item_like_the_others(
    server: ScriptedServer, client: KubeClient
) -> None:
    deep = b'{"metadata":{"name":"deep","resourceVersion":"4"},"spec":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    whole = b'{"kind":"NodeList","metadata":{"resourceVersion":"5","continue":"next"},"items":[%s,%s,%s]}'
    body = whole % (encode(node("one")), deep, encode(node("two")))

    async def first(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    server.on("GET", PATH, first, (200, {"metadata": {"resourceVersion": "5"}, "items": [node("three")]}))
    assert await items_of(client) == ["one", "deep", "two", "three"]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"items":' * 100_000, b'{"metadata":{},"items":[' + b"[" * 100_000])
async def test_a_list_that_is_torn_off_in_the_depth_is_an_error(
    server: ScriptedServer, client: KubeClient, body: bytes
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    server.on("GET", PATH, answer)
    with pytest.raises(ApiError, match="list of nodes"):
        await items_of(client)


async def test_a_malformed_list_is_an_error(server: ScriptedServer, client: KubeClient) -> None:
    server.on("GET", PATH, (200, ["<html>"]))
    with pytest.raises(ApiError, match="list of nodes"):
        await items_of(client)


async def test_a_page_that_is_too_large_is_asked_for_again_with_fewer_items(
    server: ScriptedServer, client: KubeClient
) -> None:
    """Five hundred claims of a megabyte each are more than the memory of a container."""
    large = {**node("large"), "note": "x" * (PAGE_BYTES // 3)}

    async def page(request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        items = [large] * 10
        more = {"continue": str(start + limit)} if start + limit < len(items) else {}
        return web.json_response({"metadata": {"resourceVersion": "5"} | more, "items": items[start : start + limit]})

    server.on("GET", PATH, page)
    pages = [page async for page in list_pages(client, NODES, {})]
    assert sum(len(page.items or ()) for page in pages) == 10
    limits = [int(request.query["limit"]) for request in server.requests("GET", PATH)]
    assert limits[:4] == [500, 62, 7, 1]
    assert set(limits[4:]) == {1}


async def test_after_small_pages_more_items_are_asked_for_again(server: ScriptedServer, client: KubeClient) -> None:
    """Ten large claims made as many requests of a list as there are claims."""
    large = {**node("large"), "note": "x" * (PAGE_BYTES // 3)}

    async def page(request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        items = [large] * 10 + [node("small")] * 1_000
        more = {"continue": str(start + limit)} if start + limit < len(items) else {}
        return web.json_response({"metadata": {"resourceVersion": "5"} | more, "items": items[start : start + limit]})

    server.on("GET", PATH, page)
    assert sum([len(page.items or ()) async for page in list_pages(client, NODES, {})]) == 1_010
    limits = [int(request.query["limit"]) for request in server.requests("GET", PATH)]
    assert limits[-4:] == [8, 64, 500, 500]
    assert len(limits) < 20


async def test_one_item_may_be_as_large_as_it_is(server: ScriptedServer, client: KubeClient) -> None:
    server.on(
        "GET",
        PATH,
        (200, {"metadata": {"resourceVersion": "5"}, "items": [{**node("large"), "note": "x" * PAGE_BYTES}]}),
    )
    assert [len(page.items or ()) async for page in list_pages(client, NODES, {})] == [1]
