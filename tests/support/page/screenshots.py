"""Pictures of the page for docs/insight-operators.md, light and dark, wide and narrow: the demo's cluster and its pods.

`make screenshots` writes them.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from pathlib import Path
from typing import Any, NamedTuple

from playwright.async_api import Page

from dra_extender.service import logs
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.manifests import FIRST_SAMPLES
from tests.support.embedded.manifests import claim_manifest, pod_manifest
from tests.support.flows.flow import Flow
from tests.support.page.browser import Scheme, browsing, chromium, showing
from tests.support.patience import until

FOLDER = Path(__file__).parents[3] / "docs" / "pictures"
MOST_BYTES = 200_000


class Picture(NamedTuple):
    """`details`: of a device that a claim has, opened."""

    name: str
    width: int
    height: int
    scheme: Scheme
    details: bool = False


PICTURES = (
    Picture("page-light", 1440, 940, "light"),
    Picture("page-dark", 1440, 940, "dark", details=True),
    Picture("page-narrow-light", 390, 1300, "light"),
    Picture("page-narrow-dark", 390, 844, "dark", details=True),
)


async def main() -> int:
    """The exit status: 1 without a browser, or when a picture is too large."""
    if not chromium():
        sys.stderr.write("no Chromium on this machine: apt-get install chromium, or name one in CHROMIUM\n")
        return 1
    logs.configure("error")
    FOLDER.mkdir(exist_ok=True)
    async with EmbeddedCluster(nodes=4, devices=8, fabric_delay=0.1) as cluster:
        flow = Flow(cluster)
        service = await flow.start(preemption="on")
        try:
            await flow.schedule()
            await _populate(flow)
            async with browsing() as browser:
                for picture in PICTURES:
                    async with showing(
                        browser,
                        f"{service.insight_url}/",
                        width=picture.width,
                        height=picture.height,
                        scheme=picture.scheme,
                    ) as shown:
                        await _pose(shown.page, picture)
        finally:
            await flow.stop()
    sizes = {picture.name: (FOLDER / f"{picture.name}.png").stat().st_size for picture in PICTURES}
    large = {name: size for name, size in sizes.items() if size > MOST_BYTES}
    for name, size in large.items():
        sys.stderr.write(f"docs/pictures/{name}.png has {size:,} bytes, more than {MOST_BYTES:,}: show less in it\n")
    return int(bool(large))


async def _populate(flow: Flow) -> None:
    """The samples of the demo, some more pods, one that asks for too much, and a device that is out of service."""
    for sample in FIRST_SAMPLES:
        await flow.cluster.apply_samples(sample)
        await until(flow.cluster.settled, f"a cluster that is settled after {sample}")
    await until(lambda: flow.cluster.running("dra-preemption", "urgent"), "preemption")
    for name, count in (("trainer", 4), ("finetune", 2), ("greedy", 9)):
        claim = claim_manifest(name, namespace="default", allocationMode="ExactCount", count=count)
        await flow.cluster.apply([claim, pod_manifest(name, claims={"gpu": name})])
    await until(lambda: flow.cluster.running("default", "trainer", "finetune"), "the pods of the picture")
    await until(lambda: _waits(flow, "dra-samples", "unschedulable") and _waits(flow, "default", "greedy"), "who waits")
    await until(flow.cluster.settled, "a settled cluster")
    tainted = copy.deepcopy(_last_is_free(flow))
    tainted["spec"]["devices"][-1]["taints"] = [{"key": "maintenance", "value": "fan", "effect": "NoSchedule"}]
    flow.cluster.store.update(tainted)


def _last_is_free(flow: Flow) -> dict[str, Any]:
    """The slice of the last node whose last device is free: a taint shows on a free device only."""
    allocations = [claim.status.allocation for claim in flow.cluster.claims() if claim.status.allocation]
    held = {(each.pool, each.device) for allocation in allocations for each in allocation.devices.results}
    slices = [item for item in flow.cluster.store.list("resourceslices") if item["spec"].get("nodeName")]
    return next(
        item
        for item in reversed(slices)
        if (item["spec"]["pool"]["name"], item["spec"]["devices"][-1]["name"]) not in held
    )


def _waits(flow: Flow, namespace: str, name: str) -> bool:
    return bool(flow.reason(namespace, name)[0])


async def _pose(page: Page, picture: Picture) -> None:
    """Wait until the page is complete, and take the picture."""
    await page.locator(".cell.tainted[role=gridcell]").wait_for()
    await page.locator(".headroom-list li").first.wait_for()
    await page.get_by_text("Diagnosing").first.wait_for(state="hidden")
    if picture.details:
        await page.locator(".cell.used[role=gridcell]").nth(3).click()
        await page.locator("#details .holders").wait_for()
    await page.screenshot(path=FOLDER / f"{picture.name}.png")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
