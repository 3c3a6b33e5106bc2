"""What tests of the page have in common: its address, pods to look at, and a feed that says what a test wants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.embedded.manifests import claim_manifest, pod_manifest
from tests.support.flows.flow import Flow
from tests.support.patience import until

GPU = "gpu.example.com"


def url(flow: Flow) -> str:
    assert flow.service is not None
    return flow.service.insight_url + "/"


async def run(flow: Flow, name: str, **request: Any) -> None:
    """A pod with a claim of its name; it runs when this returns."""
    await wait(flow, name, **request)
    await until(lambda: flow.cluster.running("default", name), f"{name} running")


async def wait(flow: Flow, name: str, **request: Any) -> None:
    """A pod with a claim of its name."""
    await flow.cluster.apply([claim_manifest(name, **request), pod_manifest(name, claims={"gpu": name})])


def sse(put: Sequence[dict[str, Any]]) -> str:
    hello = json.dumps({"resumed": False, "now": "2026-01-01T00:00:00Z"})
    parts = json.dumps({"put": put, "drop": [], "behind": 0})
    return f"event: hello\ndata: {hello}\n\nevent: parts\ndata: {parts}\n\n"
