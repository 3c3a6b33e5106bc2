"""The units that decisions about gangs are charged, compared with the work that they are."""

from __future__ import annotations

from functools import partial

import pytest

from dra_extender.allocation.budget import TurnBudget
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from tests.scheduling.gangs.test_work import run
from tests.support.counting import lines
from tests.support.scheduling.gangs import gang, nodes
from tests.support.scheduling.nominating import ON, running
from tests.support.simulation.world import World


@pytest.mark.parametrize(
    ("size", "devices", "preempts"), [(64, 1, False), (512, 8, False), (512, 4, False), (32, 1, True)]
)
async def test_a_gang_is_charged_for_the_lines_that_its_pods_take(
    world: World, size: int, devices: int, preempts: bool
) -> None:
    service = world.service(*nodes(64, devices), *gang("g", size, priority=100), config=ON)
    for number in range(64 if preempts else 0):
        await running(world, service, f"n{number + 1}", f"v{number}")
    pod, names = world.api.pod("g-0"), list(service.extender.view.cluster.nodes)
    terms, ran = service.extender.preemption.terms(pod), 0
    for _ in range(2):  # the first decision also finds what later ones share
        budget = TurnBudget(WorkerReplies(), allowance=10**9, ceiling=20_000)
        view, action = service.extender.view.with_pod(pod).with_budget(budget), partial(run, service, world, budget)
        ran = lines(partial(PreemptionEvaluator(terms, names).evaluate, view) if preempts else action, 10**9, "app")
    assert ran < 10 * budget.used
