"""The page in Chromium, and what its feed costs the service: by default with 5,000 nodes of 8 devices.

The service is the application of insight over a cluster in memory, in this process; Chromium is another one. What the
feed costs is processor time, while the garbage collector rests, as in the service. What a person waits for is time by
the clock: leave the machine to it alone. Writes a section of docs/performance.md; `--dry-run` prints it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from collections.abc import Generator, Sequence
from statistics import median, quantiles
from typing import Any, Final

import msgspec
from playwright.async_api import Page

from bench.document import write_section
from bench.filter import allocated, cluster_of, view_of
from bench.machine import described
from dra_extender.api.core import Pod
from dra_extender.api.events import Applied
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.pods import Pods
from dra_extender.http.application import create_app, health_router
from dra_extender.http.insight import insight_router
from dra_extender.http.metrics import Metrics
from dra_extender.http.page.routes import page_router
from dra_extender.http.page.updates import PageUpdates
from dra_extender.http.server import HttpServer
from dra_extender.insight.problems import Check, ClusterProblem
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.view import View
from tests.support.page.browser import browsing, chromium, showing
from tests.support.patience import LONGEST
from tests.support.simulation.objects import make_claim, make_pod

WAITING: Final = 500
KINDS: Final = 25
UPDATES: Final = 40
SCROLLS: Final = 60
PAINT: Final = 1000.0
UPDATE: Final = 100.0
STALL: Final = 50.0
"""Milliseconds: the targets."""


class Scripted:
    """What the page asks of a service."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.kubernetes = ("", "", "")

    def unknown(self) -> str:
        return ""

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        return None

    def problems(self) -> Generator[None, None, Sequence[ClusterProblem]]:
        yield
        return []

    def shadow(self) -> str:
        return "no record"

    def live(self) -> Sequence[Check]:
        return []

    def ready(self) -> Sequence[Check]:
        return []


class Cost(msgspec.Struct, frozen=True):
    """Of one look at the cluster: milliseconds of processor time, together and of the longest step."""

    whole: float
    step: float


class Results(msgspec.Struct, frozen=True):
    """Milliseconds. `rows`: of the document, `devices` in the cluster."""

    nodes: int
    devices: int
    first: Cost
    again: Cost
    bytes: int
    paint: float
    shown: float
    complete: float
    update: float
    update_p95: float
    frame: float
    scroll: float
    rows: int


def waiting(cluster: Cluster) -> Pods:
    """`WAITING` pods that ask for too many devices, in `KINDS` groups of equal ones."""
    pods = Pods()
    for number in range(WAITING):
        kind = number % KINDS
        if number < KINDS:
            cluster.apply(Applied(make_claim(f"c{kind}", count=9 + kind)))
        pods.apply(make_pod(f"p{number}", f"c{kind}"))
    return pods


def cost_of(feed: PageUpdates) -> Cost:
    """One look."""
    steps, longest = feed.update(), 0.0
    began = time.thread_time()
    while True:
        before = time.thread_time()
        if next(steps, feed) is feed:
            return Cost(1000 * (time.thread_time() - began), 1000 * longest)
        longest = max(longest, time.thread_time() - before)


async def run(nodes: int) -> Results:
    cluster = cluster_of(nodes, serials=True)
    for node in range(0, nodes, 2):
        cluster.apply(Applied(allocated(node, [0, 1, 2], nodes + node + 1)))
    service = Scripted(view_of(cluster, waiting(cluster)))
    gc.collect()
    gc.freeze()
    gc.disable()
    alone = PageUpdates(service)
    first, again = cost_of(alone), cost_of(alone)
    gc.enable()
    size = sum(len(alone.state.get(key) or b"") for key in alone.state.keys(""))
    feed = PageUpdates(service)
    server = HttpServer(
        create_app([health_router(service, Metrics()), insight_router(service), page_router(feed)]), "127.0.0.1", 0
    )
    await server.start()
    try:
        seen = await _look(server.url, cluster, nodes)
    finally:
        await feed.close()
        await server.stop()
    return Results(nodes=nodes, devices=8 * nodes, first=first, again=again, bytes=size, **seen)


