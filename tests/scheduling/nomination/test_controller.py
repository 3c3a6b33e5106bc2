"""Room is made for important pods: who goes, who gets the place, and when it ends."""

from __future__ import annotations

import msgspec

from dra_extender.api.core import Node
from dra_extender.api.errors import OutcomeUnknownError, RejectedError
from dra_extender.api.resource import ResourceClaimStatus
from dra_extender.insight.why.diagnosis import explaining
from dra_extender.insight.why.text import fully
from dra_extender.scheduling.nomination.nominations import is_preempting
from dra_extender.scheduling.outcomes import NOMINATIONS_ENDED, PREEMPTION_VICTIMS, PREEMPTIONS
from dra_extender.scheduling.turns import run_at_once
from tests.support.scheduling.nominating import ADVISE, FOUR, ON, alive, full, running, tried, until_bound, wanting
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World


async def test_the_least_important_pod_makes_room(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n1"
    assert alive(world) == {"b", "c", "d", "p"}
    assert world.api.evicted == ["a"]
    assert (service.counted(PREEMPTIONS, "nominated"), service.counted(PREEMPTION_VICTIMS, "evicted")) == (1, 1)
    reasons = dict(service.client.events)
    assert reasons["Preempted"].startswith("preempted by pod default/p on node n1 for device gpu.example.com/n1/")
    assert reasons["Preempting"].startswith("preempting pod default/a on node n1 for device gpu.example.com/n1/")


async def test_the_nomination_is_stored_before_anybody_goes_and_erased_when_the_pod_is_bound(
    world: World, small: Objects
) -> None:
    service = await full(world, small, FOUR)
    world.api.stopping["a"] = 20.0
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    pod = world.api.pod("p")
    assert (pod.status.nominated_node_name, is_preempting(pod)) == ("n1", True)
    log = [operation for operation, key in world.api.log if key in ("default/p", "default/a")]
    assert log.index("patch_pod_status") < log.index("evict")
    reasons = [(item.type, item.reason) for item in world.api.pod("a").status.conditions]
    assert ("DisruptionTarget", "PreemptionByScheduler") in reasons
    assert await until_bound(world, service, "p") == "n1"
    await world.settle(5.0)
    pod = world.api.pod("p")
    assert (pod.status.nominated_node_name, is_preempting(pod)) == ("", False)
    assert service.counted(NOMINATIONS_ENDED, "bound") == 1
    assert not service.extender.nominations


async def test_two_pods_go_when_two_devices_are_needed_on_one_node(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10, count=2))
    assert await until_bound(world, service, "p") == "n1"
    assert sorted(world.api.evicted) == ["a", "b"]


async def test_while_victims_go_the_node_is_refused_for_now_only(world: World, small: Objects) -> None:
    """Otherwise kube-scheduler would clear the nomination at the end of each attempt."""
    service = await full(world, small, FOUR)
    world.api.stopping["a"] = 20.0
    world.add(*wanting("p", 10))
    await tried(world, service, "p")
    await world.settle(3.0)
    answer = await service.filter(world.api.pod("p"))
    assert (set(answer.FailedNodes), set(answer.FailedAndUnresolvableNodes)) == ({"n1"}, {"n2"})
    again = await service.filter(world.api.pod("p"))
    assert (set(again.FailedNodes), set(again.FailedAndUnresolvableNodes)) == ({"n1"}, {"n2"})


async def test_what_is_freed_is_kept_from_pods_of_lower_and_equal_priority(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10), *wanting("low", 5), *wanting("equal", 10), *wanting("late", 5))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert "a" not in alive(world)
    assert not await tried(world, service, "low")
    assert await service.bind(world.api.pod("late"), "n1") == "cannot allocate all claims"
    assert await until_bound(world, service, "p") == "n1"
    assert service.extender.view.pods.named("default", "low") is not None


