"""The page and its feed as routes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Request
from starlette.responses import Response
from starlette.routing import Route

from dra_extender.http.page.feed import MOST_READERS, Feed
from dra_extender.http.page.files import HEADERS, page_files
from dra_extender.http.page.stream import EventStream, messages
from dra_extender.http.readers import REFUSALS


def page_router(feed: Feed) -> APIRouter:
    """`/`, `/docs`, the files of both, and `/insight/events`."""
    router = APIRouter()
    for path in page_files():
        router.routes.append(Route(path, _file))

    @router.get(
        "/insight/events",
        tags=["insight"],
        response_class=Response,
        responses=REFUSALS | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(
        last_event_id: Annotated[str, Header(description="`id` of the last message that was read")] = "",
    ) -> Response:
        """What the page shows, as server-sent events: first everything, then what changes. Its form is that of the page
        of the same version, and no promise to anybody else.
        """
        if feed.is_crowded:
            raise HTTPException(503, f"{MOST_READERS} pages are open already", {"Retry-After": "10"})
        return EventStream(messages(feed, last_event_id))

    return router


async def _file(request: Request) -> Response:
    found = page_files()[request.url.path]
    headers = HEADERS | {"ETag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media_type)