async def _look(url: str, cluster: Cluster, nodes: int) -> dict[str, Any]:
    """What a user sees who opens the page and scrolls while devices change."""
    async with browsing() as browser, showing(browser, f"{url}/") as shown:
        page = shown.page
        await page.wait_for_selector("[role=row]")
        await _until(page, "measured.firstDevices > 0")
        visible = await page.evaluate("measured.firstDevices")
        await _until(page, f"document.querySelector('[role=grid]').ariaRowCount === '{nodes}'")
        complete = await page.evaluate("performance.now()")
        paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        await asyncio.sleep(1)
        updates, frames = [], []
        for number in range(UPDATES):
            node = 2 * (number % (nodes // 2)) + 1
            before = await page.evaluate("measured.updates")
            cluster.apply(Applied(allocated(node, [0, 1, 2, 3], 10 * nodes + number)))
            await _until(page, f"measured.updates > {before}")
            updates.append(await page.evaluate("measured.lastUpdate"))
            frames.append(await page.evaluate("measured.lastFrame"))
        scrolls = await page.evaluate(_SCROLL, SCROLLS)
        rows = await page.locator("[role=row]").count()
    return {
        "paint": paint,
        "shown": visible,
        "complete": complete,
        "update": median(updates),
        "update_p95": quantiles(updates, n=20)[-1],
        "frame": median(frames),
        "scroll": quantiles(scrolls, n=20)[-1],
        "rows": rows,
    }


async def _until(page: Page, expression: str) -> None:
    """The page's policy forbids what playwright would do to wait there."""
    async with asyncio.timeout(LONGEST):
        while not await page.evaluate(expression):
            await asyncio.sleep(0.01)


_SCROLL: Final = """async (times) => {
  const scroller = document.getElementById("scroller");
  const taken = [];
  for (let time = 0; time < times; time += 1) {
    const began = performance.now();
    scroller.scrollTop += 1500;
    scroller.dispatchEvent(new Event("scroll"));
    scroller.getBoundingClientRect();
    taken.push(performance.now() - began);
    await new Promise(requestAnimationFrame);
  }
  return taken;
}"""
"""Milliseconds that each jump keeps the page from doing anything else."""


def markdown(found: Results) -> str:
    rows = [
        ("first page state, processor time", found.first.whole, None),
        ("… its longest step", found.first.step, STALL),
        ("page state without changes, processor time", found.again.whole, None),
        ("first paint", found.paint, PAINT),
        ("first devices on the screen", found.shown, PAINT),
        ("all devices known to the page", found.complete, None),
        ("an update, from its message until it was drawn, median", found.update, UPDATE),
        ("… 95 % are faster than", found.update_p95, UPDATE),
        ("… what the page computes for it", found.frame, None),
        ("a jump of 1,500 pixels, 95 % are faster than", found.scroll, None),
    ]
    table = "\n".join(f"| {name} | {ms:.1f} | {f'{want:g}' if want else ''} |" for name, ms, want in rows)
    return (
        f"## The page\n\nMeasured by `make bench-page` on {described()}, load {os.getloadavg()[0]:.1f} at the end: "
        f"{found.nodes:,} nodes with 8 devices each, {WAITING} waiting pods of {KINDS} kinds, "
        f"Chromium without a window. The feed sends {found.bytes / 2**20:.1f} MiB once, "
        f"then what changes; {found.rows} rows are in the document.\n\n"
        f"| | ms | target |\n|---|---|---|\n{table}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the file alone")
    options = parser.parse_args()
    if not chromium():
        sys.stderr.write("no Chromium on this machine: apt-get install chromium, or name one in CHROMIUM\n")
        return 2
    found = asyncio.run(run(options.nodes))
    text = markdown(found)
    sys.stdout.write(text)
    if not options.dry_run:
        write_section("bench-page", text)
    return int(max(found.paint, found.shown) > PAINT or found.update > UPDATE or found.first.step > STALL)


if __name__ == "__main__":
    sys.exit(main())
