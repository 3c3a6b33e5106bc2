"""Probes, version and metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.http.application import create_insight_app
from app.http.health import Check
from app.http.metrics import OBSERVED, SPECS, STEPS, Metrics, markdown_table
from app.http.server import HttpServer
from app.scheduling import outcomes
from app.version import VERSION


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_a_probe_answers_200_or_503_and_says_why(served: Any, session: aiohttp.ClientSession, path: str) -> None:
    async with session.get(served.url + path) as reply:
        assert (reply.status, await reply.json()) == (
            200,
            {"ok": True, "checks": [{"name": "sync", "ok": True, "problem": ""}]},
        )
    served.checks = [Check(name="sync", ok=False, problem="Node: not listed yet")]
    async with session.get(served.url + path) as reply:
        assert reply.status == 503
        assert (await reply.json())["checks"][0]["problem"] == "Node: not listed yet"


async def test_the_version_names_both_sides(served: Any, session: aiohttp.ClientSession) -> None:
    async with session.get(served.url + "/version") as reply:
        assert await reply.json() == {
            "version": VERSION,
            "kubernetes": "v1.36.2",
            "resource_api": "v1",
            "server": "http://api",
        }


async def test_metrics_are_exposed_with_what_is_read_at_that_moment(
    served: Any, session: aiohttp.ClientSession
) -> None:
    served.metrics.count(outcomes.CONFLICTS, "rival")
    served.metrics.took(outcomes.STATUS_SECONDS, 0.004)
    async with session.get(served.url + "/metrics") as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await reply.text()
    for line in (
        "dra_extender_ready 1.0",
        'dra_extender_objects{kind="Node"} 3.0',
        'dra_extender_conflicts_total{kind="rival"} 1.0',
        'dra_extender_step_seconds_count{step="status"} 1.0',
        "process_resident_memory_bytes",
    ):
        assert line in text


def test_everything_that_scheduling_observes_is_a_metric() -> None:
    constants = {name: value for name, value in vars(outcomes).items() if name.isupper() and isinstance(value, str)}
    steps = {value for name, value in constants.items() if name.endswith("_SECONDS")}
    assert steps == STEPS
    assert set(constants.values()) - steps == set(OBSERVED)
    assert set(OBSERVED.values()) <= {spec.name for spec in SPECS}


def test_the_reference_in_the_documentation_is_current() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert markdown_table() in text, "write it anew with app.http.metrics.markdown_table()"


async def test_with_an_address_of_its_own_insight_serves_no_verbs(served: Any, session: aiohttp.ClientSession) -> None:
    server = HttpServer(create_insight_app(served, Metrics()), "127.0.0.1", 0, grace=1)
    await server.start()
    async with session.get(server.url + "/readyz") as reply:
        assert reply.status == 200
    async with session.post(server.url + "/scheduler/filter", json={}) as reply:
        assert reply.status == 404
    await server.stop()
