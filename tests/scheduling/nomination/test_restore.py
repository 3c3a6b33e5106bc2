"""What a new leader takes over: only what the status of pods says, which users cannot write, and what is true."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dra_extender.api.core import Pod
from dra_extender.scheduling.nomination.controller import RESTORE_PAUSE, RESTORE_SECONDS
from dra_extender.scheduling.nomination.lifecycle import Questions
from dra_extender.scheduling.nomination.nominations import PREEMPTING, is_preempting
from tests.support.allocation.heavy import LOOPS, selecting
from tests.support.scheduling.gangs import member
from tests.support.scheduling.nominating import FOUR, ON, full, tried, until_bound, wanting
from tests.support.simulation.api import deleted
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata, with_pod_status
from tests.support.simulation.virtualtime import START
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World

FOREVER = 10**9
CONDITION = {"type": PREEMPTING, "status": "True"}
NOMINATED = {"nominatedNodeName": "n1", "conditions": [CONDITION]}


async def nodes_for(world: World, name: str, seconds: float = 5.0) -> list[str]:
    """Where a new leader offers the pod a place after this time."""
    service = world.service(config=ON)
    service.start()
    await world.settle(seconds)
    return list((await service.filter(world.api.pod(name))).NodeNames or ())


async def test_what_a_user_writes_on_pods_keeps_no_device_from_anybody(world: World, small: Objects) -> None:
    """A gated pod of priority 0 names as its victim another pod of the user, which needs 30 years to go."""
    marks = {
        "dra-extender.dev/preemption": '{"node": "n1", "victims": ["uid-v"], "until": "2100-01-01T00:00:00Z"}',
        PREEMPTING: "True",
    }
    gated = make_pod("p", "of-p", schedulingGates=[{"name": "mine"}])
    victim = make_pod("v", terminationGracePeriodSeconds=FOREVER)
    world.add(*small, make_claim("of-p", count=2, pod="p"), *wanting("low", 0, count=2))
    world.add(with_metadata(gated, annotations=marks, labels=marks))
    world.add(with_metadata(victim, finalizers=("example.com/stay",), **deleted(START, FOREVER)))
    assert await nodes_for(world, "low") == ["n1", "n2"]


@pytest.mark.parametrize(
    ("status", "spec", "metadata", "kept"),
    [
        (NOMINATED, {}, {}, True),
        ({"nominatedNodeName": "n1"}, {}, {}, False),
        ({"conditions": [CONDITION]}, {}, {}, False),
        (NOMINATED, {"schedulingGates": [{"name": "mine"}]}, {}, False),
        (NOMINATED, {"preemptionPolicy": "Never"}, {}, False),
        (NOMINATED, {"schedulerName": "other"}, {}, False),
        (NOMINATED, {}, deleted(START, FOREVER), False),
    ],
    ids=["nominated", "by another component", "no node", "gated", "never preempts", "of another scheduler", "deleted"],
)
async def test_devices_are_kept_for_a_pod_that_waits_and_may_preempt_until_the_margin_is_over(
    world: World, small: Objects, status: dict[str, Any], spec: dict[str, Any], metadata: dict[str, Any], kept: bool
) -> None:
    pod = with_pod_status(make_pod("p", "of-p", priority=10, **spec), status)
    world.add(*small, make_claim("of-p", count=2, pod="p"), *wanting("low", 0, count=2))
    world.add(with_metadata(pod, finalizers=("example.com/stay",), **metadata))
    assert await nodes_for(world, "low") == (["n2"] if kept else ["n1", "n2"])
    await world.settle(ON.preemption_margin_seconds)
    assert await nodes_for(world, "low", 0.0) == ["n1", "n2"]
    assert metadata or not is_preempting(world.api.pod("p"))


@pytest.mark.parametrize(("own", "seconds"), [(FOREVER, 700.0), (700, 700.0), (None, 80.0)])
async def test_a_preemptor_does_not_wait_longer_than_the_limit_for_a_victim_with_a_long_grace_period(
    world: World, small: Objects, own: int | None, seconds: float
) -> None:
    """The leader and, after a restart, the next one give it up, and preempt elsewhere."""
    service = await full(world, small, FOUR)
    pod = world.api.pod("a")
    spec = msgspec.structs.replace(pod.spec, termination_grace_period_seconds=own)
    world.api.put(msgspec.structs.replace(pod, spec=spec))
    world.api.stopping["a"] = 5000.0
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert world.api.evicted == ["a"]
    await service.kill()
    second = world.service(config=ON)
    second.start()
    assert await until_bound(world, second, "p", seconds) == "n2"


async def test_a_replica_starts_when_nobody_can_say_at_once_if_a_nomination_still_holds(
    world: World, small: Objects
) -> None:
    first = await full(world, small, FOUR)
    first.client.kill_on = "evict_pod", "before"
    world.add(*wanting("p", 10))
    assert not await tried(world, first, "p")
    await world.settle(3.0)
    await first.kill()
    second = world.service(config=msgspec.structs.replace(ON, question_work=1), workers=VirtualWorkers.none())
    second.start()
    await world.settle(1.0)
    assert second.extender.restored.is_set(), "no worker will answer"
    await world.settle(9.0)
    assert (world.api.evicted, is_preempting(world.api.pod("p"))) == ([], False)


async def test_a_replica_that_leads_again_keeps_the_nomination_of_the_leader_in_between(
    world: World, small: Objects
) -> None:
    """As a standby it sees a pod with a nomination that is not its own."""
    first = await full(world, small, FOUR)
    second = world.service(config=ON)
    leader = [first]
    first.extender.leading = lambda: leader == [first]
    second.extender.leading = lambda: leader == [second]
    await world.settle(3.0)
    leader[:] = [second]
    second.start()
    world.api.stopping["a"] = 30.0
    world.add(*wanting("p", 10))
    assert not await tried(world, second, "p")
    await world.settle(5.0)
    leader[:] = [first]
    first.spawn(first.extender.preemption.restore())
    await world.settle(5.0)
    pod = world.api.pod("p")
    assert (pod.status.nominated_node_name, is_preempting(pod), world.api.evicted) == ("n1", True, ["a"])
    assert await until_bound(world, first, "p") == "n1"


async def test_a_new_leader_waits_for_workers_before_it_gives_up_a_nomination(world: World, small: Objects) -> None:
    first = await full(world, small, FOUR, workers=VirtualWorkers())
    world.api.stopping["a"] = 30.0
    world.add(selecting("of-p", LOOPS), make_pod("p", "of-p", priority=10))
    for _ in range(4):
        await tried(world, first, "p")
        await world.settle(3.0)
    await first.kill()
    second = world.service(config=ON, workers=VirtualWorkers())
    second.start()
    await world.settle(8.0)
    assert len(second.extender.nominations) == 1
    assert world.api.pod("p").status.nominated_node_name == "n1"
    assert await until_bound(world, second, "p") == "n1"
    assert world.api.evicted == ["a"]


async def test_a_new_leader_waits_for_all_nominations_together(world: World) -> None:
    """A pod with many costly selectors used up the time for all others."""

    def workers() -> VirtualWorkers:
        return VirtualWorkers(lambda asked: 1.5 if "//x" in getattr(asked, "expression", "") else 0.1)

    world.add(make_class(), make_node("n1"), make_slice("n1", ["a", "b"]))
    world.add(selecting("of-x", *(f"{LOOPS} //x{number}" for number in range(8))), selecting("of-p", f"{LOOPS} //p"))
    world.add(*(with_pod_status(make_pod(name, f"of-{name}", priority=ord(name) - 100), NOMINATED) for name in "xp"))
    service = world.service(config=ON, workers=workers())
    service.start()
    await world.settle(RESTORE_SECONDS + 1.0)
    assert "uid-p" in service.extender.nominations


async def test_no_round_begins_that_would_end_after_the_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add(make_class(), make_node("n1"), make_slice("n1", ["a"]), selecting("of-p", LOOPS))
    world.add(with_pod_status(make_pod("p", "of-p", priority=10), NOMINATED))
    service, rounds, restored = world.service(config=ON, workers=VirtualWorkers(lambda _: 100.0)), 0, Questions.restored

    async def slow(self: Questions, pod: Pod) -> object:
        nonlocal rounds
        rounds += 1
        await asyncio.sleep(2.0)
        return await restored(self, pod)

    monkeypatch.setattr(Questions, "restored", slow)
    service.start()
    await world.settle(20.0)
    assert service.extender.restored.is_set()
    assert rounds == RESTORE_SECONDS // (2.0 + RESTORE_PAUSE)


@pytest.mark.parametrize("gone", [False, True])
async def test_nothing_is_waited_for_once_all_pods_of_a_gang_are_decided_or_gone(world: World, gone: bool) -> None:
    """The verbs of all tenants waited until the time was over."""
    world.add(make_class(), make_node("n1"), make_slice("n1", ["a", "b"]))
    for name in ("p", "q"):
        pod = make_pod(name, f"of-{name}", priority=10) if gone else member(name, f"of-{name}", size=2, priority=10)
        world.add(selecting(f"of-{name}", LOOPS), with_pod_status(pod, NOMINATED))
    service = world.service(config=ON, workers=VirtualWorkers(lambda _: 0.1))
    service.start()
    await world.settle(0.05)
    if gone:
        world.api.drop(world.api.pod("q"))
    await world.settle(2 * RESTORE_PAUSE)
    assert service.extender.restored.is_set()
    assert len(service.extender.nominations) == (1 if gone else 2)
