"""Whoever might abuse the page: hostile names in the cluster, and what the page may do at all."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from tests.support.flows.flow import Flow
from tests.support.marked import MARK
from tests.support.page.browser import Shown, showing
from tests.support.page.looking import run, sse, url
from tests.support.patience import LONGEST

pytestmark = pytest.mark.slow

expect.set_options(timeout=1000 * LONGEST)


HOSTILE = "<img src=x onerror=alert(1)>'; rm -rf ~ #" + "w" * 253
"""Markup, a command, and a word as long as names may be."""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def hostile_feed() -> str:
    """What the service would send if the API server took any name."""
    row: list[Any] = [HOSTILE, "used", 100.0, 0, 0, 9, [f"{HOSTILE}/{HOSTILE}"], 0]
    counter = {"name": HOSTILE, "used": HOSTILE, "of": HOSTILE, "percent": 50}
    names = {"driver": HOSTILE, "pool": HOSTILE, "node": HOSTILE}
    part: dict[str, Any] = {
        **names,
        "devices": [row],
        "classes": [[HOSTILE]],
        "counters": [counter],
        "problem": HOSTILE,
        "models": [HOSTILE],
        "sets": [[HOSTILE, 50.0]],
    }
    put: list[dict[str, Any]] = [
        {"kind": "status", "key": "status", "unknown": "", "complete": True},
        {"kind": "nodes", "key": "nodes", "count": 1, "classes": [HOSTILE]},
        {"kind": "node", "key": "node\na", "name": HOSTILE, "cordoned": True, "taints": [HOSTILE]},
        {"kind": "devices", "key": "devices\na", **part},
        {"kind": "pods", "key": "pods", "total": 1},
        {
            "kind": "pod",
            "key": "pod\nu",
            "uid": "u",
            "namespace": HOSTILE,
            "name": HOSTILE,
            "created": HOSTILE,
            "count": 2,
        }
        | {"others": [HOSTILE]},
    ]
    return sse(put)


def hostile_answers() -> dict[str, dict[str, Any]]:
    """What the service would answer, by path."""
    remedy = {"text": HOSTILE, "short": HOSTILE, "yaml": HOSTILE, "nodes": 1, "example": HOSTILE, "changes": []}
    problem = {"kind": "conflict", "object": HOSTILE, "problem": HOSTILE, "what_to_do": HOSTILE}
    return {
        "insight/diagnosis?*": {"state": "refused", "summary": HOSTILE, "remedies": [remedy] * 2},
        "insight/headroom?*": {"fits": 1, "nodes": 1, "of": 1, "complete": True},
        "insight/problems": {"total": 1, "problems": [problem]},
        "insight/device?*": hostile_details(),
    }


def hostile_details() -> dict[str, Any]:
    holding: dict[str, Any] = {"claim": f"{HOSTILE}/{HOSTILE}", "pods": [HOSTILE], "consumed": {HOSTILE: HOSTILE}}
    amount = {"name": HOSTILE, "used": HOSTILE, "of": HOSTILE, "percent": 50}
    device: dict[str, Any] = {
        "state": "used",
        "node": HOSTILE,
        "driver": HOSTILE,
        "pool": HOSTILE,
        "classes": [HOSTILE],
    }
    device |= {"problem": HOSTILE, "holders": [holding], "capacity": [amount], "counters": [amount]}
    taint = {"key": HOSTILE, "value": HOSTILE, "effect": HOSTILE, "timeAdded": HOSTILE}
    texts: dict[str, Any] = {
        "slice": HOSTILE,
        "nodes": HOSTILE,
        "attributes": {HOSTILE: HOSTILE},
        "capacity": {HOSTILE: HOSTILE},
    }
    return {"device": device, "taints": [taint], **texts}


async def fulfil(answer: dict[str, Any], route: Route) -> None:
    await route.fulfill(json=answer)


async def test_characters_that_reorder_or_hide_text_are_escaped(flow: Flow, browser: Browser) -> None:
    async with showing(browser, url(flow)) as shown:
        made = "import('/page/dom.js').then(({element}) => element('p', {title: TEXT, 'aria-label': TEXT}, TEXT))"
        made = made.replace("TEXT", json.dumps(f"gpu{MARK}"))
        texts = await shown.page.evaluate(f"{made}.then((p) => [p.textContent, p.title, p.getAttribute('aria-label')])")
    assert all(text.replace("\n", "").isprintable() and text.startswith("gpu\\u001b") for text in texts)


async def test_hostile_names_are_text_wherever_they_stand(flow: Flow, browser: Browser) -> None:
    """Whatever the API server lets through: the feed is replaced by one in which every name is hostile."""
    context = await browser.new_context()
    page = await context.new_page()
    alerts: list[str] = []
    page.on("dialog", lambda dialog: alerts.append(dialog.message))
    shown = Shown(page)
    stream = {"body": hostile_feed(), "headers": {"Content-Type": "text/event-stream"}}
    await page.route("**/insight/events", lambda route: route.fulfill(**stream))
    for path, answer in hostile_answers().items():
        await page.route(f"**/{path}", partial(fulfil, answer))
    await page.goto(url(flow))
    await page.get_by_role("gridcell").click()
    await expect(page.locator("#details h3")).to_have_count(5)
    await expect(page.locator(".summary")).to_have_text(HOSTILE)
    await expect(page.locator("#problems li b")).to_have_text(HOSTILE)
    quoted = HOSTILE.replace("'", "'\\''")
    await expect(page.locator("#details pre").first).to_have_text(
        f"kubectl describe resourceclaim '{quoted}' -n '{quoted}'"
    )
    assert await page.locator("main img").count() == 0
    assert await page.evaluate(WIDER) <= 0
    assert (alerts, shown.complaints) == ([], [])
    await context.close()


async def test_the_console_has_nothing_to_complain_about(flow: Flow, browser: Browser) -> None:
    await run(flow, "train")
    async with showing(browser, url(flow)) as shown:
        await shown.page.locator(".cell.used[role=gridcell]").click()
        await expect(shown.page.locator("#details")).to_contain_text("default/train")
        await shown.page.locator("#theme").click()
        await expect(shown.page.locator("html")).to_have_attribute("data-theme", "dark")
        assert shown.complaints == []


async def test_the_page_changes_nothing(flow: Flow, browser: Browser) -> None:
    methods: set[str] = set()
    async with showing(browser, url(flow)) as shown:
        shown.page.on("request", lambda request: methods.add(request.method))
        await expect(shown.page.locator("[role=gridcell]")).to_have_count(8)
        await shown.page.locator("[role=gridcell]").first.click()
        await expect(shown.page.locator("#details")).to_contain_text("Attributes")
    assert methods <= {"GET"}
