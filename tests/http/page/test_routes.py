"""The route of the updates: how many pages may be open."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import HTTPException

from dra_extender.http.page import routes
from dra_extender.http.page.updates import PageUpdates
from tests.http.page.test_pods import KnownInsight
from tests.support.diagnosis.gangscenes import CLASS
from tests.support.diagnosis.scene import Scene


async def test_pages_that_open_at_once_count_before_their_first_message_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "MOST_SUBSCRIBERS", 2)
    updates = PageUpdates(KnownInsight(Scene([CLASS]).view()))
    endpoint: Any = next(each for each in routes.page_router(updates).routes if each.path == "/insight/events").endpoint  # type: ignore[attr-defined]
    opened = [await endpoint() for _ in range(2)]
    with pytest.raises(HTTPException, match="2 pages are open already"):
        await endpoint()
    assert len(opened) == updates.state.subscribers == 2
    for each in opened:
        await each.body_iterator.aclose()
    assert updates.state.subscribers == 0
    await updates.close()