async def test_the_place_is_kept_when_nobody_of_lower_priority_is_left(world: World, small: Objects) -> None:
    service = await full(world, small, {"a": 1, "b": 10, "c": 10, "d": 10})
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(3 * service.extender.view.config.preemption_lost_seconds)
    assert (world.api.evicted, service.counted(NOMINATIONS_ENDED, "lost")) == (["a"], 0)
    assert await until_bound(world, service, "p") == "n1"
    await world.settle(2.0)
    assert (world.api.evicted, service.counted(NOMINATIONS_ENDED, "bound")) == (["a"], 1)


async def test_a_pod_of_higher_priority_may_take_the_place(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10), *wanting("boss", 20))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert await tried(world, service, "boss") == "n1"
    await world.settle(20.0)
    assert service.counted(NOMINATIONS_ENDED, "lost") == 1
    assert await until_bound(world, service, "p") != ""
    assert len(world.api.evicted) == 2


async def test_one_of_two_devices_that_are_needed_is_kept_while_the_other_victim_goes(
    world: World, small: Objects
) -> None:
    service = await full(world, small, FOUR)
    world.api.stopping["b"] = 20.0
    world.add(*wanting("p", 10, count=2), *wanting("low", 5))
    assert not await tried(world, service, "p")
    await world.settle(5.0)
    assert not await tried(world, service, "low")
    assert await until_bound(world, service, "p") == "n1"


async def test_advice_names_the_victim_and_nobody_goes(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR, ADVISE)
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p", 30.0) == ""
    assert alive(world) == {"a", "b", "c", "d", "p"}
    told = [note for reason, note in service.client.events if reason == "WouldPreempt"]
    assert len(told) == 1
    assert told[0].startswith("would preempt pod default/a on node n1 for device gpu.example.com/n1/")
    assert service.counted(PREEMPTIONS, "advised") >= 1
    assert not any(call in service.client.calls for call in ("evict_pod", "try_evict_pod", "patch_pod_status"))


async def test_with_preemption_off_nothing_happens(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR, msgspec.structs.replace(ON, preemption="off"))
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p", 30.0) == ""
    assert alive(world) == {"a", "b", "c", "d", "p"}
    assert not [reason for reason, _ in service.client.events if "Preempt" in reason]


async def test_a_pod_that_never_preempts_waits(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10, preemptionPolicy="Never"))
    assert await until_bound(world, service, "p", 30.0) == ""
    assert world.api.evicted == []


async def test_equals_do_not_make_room_for_each_other(world: World, small: Objects) -> None:
    service = await full(world, small, dict.fromkeys("abcd", 5))
    world.add(*wanting("p", 5))
    assert await until_bound(world, service, "p", 30.0) == ""
    assert world.api.evicted == []


async def test_whoever_fits_needs_nobody_to_go(world: World, small: Objects) -> None:
    service = await full(world, small, dict.fromkeys("abc", 1))
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n2"
    assert world.api.evicted == []


async def test_all_pods_of_a_shared_claim_go_or_none(world: World, small: Objects) -> None:
    world.add(*small)
    service = world.service(config=ON)
    for node in ("n1", "n2"):
        names = [f"{letter}-{node}" for letter in "xy"]
        claim = f"shared-{node}"
        world.add(make_claim(claim, count=2), *(make_pod(name, claim, priority=1) for name in names))
        for name in names:
            assert await service.bind(world.api.pod(name), node) == ""
            await world.settle(0.1)
    service.start()
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n1"
    assert sorted(world.api.evicted) == ["x-n1", "y-n1"]


async def test_what_a_budget_protects_stays_and_another_pod_goes(world: World, small: Objects) -> None:
    """The budget forbids more than its status said when the victims were chosen."""
    service = await full(world, small, FOUR)
    world.api.protected |= {"a"}
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n1"
    assert world.api.evicted == ["b"]
    assert any(reason == "PreemptionForbidden" and "default/a" in note for reason, note in service.client.events)


