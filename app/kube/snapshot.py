"""Reading a kind once, in pages, for commands that look at a cluster and leave.

Promises: all objects of one consistent list; those that cannot be understood are returned as `DecodeError`s beside the
others, never silently left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from app.api.decoding import DecodeError
from app.kube.client import KubeClient
from app.kube.resources import Resource

T = TypeVar("T")

PAGE = 500


class _ListMeta(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = _ListMeta()


_page = msgspec.json.Decoder(_Page)


async def list_all(
    client: KubeClient, resource: Resource[T], selector: Mapping[str, str] | None = None
) -> tuple[list[T], list[DecodeError]]:
    """All objects of the kind. `selector` holds fieldSelector and labelSelector. Raises ApiError."""
    found: list[T] = []
    problems: list[DecodeError] = []
    token = ""
    while True:
        params = {**(selector or {}), "limit": str(PAGE)} | ({"continue": token} if token else {})
        page = _page.decode(await client.get(resource.path(), params))
        for item in page.items or []:
            try:
                found.append(resource.decode(item))
            except DecodeError as problem:
                problems.append(problem)
        token = page.metadata.continue_
        if not token:
            return found, problems
