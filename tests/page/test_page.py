"""The page in a browser: what it shows is what the cluster has, live; everybody can use it; and nobody can abuse it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.support.flows.flow import Flow
from tests.support.page.browser import Scheme, Shown, showing
from tests.support.page.looking import run, url, wait
from tests.support.patience import LONGEST, until

pytestmark = pytest.mark.slow

expect.set_options(timeout=1000 * LONGEST)


async def told(flow: Flow) -> dict[tuple[str, str], str]:
    """State by node and device, as `/insight/devices` says it."""
    async with aiohttp.ClientSession() as session, session.get(f"{url(flow)}insight/devices") as reply:
        return {(device["node"], device["name"]): device["state"] for device in (await reply.json())["devices"]}


async def seen(page: Page) -> dict[tuple[str, str], str]:
    """The same as the page shows it."""
    cells: Sequence[Sequence[str]] = await page.eval_on_selector_all(
        "[role=gridcell]",
        "cells => cells.map(cell => [cell.closest('[role=row]').dataset.row, ...cell.ariaLabel.split(/, | by /)])",
    )
    return {(row.removeprefix("node "), device): state for row, device, state, *_ in cells}


def cell(shown: Shown, node: str, device: str) -> Any:
    return shown.page.locator(f'[data-row="node {node}"]').get_by_role("gridcell", name=device)


# --- what it shows


async def test_the_grid_shows_what_the_api_says(flow: Flow, browser: Browser) -> None:
    await run(flow, "pair", count=2, allocationMode="ExactCount")
    async with showing(browser, url(flow)) as shown:
        await expect(shown.page.locator(".cell.used[role=gridcell]")).to_have_count(2)
        assert await seen(shown.page) == await told(flow)
        assert len(await seen(shown.page)) == 8
        await expect(shown.page.get_by_role("grid")).to_have_attribute("aria-rowcount", "2")
        await expect(shown.page.locator(".numbers")).to_contain_text("25%")


async def test_a_taint_appears_while_somebody_looks(flow: Flow, browser: Browser) -> None:
    async with showing(browser, url(flow)) as shown:
        await expect(cell(shown, "node-1", "gpu-2")).to_have_accessible_name("gpu-2, free")
        (published,) = (
            item for item in flow.cluster.store.list("resourceslices") if item["spec"]["nodeName"] == "node-1"
        )
        changed = json.loads(json.dumps(published))
        changed["spec"]["devices"][2]["taints"] = [{"key": "maintenance", "value": "fan", "effect": "NoSchedule"}]
        flow.cluster.store.update(changed)
        await expect(cell(shown, "node-1", "gpu-2")).to_have_accessible_name("gpu-2, tainted")
        await cell(shown, "node-1", "gpu-2").click()
        await expect(shown.page.locator("#details")).to_contain_text("maintenance=fan:NoSchedule")


async def test_a_pod_waits_its_remedy_is_applied_it_runs_and_the_page_shows_all_of_it(
    flow: Flow, browser: Browser
) -> None:
    async with showing(browser, url(flow)) as shown:
        await wait(flow, "greedy", count=5, allocationMode="ExactCount")
        pod = shown.page.locator('[data-pod="default/greedy"]')
        await expect(pod.locator(".summary")).to_have_text(
            "claim greedy: 5 devices of class gpu.example.com requested, no node has more than 4"
        )
        await expect(pod.locator(".remedy").first).to_contain_text("at most 4 devices instead of 5")
        await flow.cluster.delete("pods", "greedy", "default")
        await flow.cluster.delete("resourceclaims", "greedy", "default")
        await until(lambda: flow.cluster.store.get("resourceclaims", "greedy", "default") is None)
        await run(flow, "greedy", count=4, allocationMode="ExactCount")
        await expect(pod).to_have_count(0)
        await expect(shown.page.locator(".cell.used[role=gridcell]")).to_have_count(4)


async def test_details_have_attributes_and_holders_with_commands(flow: Flow, browser: Browser) -> None:
    await run(flow, "train")
    async with showing(browser, url(flow)) as shown:
        await shown.page.locator(".cell.used[role=gridcell]").click()
        details = shown.page.locator("#details")
        await expect(details).to_contain_text("default/train")
        await expect(details).to_contain_text("GPU-MODEL")
        await expect(details.locator("pre").first).to_have_text("kubectl describe resourceclaim train -n default")
        await expect(details.locator("pre").nth(1)).to_have_text("kubectl describe pod train -n default")


async def test_a_click_is_not_lost_when_its_row_changes_between_press_and_release(flow: Flow, browser: Browser) -> None:
    async with showing(browser, url(flow)) as shown:
        await cell(shown, "node-1", "gpu-1").hover()
        await shown.page.mouse.down()
        await flow.cluster.driver.taint("node-1", "gpu-2", "maintenance", "NoSchedule")
        await expect(cell(shown, "node-1", "gpu-2")).to_have_accessible_name("gpu-2, tainted")
        await shown.page.mouse.up()
        await expect(shown.page.locator("#details")).to_contain_text("gpu-1")


async def test_problems_and_room_are_shown(flow: Flow, browser: Browser) -> None:
    async with showing(browser, url(flow)) as shown:
        await expect(shown.page.locator("#headroom")).to_contain_text("8 pods")
        await expect(shown.page.locator("#problems")).to_contain_text("None")


async def test_what_if_says_who_would_fit(flow: Flow, browser: Browser) -> None:
    await run(flow, "train", count=4, allocationMode="ExactCount")
    await run(flow, "other", count=4, allocationMode="ExactCount")
    await wait(flow, "late")
    async with showing(browser, url(flow)) as shown:
        await shown.page.locator("#add-like").fill("node-1")
        await shown.page.get_by_role("button", name="Try it").click()
        answer = shown.page.locator("#whatif .answer")
        await expect(answer).to_contain_text("1 pod would fit then")
        await expect(answer).to_contain_text("default/late node-1-like-1")
        await shown.page.locator("#add-like").fill("nowhere")
        await shown.page.get_by_role("button", name="Try it").click()
        await expect(answer.locator(".problem")).to_contain_text("nowhere")


async def test_the_filter_leaves_what_was_asked_for(flow: Flow, browser: Browser) -> None:
    await run(flow, "train")
    async with showing(browser, url(flow)) as shown:
        await expect(shown.page.locator("[role=row]")).to_have_count(2)
        await shown.page.locator("#filter").fill("namespace:default")
        await expect(shown.page.locator("[role=row]")).to_have_count(1)
        await expect(shown.page.locator("[role=gridcell]:not(.other)")).to_have_count(1)
        for words in ("state:tainted", "constructor:x", "__proto__:x"):
            await shown.page.locator("#filter").fill(words)
            await expect(shown.page.locator("#empty")).to_have_text("No device matches the filter.")
            await shown.page.locator("#filter").fill("")
            await expect(shown.page.locator("[role=row]")).to_have_count(2)


async def test_the_page_says_when_it_is_not_live_and_comes_back(flow: Flow, browser: Browser) -> None:
    async with showing(browser, url(flow)) as shown:
        live, cells = shown.page.locator("#live"), shown.page.locator("[role=gridcell]")
        await expect(live).to_have_text("live")
        await expect(cells).to_have_count(8)
        await flow.kill()
        await expect(live).to_contain_text("not live")
        await expect(cells).to_have_count(8)
        await flow.start()
        await expect(live).to_have_text("live")


async def test_where_readers_show_a_token_the_page_asks_for_one(flow: Flow, browser: Browser) -> None:
    assert flow.service is not None
    await flow.service.stop()
    await flow.start(insight_authorization=True)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "default"}}
    flow.cluster.store.create(account)
    path = f"{flow.cluster.url}/api/v1/namespaces/default/serviceaccounts/reader/token"
    async with aiohttp.ClientSession() as session, session.post(path, json={"spec": {}}) as reply:
        token = (await reply.json())["status"]["token"]
    async with showing(browser, url(flow)) as shown:
        page = shown.page
        await expect(page.locator("#token-why")).to_contain_text("a bearer token is needed")
        await page.locator("#token-input").fill("wrong")
        await page.get_by_role("button", name="Use this token").click()
        await expect(page.locator("#token-why")).to_contain_text("does not accept this token")
        await page.locator("#token-input").fill(token)
        await page.get_by_role("button", name="Use this token").click()
        await expect(page.get_by_role("gridcell")).to_have_count(8)
        await page.reload()
        await expect(page.get_by_role("gridcell")).to_have_count(8)
        kept = "[Object.values(sessionStorage), Object.values(localStorage), document.cookie]"
        assert await page.evaluate(kept) == [[token], [], ""]


# --- who uses it


async def test_arrow_keys_walk_and_enter_opens_details(flow: Flow, browser: Browser) -> None:
    async with showing(browser, url(flow)) as shown:
        page = shown.page
        await expect(page.locator("[role=gridcell]")).to_have_count(8)

        async def focused() -> str:
            found: str = await page.evaluate(
                "[document.activeElement.closest('[role=row]')?.dataset.row, document.activeElement.ariaLabel].join()"
            )
            return found

        assert await page.locator("[role=gridcell][tabindex='0']").count() == 1
        await page.locator("#sort").focus()
        await page.keyboard.press("Tab")
        walk = [("", "1", 0), ("ArrowRight", "1", 1), ("ArrowDown", "2", 1), ("End", "2", 3), ("ArrowRight", "2", 3),
                ("ArrowUp", "1", 3), ("Home", "1", 0), ("Control+End", "2", 3), ("Control+Home", "1", 0)]  # fmt: skip
        for key, node, device in walk:
            if key:
                await page.keyboard.press(key)
            assert await focused() == f"node node-{node},gpu-{device}, free", key
            assert await page.locator("[role=gridcell][tabindex='0']").count() == 1
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("Enter")
        await expect(page.locator("#details h2")).to_have_text("gpu-1")
        await page.keyboard.press("Escape")
        await expect(page.locator("#details")).to_be_hidden()
        assert await focused() == "node node-1,gpu-1, free"


async def test_the_focus_stays_where_it_is_when_devices_change(flow: Flow, browser: Browser) -> None:
    async with showing(browser, url(flow)) as shown:
        await expect(shown.page.locator("[role=gridcell]")).to_have_count(8)
        await cell(shown, "node-1", "gpu-3").focus()
        await run(flow, "all", allocationMode="All")
        await expect(shown.page.locator(".cell.used[role=gridcell]")).to_have_count(4)
        assert await shown.page.evaluate("document.activeElement.ariaLabel.split(',')[0]") == "gpu-3"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_axe_finds_nothing(flow: Flow, browser: Browser, scheme: Scheme, width: int) -> None:
    await run(flow, "pair", count=2, allocationMode="ExactCount")
    await wait(flow, "greedy", count=5, allocationMode="ExactCount")
    async with showing(browser, url(flow), width=width, scheme=scheme) as shown:
        await expect(shown.page.locator(".remedy").first).to_be_visible()
        await shown.page.locator(".pods summary").first.click()
        for step in ("closed", "open"):
            found = await Axe().run(shown.page)
            assert found.violations_count == 0, f"{step}: {found.generate_report()}"
            await shown.page.locator(".cell.used[role=gridcell]").first.click()
            await expect(shown.page.locator("#details")).to_contain_text("default/pair")
        assert await shown.page.evaluate("document.documentElement.scrollWidth") <= width
