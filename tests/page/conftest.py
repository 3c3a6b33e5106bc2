"""A browser, and an embedded cluster with the real service to look at."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from embedded_cluster.cluster import EmbeddedCluster
from tests.support.flows.flow import Flow
from tests.support.page.browser import browsing, chromium


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if not chromium():
        pytest.skip("no Chromium on this machine: apt-get install chromium, or name one in CHROMIUM")
    async with browsing() as made:
        yield made


@pytest.fixture
async def flow() -> AsyncIterator[Flow]:
    """Two nodes with four GPUs each, service and scheduler running."""
    async with EmbeddedCluster(nodes=2, devices=4, fabric_delay=0.1) as cluster:
        running = Flow(cluster)
        await running.start()
        await running.schedule()
        yield running
        await running.stop()
        cluster.check()
