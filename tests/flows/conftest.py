"""An embedded cluster with the real service, in one process: everything between them is HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from embedded_cluster.cluster import EmbeddedCluster
from tests.support.embedded.manifests import Make, claim_manifest, pod_manifest
from tests.support.flows.flow import Flow, flowing


@pytest.fixture
async def flow() -> AsyncIterator[Flow]:
    """Four nodes with eight GPUs each, service and scheduler running."""
    async with (
        EmbeddedCluster(nodes=4, devices=8, fabric_delay=0.1) as cluster,
        flowing(cluster) as running,
    ):
        yield running


@pytest.fixture
def claim() -> Make:
    return claim_manifest


@pytest.fixture
def pod() -> Make:
    return pod_manifest
