"""Lists in pages, their items not decoded yet.

Promises: all pages belong to one consistent list; every failure is an ApiError, also a response that is not a list. An
item that is nested too deeply for the decoder is returned like the others. A page has at most `SIZE` items, and at most
`BYTES` bytes unless a single item is larger, so large objects cannot exhaust the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec

from dra_extender.api.decoding import UNDECODABLE, DecodeError, Outline, OutlineError
from dra_extender.api.errors import ApiError, TooLargeError
from dra_extender.api.meta import Object
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import Resource

SIZE = 500
BYTES = 2**24
_FEWER = 8
"""A page that is too large is requested again with its number of items divided by this."""
_TIMEOUT = 60.0


class _ListMeta(Object, frozen=True, gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(Object, frozen=True):
    """One page of a list. The resourceVersion belongs to the whole list."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_page = msgspec.json.Decoder(Page)
_meta = msgspec.json.Decoder(_ListMeta)


async def list_pages(client: KubeClient, resource: Resource[Any], selector: Mapping[str, str]) -> AsyncIterator[Page]:
    """One page or more. `selector`: fieldSelector and labelSelector. Raises ApiError."""
    token, size = "", SIZE
    while True:
        params = {**selector, "limit": str(size)} | ({"continue": token} if token else {})
        try:
            data = await client.get(resource.path(), params, timeout=_TIMEOUT, most=BYTES if size > 1 else None)
        except TooLargeError:
            size = max(1, size // _FEWER)
            continue
        page = await _decoded(resource, data)
        yield page
        token = page.metadata.continue_
        if not token:
            return


async def _decoded(resource: Resource[Any], data: bytes) -> Page:
    try:
        return _page.decode(data)
    except UNDECODABLE as problem:
        try:
            # A page full of brackets takes seconds: a thread scans it, so the event loop goes on.
            return await asyncio.to_thread(_outlined, data)
        except UNDECODABLE:
            raise ApiError(0, "Malformed", f"list of {resource.plural}: {problem}") from None


def _outlined(data: bytes) -> Page:
    """The page, found by its brackets. Raises ValueError."""
    page = Outline(data, steps=None)
    parts = {name: at for name, at in page.members() if name in ("metadata", "items")}
    if parts.keys() != {"metadata", "items"}:
        raise OutlineError("not a list")
    metadata = _meta.decode(page.value(parts["metadata"]))
    return Page(metadata, [page.value(at) for at in page.elements(parts["items"])])


T = TypeVar("T")


async def list_all(
    client: KubeClient, resource: Resource[T], selector: Mapping[str, str] | None = None
) -> tuple[list[T], list[DecodeError]]:
    """All objects of the kind, and the errors of those that cannot be decoded. Raises ApiError."""
    found: list[T] = []
    problems: list[DecodeError] = []
    async for page in list_pages(client, resource, selector or {}):
        for item in page.items or []:
            try:
                found.append(resource.decode(item))
            except DecodeError as problem:
                problems.append(problem)
    return found, problems
