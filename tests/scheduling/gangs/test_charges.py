"""The units that decisions about gangs are charged, compared with the work that they are."""

from __future__ import annotations

from functools import partial

import pytest

from dra_extender.allocation.budget import TurnBudget
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from tests.support.counting import lines
from tests.support.scheduling.gangs import gang, nodes
from tests.support.scheduling.nominating import ON, running
from tests.support.simulation.world import World


@pytest.mark.parametrize("size", [8, 32])
async def test_preemption_for_a_gang_is_charged_for_the_lines_that_its_pods_take(world: World, size: int) -> None:
    service = world.service(*nodes(64, 1), *gang("g", size, priority=100), config=ON)
    for number in range(1, 65):
        await running(world, service, f"n{number}", f"v{number}")
    pod, names, ran = world.api.pod("g-0"), list(service.extender.view.cluster.nodes), 0
    for _ in range(2):  # the first evaluation also finds what later ones share
        budget = TurnBudget(WorkerReplies(), allowance=10**9, ceiling=20_000)
        evaluator = PreemptionEvaluator(service.extender.preemption.terms(pod), names)
        view = service.extender.view.with_pod(pod).with_budget(budget)
        ran = lines(partial(evaluator.evaluate, view), 10**9, "app")
    assert ran < 15 * budget.used