async def test_a_victim_that_does_not_go_is_given_up_and_another_node_tried(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.api.stopping["a"] = 1000.0
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(55.0)
    assert world.api.evicted == ["a"]
    assert service.counted(NOMINATIONS_ENDED, "stuck") == 0
    assert await until_bound(world, service, "p", 80.0) == "n2"
    assert (service.counted(NOMINATIONS_ENDED, "stuck"), service.extender.preemption.stuck) == (1, 1)
    assert len(world.api.evicted) == 2
    assert {"PreemptionStuck"} <= {reason for reason, _ in service.client.events}


async def test_a_node_is_tried_again_when_the_pod_that_was_stuck_there_is_gone(world: World, small: Objects) -> None:
    service = await full(world, small, {"a": 1, "b": 2, "c": 50, "d": 50})
    world.api.stopping["a"] = 70.0
    world.add(*wanting("boss", 60), *wanting("p", 10))
    world.api.protected |= {"b"}
    assert not await tried(world, service, "p")
    await world.settle(65.0)
    assert service.counted(NOMINATIONS_ENDED, "stuck") == 1
    assert not await tried(world, service, "p")
    await world.settle(10.0)
    assert await tried(world, service, "boss") == "n1"
    world.api.protected.clear()
    assert await until_bound(world, service, "p", 100.0) == "n1"
    assert world.api.evicted == ["a", "b"]


async def test_when_the_preemptor_is_deleted_nothing_is_kept_for_it(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10), *wanting("low", 0))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert not await tried(world, service, "low")
    world.api.delete_pod("p")
    assert await until_bound(world, service, "low", 10.0) == "n1"
    assert service.counted(NOMINATIONS_ENDED, "gone") == 1


