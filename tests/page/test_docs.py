"""The list of questions at /docs in a browser: it is all there, and everybody can read it."""

from __future__ import annotations

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from tests.support.flows.flow import Flow
from tests.support.page.browser import showing
from tests.support.patience import LONGEST

pytestmark = pytest.mark.slow

expect.set_options(timeout=1000 * LONGEST)


async def test_what_can_be_asked_is_listed_at_docs(flow: Flow, browser: Browser) -> None:
    assert flow.service is not None
    async with showing(browser, f"{flow.service.insight_url}/docs", width=390) as shown:
        await expect(shown.page.locator("#questions code", has_text="/insight/diagnosis")).to_be_visible()
        await expect(shown.page.locator("#questions")).to_contain_text("required")
        found = await Axe().run(shown.page)
        assert (found.violations_count, shown.complaints) == (0, []), found.generate_report()
        assert await shown.page.evaluate("document.documentElement.scrollWidth") <= 390
