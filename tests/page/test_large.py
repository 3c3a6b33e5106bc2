"""The page of a large cluster, wide and narrow: 5,000 nodes and 500 pods that wait, from a feed that a test makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, Page, Request, Route, expect

from tests.support.flows.flow import Flow
from tests.support.page.looking import GPU, sse, url
from tests.support.patience import LONGEST

pytestmark = pytest.mark.slow

expect.set_options(timeout=1000 * LONGEST)

Json = dict[str, Any]
MANY = 5_000
WIDTHS = (1440, 400)
MODEL = "NVIDIA H100 80GB HBM3"
TAINT = "dedicated=ml-training:NoSchedule"


def devices(node: str, rows: Sequence[Sequence[Any]], **more: Any) -> Json:
    names = {"driver": GPU, "pool": node, "node": node, "classes": [[GPU]], "counters": [], "problem": ""}
    part = names | {"devices": rows, "models": [MODEL], "sets": []} | more
    return {"kind": "devices", "key": f"devices\n{node}", **part}


def whole(count: int) -> list[list[Any]]:
    return [[f"gpu-{number}", "free", 0.0, 0, 0, 0, [], -1] for number in range(count)]


def partitions() -> Json:
    """A GPU that is given away whole, and one of which a seventh is."""
    rows: list[list[Any]] = []
    for gpu, (first, others) in enumerate((("used", "blocked"), ("blocked", "free"))):
        rows.append([f"gpu-{gpu}", first, 100.0 if first == "used" else 0.0, 0, 0, 0, [], gpu])
        rows += [[f"gpu-{gpu}-mig-1g.10gb-19-{number}", others, 0.0, 0, 0, 0, [], gpu] for number in range(7)]
    rows[9][1:3] = ["used", 100.0]
    counters = [
        {"name": f"set-{gpu}/memory", "used": used, "of": "80Gi", "percent": percent}
        for gpu, used, percent in ((0, "80Gi", 100.0), (1, "10Gi", 12.5))
    ]
    return devices("mig", rows, counters=counters, sets=[["set-0", 100.0], ["set-1", 12.5]])


def pods(number: int, count: int, name: str, **more: Any) -> Json:
    """`count` equal pods."""
    uid = f"u{number}"
    others = [f"{name}-{other}" for other in range(1, min(count, 20))]
    created = f"2026-01-01T00:00:{number:02}Z"
    pod = {"kind": "pod", "key": f"pod\n{uid}", "uid": uid, "namespace": "default", "name": name, "created": created}
    return pod | {"count": count, "others": others} | more


def large() -> list[Json]:
    """All nodes and pods in one message, as the feed would send them in several."""
    put: list[Json] = [
        {"kind": "status", "key": "status", "unknown": "", "complete": True},
        {"kind": "nodes", "key": "nodes", "count": MANY, "classes": [GPU]},
        {"kind": "pods", "key": "pods", "total": 500},
        {"kind": "node", "key": "node\nmig", "name": "mig", "cordoned": False, "taints": [TAINT]},
        devices("dense", whole(64)),
        partitions(),
    ]
    put += [devices(f"node-{number}", whole(8)) for number in range(MANY - 2)]
    put += [pods(number, 20, f"train-{number}") for number in range(24)]
    return [*put, pods(24, 20, "alone")]


@asynccontextmanager
async def fed(browser: Browser, flow: Flow, put: Sequence[Json], width: int) -> AsyncIterator[Page]:
    """The page with this feed, which ends and is refused from then on. A pod waits for the reason with its name."""
    context = await browser.new_context(viewport={"width": width, "height": 900})
    page = await context.new_page()
    once = iter([sse(put)])

    async def answer(route: Route) -> None:
        body = next(once, "")
        if body:
            await route.fulfill(body=body, headers={"Content-Type": "text/event-stream"})
        else:
            await route.abort()

    async def explain(route: Route) -> None:
        _, _, name = parse_qs(urlsplit(route.request.url).query)["pod"][0].partition("/")
        await route.fulfill(json={"state": "refused", "summary": f"reason-{name}", "remedies": [], "complete": True})

    await page.route("**/insight/events", answer)
    await page.route("**/insight/diagnosis?*", explain)
    await page.goto(url(flow))
    yield page
    await context.close()


@pytest.mark.parametrize("width", WIDTHS)
async def test_of_thousands_of_nodes_only_those_that_can_be_seen_are_in_the_document(
    flow: Flow, browser: Browser, width: int
) -> None:
    async with fed(browser, flow, large(), width) as page:
        await expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", str(MANY))
        most = 40
        assert 0 < await page.locator("[role=row]").count() < most
        assert await page.evaluate("measured.work.rows") < most
        await page.get_by_role("gridcell").first.focus()
        await page.keyboard.press("Control+End")
        assert await page.evaluate("document.activeElement.closest('[role=row]').ariaRowIndex") == str(MANY)
        assert await page.locator("[role=row]").count() < most
        assert await page.evaluate("measured.work.rows") < 2 * most
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
async def test_taints_models_and_names_can_be_read_without_a_click(flow: Flow, browser: Browser, width: int) -> None:
    async with fed(browser, flow, large(), width) as page:
        await expect(page.locator('[data-row="node dense"]')).to_contain_text(f"64 × {MODEL}")
        mig = page.locator('[data-row="node mig"]')
        await expect(mig).to_contain_text(f"2 × {MODEL}")
        await expect(mig.locator(".taint")).to_have_text(TAINT)
        cut = """() => [...document.querySelectorAll(".row .text, .row .more")].filter(
            (text) => text.textContent[0] === "…" || text.scrollHeight > text.clientHeight
            || text.scrollWidth > text.clientWidth).length"""
        assert await page.evaluate(cut) == 0
        outside = """() => [...document.querySelectorAll(".row")].filter((row) => row.querySelector(".groups")
            .getBoundingClientRect().bottom > row.getBoundingClientRect().bottom).length"""
        assert await page.evaluate(outside) == 0


@pytest.mark.parametrize("width", WIDTHS)
async def test_partitions_stand_together_under_their_gpu(flow: Flow, browser: Browser, width: int) -> None:
    async with fed(browser, flow, large(), width) as page:
        mig = page.locator('[data-row="node mig"]')
        await expect(mig.locator(".meta")).to_have_text("0 of 2 free, 1 in part")
        await expect(mig.locator(".group-title")).to_have_text(["set-0100% taken", "set-113% taken"])
        assert [await group.get_by_role("gridcell").count() for group in await mig.locator(".cells").all()] == [8, 8]
        await mig.get_by_role("gridcell").first.focus()
        for _ in range(8):
            await page.keyboard.press("ArrowDown")
            if "gpu-1" in (label := str(await page.evaluate("document.activeElement.ariaLabel"))):
                break
        assert label == "gpu-1, blocked"
        await page.keyboard.press("ArrowUp")
        assert str(await page.evaluate("document.activeElement.ariaLabel")).startswith("gpu-0")


@pytest.mark.parametrize("width", WIDTHS)
async def test_equal_pods_are_a_row_with_a_count_and_rows_are_filtered_and_paged(
    flow: Flow, browser: Browser, width: int
) -> None:
    async with fed(browser, flow, large(), width) as page:
        shown = page.locator("#pods")
        await expect(shown.locator("h2")).to_have_text("Pending pods (500)")
        await expect(shown.locator("[data-pod]")).to_have_count(10)
        await expect(shown.locator("[data-pod]").first).to_contain_text("train-0 × 20 in default")
        await expect(shown.locator(".pages")).to_contain_text("1–10 of 25 rows")
        for _ in range(2):
            await page.get_by_role("button", name="Next").click()
        await expect(shown.locator("[data-pod]")).to_have_count(5)
        await expect(page.get_by_role("button", name="Next")).to_be_disabled()
        await page.locator("#pods-filter").fill("default/alone reason-alone")
        await expect(shown.locator("[data-pod]")).to_have_count(1)
        await expect(shown).to_contain_text("The filter matches 20 of 500 pods.")
        await shown.get_by_text("19 equal pods").click()
        await expect(shown).to_contain_text("alone-19")


async def test_diagnoses_are_asked_for_one_after_the_other_those_of_shown_pods_first(
    flow: Flow, browser: Browser
) -> None:
    put = [*large(), *(pods(25 + number, 1, f"late-{number}") for number in range(100))]
    async with fed(browser, flow, put, WIDTHS[0]) as page:
        asked: list[str] = []

        def note(request: Request) -> None:
            if "/insight/diagnosis?" in request.url:
                asked.append(request.url.rpartition("%2F")[2])

        page.on("request", note)
        await expect(page.locator("#pods .summary")).to_have_text([f"reason-train-{number}" for number in range(10)])
        assert asked[:10] == [f"train-{number}" for number in range(10)]
        await page.locator("#pods-filter").fill("late-99")
        await expect(page.locator("#pods [data-pod]")).to_have_count(1)
        await expect(page.locator("#pods .summary")).to_have_text("reason-late-99")


async def test_the_last_answer_stays_while_the_service_fails(flow: Flow, browser: Browser) -> None:
    async with fed(browser, flow, large(), WIDTHS[0]) as page:
        await expect(page.locator("#pods .summary")).to_have_count(10)
        status, asked = 500, asyncio.Event()

        async def answer(route: Route) -> None:
            await route.fulfill(status=status, json={"detail": f"status {status}"})
            asked.set()

        await page.route("**/insight/diagnosis?*", answer)
        await asked.wait()
        await expect(page.locator("#pods .summary")).to_have_count(10)
        status = 404
        await expect(page.locator("#pods .problem").first).to_have_text("status 404")
        assert await page.get_by_text("status 500").count() == 0


async def test_what_is_not_known_yet_is_not_called_none(flow: Flow, browser: Browser) -> None:
    async with browser_waiting(browser, flow) as page:
        for part in ("#pods", "#headroom"):
            await expect(page.locator(part)).to_contain_text("Loading …")
        await expect(page.locator(".numbers")).to_have_text("…taken …devices…nodes…pending pods")
        await expect(page.locator("#problems")).to_contain_text("Checking …")
        await expect(page.locator("#empty")).to_have_text("Counting devices …")


@asynccontextmanager
async def browser_waiting(browser: Browser, flow: Flow) -> AsyncIterator[Page]:
    """The page, whose feed says nothing."""
    context = await browser.new_context()
    page = await context.new_page()
    over = asyncio.Event()

    async def answer(route: Route) -> None:
        await over.wait()
        await route.abort()

    await page.route("**/insight/events", answer)
    await page.goto(url(flow))
    yield page
    over.set()
    await context.close()


async def test_a_gang_that_waits_is_one_row_with_the_names_of_its_pods(flow: Flow, browser: Browser) -> None:
    put = [{"kind": "pods", "key": "pods", "total": 3}, pods(0, 3, "worker", gang="gang default/train")]
    async with fed(browser, flow, put, 1440) as page:
        row = page.locator("[data-pod]")
        await expect(row.get_by_text("gang default/train")).to_be_visible()
        await row.get_by_text("3 pods").click()
        await expect(row.get_by_text("worker, worker-1, worker-2")).to_be_visible()
