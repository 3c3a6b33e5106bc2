"""The page in a headless Chromium, which has to be on the machine: nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from playwright.async_api import Browser, Page, async_playwright

from tests.support.patience import LONGEST

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

Scheme = Literal["light", "dark"]


def chromium() -> str:
    """The path of the browser; empty without one."""
    named = os.environ.get("CHROMIUM", "")
    return named or next((found for name in NAMES if (found := shutil.which(name))), "")


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A browser without a window."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS, timeout=1000 * LONGEST)
        try:
            yield browser
        finally:
            await browser.close()


class Shown:
    """A page, and what its console said: errors of scripts, and what the content security policy refused."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")


@asynccontextmanager
async def showing(
    browser: Browser, url: str, *, width: int = 1440, height: int = 900, scheme: Scheme = "light"
) -> AsyncIterator[Shown]:
    """The page at the address, in a window of its own."""
    context = await browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    context.set_default_timeout(1000 * LONGEST)
    shown = Shown(await context.new_page())
    await shown.page.goto(url)
    try:
        yield shown
    finally:
        await context.close()