async def test_a_deleted_preemptor_that_a_finalizer_keeps_is_no_longer_nominated(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert world.api.pod("p").status.nominated_node_name == "n1"
    deleted = {"finalizers": ("example.com/mine",), "deletion_timestamp": "2026-01-01T00:00:00Z"}
    world.api.put(with_metadata(world.api.pod("p"), **deleted))
    await world.settle(5.0)
    assert world.api.pod("p").status.nominated_node_name == ""
    assert not is_preempting(world.api.pod("p"))


async def test_a_nomination_that_nobody_uses_ends(world: World, small: Objects) -> None:
    """The scheduler has died, for example."""
    service = await full(world, small, FOUR)
    world.add(*wanting("p", 10), *wanting("low", 0))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert not await tried(world, service, "low")
    assert await until_bound(world, service, "low", 100.0) == "n1"
    assert service.counted(NOMINATIONS_ENDED, "expired") == 1
    assert world.api.pod("p").status.nominated_node_name == ""


async def test_another_replica_goes_on_where_the_first_one_died(world: World, small: Objects) -> None:
    first = await full(world, small, FOUR)
    world.api.stopping["a"] = 20.0
    world.add(*wanting("p", 10), *wanting("low", 0))
    assert not await tried(world, first, "p")
    await world.settle(3.0)
    await first.kill()
    second = world.service(config=ON)
    second.start()
    await world.settle(25.0)
    assert not await tried(world, second, "low")
    assert await until_bound(world, second, "p") == "n1"
    assert world.api.evicted == ["a"]


async def test_a_replica_that_dies_before_the_eviction_has_it_done_by_the_next(world: World, small: Objects) -> None:
    first = await full(world, small, FOUR)
    first.client.kill_on = "evict_pod", "before"
    world.add(*wanting("p", 10))
    assert not await tried(world, first, "p")
    await world.settle(3.0)
    await first.kill()
    assert (world.api.evicted, is_preempting(world.api.pod("p"))) == ([], True)
    second = world.service(config=ON)
    second.start()
    assert await until_bound(world, second, "p") == "n1"
    assert world.api.evicted == ["a"]


async def test_a_nomination_that_was_not_stored_ends_nobody(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    service.client.fail("patch_pod_status", RejectedError(403, "Forbidden"), times=3)
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    assert (world.api.evicted, len(service.extender.nominations)) == ([], 0)
    await world.settle(120.0)
    assert await until_bound(world, service, "p") == "n1"


async def test_only_pods_of_higher_priority_join_the_claim_of_a_victim(world: World, small: Objects) -> None:
    world.add(*small)
    service = world.service(config=ON)
    world.add(make_claim("shared", count=2), make_pod("a", "shared", priority=1))
    assert await service.bind(world.api.pod("a"), "n1") == ""
    await running(world, service, "n2", "b", 5, count=2)
    service.start()
    world.api.stopping["a"] = 20.0
    world.add(*wanting("p", 5), make_pod("equal", "shared", priority=5), make_pod("boss", "shared", priority=6))
    assert not await tried(world, service, "p")
    await world.settle(3.0)
    text = "resource claim default/shared will be deallocated: its pods are preempted for another pod"
    answer = await service.filter(world.api.pod("equal"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {text}
    assert (await service.filter(world.api.pod("boss"))).NodeNames == ["n1"]
    assert await until_bound(world, service, "p") == "n1"
    assert not await tried(world, service, "equal")
    assert world.api.evicted == ["a"]


async def test_an_eviction_whose_answer_is_lost_is_made_once_more(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    service.client.fail("evict_pod", OutcomeUnknownError(0, "Timeout"), "before")
    world.add(*wanting("p", 10))
    assert await until_bound(world, service, "p") == "n1"
    assert world.api.evicted == ["a"]


async def test_a_named_claim_that_nobody_uses_any_more_is_deallocated_at_once(world: World, small: Objects) -> None:
    """The claim controller takes the reservation, and leaves the allocation, as it does without the finalizer."""
    world.add(*small)
    service = world.service(config=ON)
    world.add(make_claim("named", count=2), make_pod("a", "named", priority=1))
    assert await service.bind(world.api.pod("a"), "n1") == ""
    await running(world, service, "n2", "b", 5, count=2)
    service.start()
    service.watch.pause()
    service.watch.resume()
    kept = world.api.clean_up

    def forgetful() -> None:
        """TentativePlans go, allocations stay."""
        claim = world.api.claim("named")
        if claim.status.reserved_for and ("default/a" not in {key for _, key in world.api.objects}):
            status = ResourceClaimStatus(allocation=claim.status.allocation)
            world.api.put(msgspec.structs.replace(claim, status=status), "controller")
        kept()

    world.api.clean_up = forgetful  # type: ignore[method-assign]
    world.add(*wanting("p", 10, count=2))
    assert await until_bound(world, service, "p", 15.0) == "n1"
    assert world.api.claim("named").allocation is None


async def test_several_important_pods_are_served_one_after_the_other(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    names = [f"p{number}" for number in range(4)]
    for number, name in enumerate(names):
        world.add(*wanting(name, 10 + number))
    bound: set[str] = set()
    for _ in range(30):
        bound |= {name for name in names if name not in bound and await tried(world, service, name)}
        await world.settle(2.0)
    assert bound == set(names)
    assert sorted(world.api.evicted) == ["a", "b", "c", "d"]


async def explained(world: World, service: Service, name: str) -> str:
    """The preemption in the explanation of a pod."""
    names = sorted(node.metadata.name for node in world.api.all(Node))
    view, pod = service.extender.view, world.api.pod(name)
    return fully(run_at_once(explaining(view, pod, names, service.extender.terms)), width=500).splitlines()[-1]


async def test_an_explanation_says_whom_the_pod_would_preempt(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR, ADVISE)
    world.add(*wanting("p", 10), *wanting("equal", 1))
    await world.settle(1.0)
    told = await explained(world, service, "p")
    assert told.startswith("would preempt pod default/a on node n1 for device gpu.example.com/n1/")
    assert (await explained(world, service, "equal")).startswith("would preempt no pod: ")


async def test_an_explanation_says_nothing_of_preemption_when_it_is_off(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR, msgspec.structs.replace(ON, preemption="off"))
    world.add(*wanting("p", 10))
    await world.settle(1.0)
    assert "preempt" not in await explained(world, service, "p")


async def test_a_replica_that_does_not_lead_evicts_nobody(world: World, small: Objects) -> None:
    service = await full(world, small, FOUR)
    service.extender.leading = lambda: False
    world.add(*wanting("p", 10))
    assert not await tried(world, service, "p")
    await world.settle(30.0)
    assert (world.api.evicted, is_preempting(world.api.pod("p"))) == ([], False)
    service.extender.leading = lambda: True
    assert await until_bound(world, service, "p", 120.0) == "n1"
