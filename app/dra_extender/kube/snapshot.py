"""Reading a kind once, in pages, for commands that look at a cluster and leave.

Promises: all objects of one consistent list; those that cannot be understood are returned as `DecodeError`s beside the
others, never silently left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dra_extender.api.decoding import DecodeError
from dra_extender.kube.client import KubeClient
from dra_extender.kube.pages import list_pages
from dra_extender.kube.resources import Resource

T = TypeVar("T")


async def list_all(
    client: KubeClient, resource: Resource[T], selector: Mapping[str, str] | None = None
) -> tuple[list[T], list[DecodeError]]:
    """All objects of the kind. `selector` holds fieldSelector and labelSelector. Raises ApiError."""
    found: list[T] = []
    problems: list[DecodeError] = []
    async for page in list_pages(client, resource, selector or {}):
        for item in page.items or []:
            try:
                found.append(resource.decode(item))
            except DecodeError as problem:
                problems.append(problem)
    return found, problems
