"""Probes, version and metrics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Literal, get_args, get_origin

import aiohttp
import pytest

from dra_extender.http.application import create_app
from dra_extender.http.metrics import (
    SPECS,
    VERB_RESULTS,
    Metrics,
    Spec,
    VerbResult,
)
from dra_extender.insight.problems import Check
from dra_extender.scheduling import outcomes
from dra_extender.scheduling.outcomes import LabelledCounter, Reading
from dra_extender.service.replica import Replica
from dra_extender.unexpected import PLACES, ErrorPlace, counts
from tests.support.http.served import Served, serving
from tests.support.unexpected import Reports, raises_unexpected


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_a_probe_answers_200_or_503_and_says_why(
    served: Served, session: aiohttp.ClientSession, path: str
) -> None:
    async with session.get(served.url + path) as reply:
        assert (reply.status, await reply.json()) == (
            200,
            {"ok": True, "checks": [{"name": "sync", "ok": True, "problem": ""}]},
        )
    served.checks = [Check(name="sync", ok=False, problem="Node: not listed yet")]
    async with session.get(served.url + path) as reply:
        assert reply.status == 503
        assert (await reply.json())["checks"][0]["problem"] == "Node: not listed yet"


async def test_between_two_scrapes_everything_else_goes_on(
    served: Served, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    def exposition() -> bytes:
        happened.append("scrape")
        return b""

    async def others() -> None:
        while True:
            happened.append("others")
            await asyncio.sleep(0)

    async def scrape() -> int:
        async with session.get(served.url + "/metrics") as reply:
            return reply.status

    monkeypatch.setattr(served.metrics, "exposition", exposition)
    going_on = asyncio.create_task(others())
    statuses = await asyncio.gather(*(scrape() for _ in range(20)))
    going_on.cancel()
    scrapes = [number for number, what in enumerate(happened) if what == "scrape"]
    assert statuses == [200] * 20 and len(scrapes) == 20
    assert all(later - earlier > 1 for earlier, later in pairwise(scrapes))


@pytest.mark.parametrize(("size", "status"), [(8_192, 200), (8_193, 414)])
async def test_parameters_are_bounded(served: Served, session: aiohttp.ClientSession, size: int, status: int) -> None:
    async with session.get(served.url + "/metrics?" + "x" * size) as reply:
        assert reply.status == status


async def test_metrics_are_exposed_with_what_is_read_at_that_moment(
    served: Served, session: aiohttp.ClientSession
) -> None:
    served.metrics.count(outcomes.CONFLICTS, "device_taken")
    served.metrics.took("status", 0.004)
    async with session.get(served.url + "/metrics") as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await reply.text()
    for line in (
        "dra_extender_ready 1.0",
        'dra_extender_objects{kind="Node"} 3.0',
        'dra_extender_conflicts_total{reason="device_taken"} 1.0',
        'dra_extender_bind_step_duration_seconds_count{step="status"} 1.0',
        "process_resident_memory_bytes",
    ):
        assert line in text


def test_every_value_of_every_outcome_is_declared_explained_and_begins_with_zero() -> None:
    declared = [value for value in vars(outcomes).values() if isinstance(value, LabelledCounter)]
    assert list(outcomes.OUTCOMES) == declared
    labels = {get_args(value) for value in vars(outcomes).values() if get_origin(value) is Literal}
    assert labels <= {*(tuple(outcome.values) for outcome in declared), tuple(outcomes.STEPS)}
    assert (get_args(VerbResult), get_args(ErrorPlace)) == (tuple(VERB_RESULTS), tuple(PLACES))
    text = Metrics().exposition().decode()
    for outcome in declared:
        for value in outcome.values:
            assert f'dra_extender_{outcome.name}{{{outcome.label}="{value}"}} 0.0' in text


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_names_of_metrics_follow_the_conventions_of_prometheus(spec: Spec) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", spec.name)
    assert spec.name.endswith("_total") == (spec.type == "counter")
    assert spec.type != "histogram" or spec.name.endswith("_seconds")
    fixed = {"verb", "result", "reason", "write", "step", "kind", "where", "cause", "reader", "state", "rule"}
    bounded = {"driver", "device_class", "capacity"}  # dra_extender.service.devicemetrics limits the number of names
    assert set(spec.labels) <= fixed | bounded


def test_what_is_not_declared_raises_in_tests() -> None:
    metrics = Metrics()
    wrong: list[Callable[[], None]] = [
        lambda: metrics.count(outcomes.CONFLICTS, "rival"),  # type: ignore[misc]
        lambda: metrics.count(LabelledCounter("unheard_of_total", "", "result", {"a": ""}), "a"),
        lambda: metrics.took("lunch", 1.0),  # type: ignore[arg-type]
        lambda: metrics.answered("bind", "great", 1.0),  # type: ignore[arg-type]
    ]
    for count in wrong:
        with raises_unexpected("metrics"):
            count()


def test_what_is_not_declared_is_counted_in_production(tolerated: Reports) -> None:
    metrics = Metrics()
    before = counts()["metrics"]
    metrics.count(outcomes.CONFLICTS, "rival")  # type: ignore[misc]
    metrics.read_from(lambda: [Reading("unheard_of", 1.0), Reading("binds_unfinished", 1.0, ("label",))])
    metrics.read_from(Replica().readings)
    text = metrics.exposition().decode()
    assert "rival" not in text and "unheard_of" not in text and "binds_unfinished" not in text
    assert f'dra_extender_unexpected_errors_total{{where="metrics"}} {counts()["metrics"]}.0' in text
    assert len(tolerated) == counts()["metrics"] - before >= 3


async def test_with_an_address_of_its_own_insight_serves_no_verbs(
    served: Served, session: aiohttp.ClientSession
) -> None:
    async with serving(create_app(served.pages)) as server:
        async with session.get(server.url + "/readyz") as reply:
            assert reply.status == 200
        async with session.post(server.url + "/scheduler/filter", json={}) as reply:
            assert reply.status == 404
