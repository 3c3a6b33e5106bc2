"""The rows of pending pods, and the end of the updates."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dra_extender.api.core import Pod
from dra_extender.http.page.updates import CLAIMS, PageUpdates
from dra_extender.insight.problems import ClusterProblem
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.turns import Turns, run_at_once
from dra_extender.scheduling.view import View
from tests.support.counting import counted_turns
from tests.support.diagnosis.gangscenes import CLASS, claim, host, member, pod
from tests.support.diagnosis.scene import Scene


class KnownInsight:
    """Insight of a cluster that is known."""

    def __init__(self, view: View) -> None:
        self.view = view

    def unknown(self) -> str:
        return ""

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        return None

    def problems(self) -> Turns[list[ClusterProblem]]:
        yield
        return []

    def shadow(self) -> str:
        return "no record"


def test_a_gang_is_one_row_with_all_its_pods_that_wait() -> None:
    """Pods of a gang whose claims differ, too."""
    pods = [member(0, 3), member(1, 3), member(2, 3), pod("alone")]
    claims = [claim("g-0"), claim("g-1"), claim("g-2", 2), claim("alone")]
    updates = PageUpdates(KnownInsight(Scene([CLASS, *host("n0", 1), *claims, *pods]).view()), clock=lambda: 0.0)
    run_at_once(updates.update())
    rows = [json.loads(updates.state.get(key) or b"") for key in updates.state.keys("pod\n")]
    found = {(row["gang"], row["count"], row["name"], *row["others"]) for row in rows}
    assert found == {("", 1, "alone"), ("gang default/g", 3, "g-2", "g-0", "g-1")}


def test_pods_with_many_claims_are_compared_one_in_a_turn() -> None:
    entries = [{"name": f"c{number}", "resourceClaimName": f"c{number}"} for number in range(CLAIMS)]
    turns = []
    for claims in (entries[:1], entries):
        pods = [pod(f"p{number}") | {"spec": {"resourceClaims": claims}} for number in range(20)]
        updates = PageUpdates(KnownInsight(Scene([CLASS, *host("n0", 1), *pods]).view()), clock=lambda: 0.0)
        turns.append(sum(1 for _ in updates.update()))
    assert turns[1] - turns[0] >= 19


def test_large_pods_are_compared_one_in_a_turn() -> None:
    turns = []
    for count in (1, 1_000):
        terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * count
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec = {"affinity": {"nodeAffinity": required}, "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
        pods = [pod(f"p{number}") | {"spec": spec} for number in range(20)]
        updates = PageUpdates(KnownInsight(Scene([CLASS, *host("n0", 1), *pods]).view()), clock=lambda: 0.0)
        turns.append(sum(1 for _ in updates.update()))
    assert turns[1] - turns[0] >= 20


AMOUNTS = {f"example.com/r{number}": "1" for number in range(2_000)}
CONTAINERS = [{"name": "main", "resources": {"requests": AMOUNTS}}]


@pytest.mark.parametrize("spec", [{"resourceClaims": []}, {}], ids=["without devices", "with devices"])
def test_pods_that_ask_for_many_resources_are_read_a_few_in_a_turn(spec: dict[str, Any]) -> None:
    pods = [pod(f"p{number}", containers=CONTAINERS, **spec) for number in range(40)]
    updates = PageUpdates(KnownInsight(Scene([CLASS, *host("n0", 1), *pods]).view()), clock=lambda: 0.0)
    found = counted_turns(updates.update())
    assert found.turns > 10
    assert found.largest < 40 * len(AMOUNTS)


async def test_a_page_that_comes_back_after_the_end_starts_nothing() -> None:
    """Browsers connect again as soon as their stream ends, and listeners may close later than streams."""
    updates = PageUpdates(KnownInsight(Scene([CLASS, *host("n0", 1)]).view()))
    with updates.subscriber("", None, list):
        await updates.close()
    with updates.subscriber("", None, list):
        assert {task.get_name() for task in asyncio.all_tasks()} & {"page updates"} == set()
