"""Binds that wait for workers, as after a change of leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest

from dra_extender.scheduling.deferred import DeferredWork
from tests.support.allocation.heavy import LOOPS, selecting
from tests.support.scheduling.gangs import nodes
from tests.support.simulation.objects import make_pod
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World


async def test_a_bind_decides_again_only_when_work_is_done_that_it_needs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions, decide = Counter[str](), DeferredWork.decide

    async def counting(self: DeferredWork, pod: Any, *more: Any) -> Any:
        decisions[pod.metadata.name] += 1
        return await decide(self, pod, *more)

    monkeypatch.setattr(DeferredWork, "decide", counting)
    names = [f"p{number}" for number in range(20)]
    claims = [selecting(f"c-{name}", f"{LOOPS} && '{name}' != ''") for name in names]
    pods = [make_pod(name, f"c-{name}") for name in names]
    service = world.service(*nodes(20, 1), *claims, *pods, workers=VirtualWorkers(lambda _: 0.2))
    service.start()
    await world.settle()
    binds = [service.spawn(service.bind(pod, f"n{number}")) for number, pod in enumerate(pods, start=1)]
    await world.settle(15.0)
    assert [await each for each in binds] == [""] * len(pods)
    assert max(decisions.values()) <= 4


async def test_an_answer_that_arrives_during_a_decision_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next decision is made at once, whatever other work is open."""
    service = world.service(*nodes(1, 1), make_pod("p"), workers=VirtualWorkers())
    deferred, pod = service.extender.deferred, world.api.pod("p")
    results = iter([("waits", True), ("decided", False)])

    async def decide(self: DeferredWork, pod: Any, decision: Any, awaited: set[Hashable]) -> Any:
        awaited.add("answered")
        return next(results)

    monkeypatch.setattr(DeferredWork, "decide", decide)
    deferred._replies.open.add("work of others")
    started = world.clock.monotonic()
    assert await deferred.decide_within(10.0, pod, lambda view, pod: "") == "decided"
    assert world.clock.monotonic() == started
