"""A gang's plan: how it begins, changes and ends, and which pods wait for it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from dra_extender.allocation.plan import NO_SOLUTION
from dra_extender.api.core import Pod
from dra_extender.api.events import Applied
from dra_extender.api.groups import GANG, GANG_SIZE, LWS_GROUP, LWS_NAME, LWS_SIZE, GroupKey
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import FINALIZER
from dra_extender.api.scheduling import GangSchedulingPolicy, PodGroup, PodGroupSpec
from dra_extender.limits import PODS_OF_GANG
from dra_extender.scheduling.gangs.controller import EXPIRED, Gangs
from dra_extender.scheduling.gangs.plans import GangPlans
from dra_extender.scheduling.outcomes import GANG_PLANS, GangPlanResult
from tests.support.questions import diagnose
from tests.support.scheduling.gangs import allocated, gang, member, names, nodes, offered, reasons, schedule
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World


async def test_a_gang_waits_until_so_many_pods_exist_as_it_needs(world: World) -> None:
    service = world.service(*nodes(1, 4), *gang("g", 3, existing=2))
    assert await reasons(service, world, "g-0") == {"gang default/g: 2 of 3 pods exist"}
    before = service.extender.requeue.revision
    world.add(make_claim("g-2"), member("g-2", "g-2", size=3))
    await world.settle(1.0)
    assert service.extender.requeue.revision > before
    assert len(await schedule(service, world, names("g", 3))) == 3


async def test_a_gang_waits_for_the_claims_of_its_members(world: World) -> None:
    service = world.service(*nodes(1, 4), *gang("g", 2, existing=1), member("g-1", "g-1"))
    (reason,) = await reasons(service, world, "g-0")
    assert reason.startswith("gang default/g: 1 of 2 pods can be placed; pod g-1: could not find ResourceClaim")
    before = service.extender.requeue.revision
    world.add(make_claim("g-1"))
    await world.settle(1.0)
    assert service.extender.requeue.revision > before
    assert len(await schedule(service, world, names("g", 2))) == 2


async def test_a_plan_that_nobody_asks_about_ends_and_others_are_tried_again(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), make_claim("c"), make_pod("single", "c"))
    service.start()
    assert await offered(service, world, "g-0", "single") == [["n1"], []]
    before = service.client.requeues
    await world.settle(GangPlans.SECONDS + 3.0)
    assert service.client.requeues > before
    assert await offered(service, world, "single") == [["n1"]]


async def test_a_gang_that_is_never_bound_cannot_hold_devices_all_the_time(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), make_claim("c"), make_pod("single", "c"))
    service.start()
    free = 0
    for _ in range(200):
        await offered(service, world, "g-0")
        free += (await offered(service, world, "single")) == [["n1"]]
        await world.settle(3.0)
    assert free > 100
    await world.settle(GangPlans.SECONDS + 2.0)
    assert await reasons(service, world, "g-0") == {f"gang default/g: {EXPIRED}"}
    before = service.client.requeues
    await world.settle(70.0)
    assert service.client.requeues > before
    assert await offered(service, world, "g-0") == [["n1"]]


async def test_after_a_member_is_bound_the_plan_lasts_as_long_as_members_may_wait(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), make_claim("c"), make_pod("single", "c"))
    service.start()
    await offered(service, world, "g-0", "g-1")
    assert await service.bind(world.api.pod("g-0"), "n1") == ""
    await world.settle(300.0)
    assert await offered(service, world, "single") == [[]]
    await world.settle(GangPlans.BOUND_SECONDS)
    assert await offered(service, world, "single") == [["n1"]]


@pytest.mark.parametrize("how", ["deleted", "finished"])
async def test_a_member_that_is_gone_ends_the_plan(world: World, how: str) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), make_claim("c"), make_pod("single", "c"))
    await offered(service, world, "g-0", "g-1")
    if how == "deleted":
        world.api.delete_pod("g-1")
    else:
        pod = world.api.pod("g-1")
        world.api.put(replace(pod, status=replace(pod.status, phase="Failed")))
    await world.settle(1.0)
    assert await offered(service, world, "g-0", "single") == [[], ["n1"]]


async def test_a_pod_that_leaves_its_gang_gets_the_devices_that_were_held_for_it(world: World) -> None:
    service = world.service(*nodes(1, 3), *gang("g", 3))
    assert await offered(service, world, "g-0", "g-1") == [["n1"], ["n1"]]
    world.api.put(with_metadata(world.api.pod("g-2"), annotations={}))
    await world.settle(1.0)
    assert await offered(service, world, "g-2") == [["n1"]]
    assert service.counted(GANG_PLANS, "gone") == 1


async def test_a_member_that_may_not_use_its_node_gets_another_one(world: World) -> None:
    service = world.service(*nodes(3, 1), *gang("g", 2))
    (first,), (second,) = await offered(service, world, "g-0", "g-1")
    (third,) = {"n1", "n2", "n3"} - {first, second}
    answer = await service.filter(world.api.pod("g-1"), first, third)
    assert answer.NodeNames == [third]
    assert await service.bind(world.api.pod("g-0"), first) == ""
    assert await service.bind(world.api.pod("g-1"), third) == ""


async def test_when_a_member_may_use_no_node_beside_the_others_the_gang_is_placed_again(world: World) -> None:
    """g-1 may use n1 only, and the plan has given n1 to g-0."""
    service = world.service(*nodes(2, 1), *gang("g", 2))
    (first,), _ = await offered(service, world, "g-0", "g-1")
    other = "n2" if first == "n1" else "n1"
    assert (await service.filter(world.api.pod("g-1"), first)).NodeNames == []
    assert len(service.extender.gangs.plans) == 0
    assert (await service.filter(world.api.pod("g-1"), first)).NodeNames == [first]
    assert (await service.filter(world.api.pod("g-0"))).NodeNames == [other]


async def test_members_that_share_a_claim_are_bound_at_the_same_time(world: World) -> None:
    """The second one waits until the first one has allocated the claim."""
    pods = [member(name, "shared", size=3) for name in names("g", 3)]
    service = world.service(*nodes(2, 1), make_claim("shared"), *pods)
    (node,), *others = await offered(service, world, *names("g", 3))
    assert others == [[node], [node]]
    binds = [service.spawn(service.bind(world.api.pod(name), node)) for name in names("g", 3)]
    assert [await bind for bind in binds] == ["", "", ""]
    assert len(world.api.claim("shared").status.reserved_for) == 3


async def test_a_member_that_comes_later_uses_the_claim_that_it_shares_with_one_that_keeps_its_place(
    world: World,
) -> None:
    pods = [member(name, "shared") for name in names("g", 3)]
    service = world.service(*nodes(2, 1), make_claim("shared"), *pods[:2])
    assert await offered(service, world, "g-0") == [["n1"]]
    world.add(pods[2])
    await world.settle()
    assert await offered(service, world, "g-2", "g-1") == [["n1"], ["n1"]]
    assert await asyncio.gather(*(service.bind(world.api.pod(name), "n1") for name in names("g", 3))) == ["", "", ""]
    assert len(world.api.claim("shared").status.reserved_for) == 3


async def test_a_member_without_devices_may_go_anywhere_once_the_others_have_theirs(world: World) -> None:
    service = world.service(*nodes(2, 1), *gang("g", 3, existing=2), member("coordinator", size=3))
    assert await offered(service, world, "coordinator") == [["n1", "n2"]]
    crowded = world.service(*gang("h", 3, existing=2), make_claim("c"), member("lonely", gang="h", size=3))
    assert await offered(crowded, world, "g-0", "g-1", "h-0", "lonely") == [["n1"], ["n2"], [], []]


async def test_a_gang_without_devices_is_left_to_kube_scheduler(world: World) -> None:
    service = world.service(*nodes(2, 1), member("a"), member("b"))
    assert await offered(service, world, "a", "b") == [["n1", "n2"], ["n1", "n2"]]


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        (
            [member("a", "c", size="many")],
            'annotation dra-extender.dev/gang-size of its pods must be a number of pods, not "many"',
        ),
        ([member("a", "c", size=2), member("b", size=3)], "its pods differ in annotation dra-extender.dev/gang-size"),
        ([member("a", "c"), member("b", schedulerName="other")], "its pods have different schedulers"),
        ([member("a", "c"), member("b", priority=7)], "its pods have different priorities"),
    ],
)
async def test_what_is_wrong_with_a_gang_is_the_reason_of_its_members(world: World, pods: Objects, reason: str) -> None:
    service = world.service(*nodes(1, 4), make_claim("c"), *pods)
    assert await reasons(service, world, "a") == {f"gang default/g: {reason}"}


async def test_a_gang_has_so_many_pods_and_no_more(world: World) -> None:
    pods = [member(f"p-{number}", size=2) for number in range(PODS_OF_GANG)]
    service = world.service(*nodes(1, 1), make_claim("c"), member("last", "c"), *pods)
    assert await reasons(service, world, "last") == {
        f"gang default/g has {PODS_OF_GANG + 1} pods; at most {PODS_OF_GANG} are placed together"
    }


def pod_group(size: int | None) -> PodGroup:
    policy = {"gang": GangSchedulingPolicy(size)} if size is not None else {"basic": GangSchedulingPolicy()}
    return PodGroup(ObjectMeta(name="g", namespace="default", uid="uid-g"), PodGroupSpec(scheduling_policy=policy))


@pytest.mark.parametrize(("size", "fit"), [(2, 0), (None, 1)])
async def test_the_size_of_a_pod_group_is_in_its_policy(world: World, size: int | None, fit: int) -> None:
    pods = [make_pod(name, name, schedulingGroup={"podGroupName": "g"}) for name in ("a", "b")]
    service = world.service(*nodes(1, 1), make_claim("a"), make_claim("b"), *pods)
    service.extender.apply(Applied(pod_group(size)))
    assert len(await schedule(service, world, ["a"])) == fit


async def test_a_pod_waits_for_its_pod_group_also_before_any_pod_group_is_known(world: World) -> None:
    pod = make_pod("a", "a", schedulingGroup={"podGroupName": "g"})
    service = world.service(*nodes(1, 1), make_claim("a"), pod)
    assert await reasons(service, world, "a") == {"PodGroup default/g does not exist"}
    before = service.extender.requeue.revision
    service.extender.apply(Applied(pod_group(1)))
    assert service.extender.requeue.revision > before
    assert await offered(service, world, "a") == [["n1"]]


async def test_a_label_of_coscheduling_without_its_pod_group_means_nothing(world: World) -> None:
    pod = with_metadata(make_pod("a", "a"), labels={"scheduling.x-k8s.io/pod-group": "g"})
    service = world.service(*nodes(1, 1), make_claim("a"), pod)
    assert await offered(service, world, "a") == [["n1"]]


async def test_why_says_what_the_gang_lacks(world: World) -> None:
    service = world.service(*nodes(1, 1), *gang("g", 2))
    found = diagnose(service.extender.view, world.api.pod("g-0"))
    assert (found.state, found.rule) == ("refused", "gang")
    assert found.summary.startswith("gang default/g: 1 of 2 pods fit together; not pod g-1: claim g-1: 1 device")


async def test_why_agrees_with_the_plan_of_the_gang(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2))
    assert diagnose(service.extender.view, world.api.pod("g-0")).state == "fits"
    await offered(service, world, "g-0", "g-1")
    assert diagnose(service.extender.view, world.api.pod("g-0")).state == "fits"


async def test_a_member_that_cannot_be_bound_is_placed_again_with_the_others_where_they_are(world: World) -> None:
    service = world.service(*nodes(2, 2), *gang("g", 3))
    places = await offered(service, world, *names("g", 3))
    for pod, (node,) in list(zip(names("g", 3), places, strict=True))[:2]:
        assert await service.bind(world.api.pod(pod), node) == ""
    world.add(make_claim("c"), make_pod("thief", "c"))
    (node,) = places[2]
    assert await service.bind(world.api.pod("g-2"), "elsewhere") != ""
    assert await offered(service, world, "g-2") == [[node]]
    assert await service.bind(world.api.pod("g-2"), node) == ""
    assert allocated(world) == names("g", 3)


async def test_a_pod_of_another_gang_cannot_bind_what_a_plan_holds(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), make_claim("c"), make_pod("thief", "c"))
    await offered(service, world, "g-0", "g-1")
    assert await service.bind(world.api.pod("thief"), "n1") == NO_SOLUTION


async def test_after_a_change_of_leader_the_gang_is_planned_before_a_member_is_bound(world: World) -> None:
    """Between filter and bind another pod has taken a device that the new leader did not hold."""
    first, second = (
        world.service(*nodes(1, 2), *gang("g", 2), make_claim("c"), make_pod("single", "c")),
        world.service(),
    )
    assert await offered(first, world, "g-0", "g-1") == [["n1"], ["n1"]]
    assert await second.bind(world.api.pod("single"), "n1") == ""
    assert await second.bind(world.api.pod("g-0"), "n1") == f"gang default/g: 1 of 2 pods fit together: {NO_SOLUTION}"
    assert allocated(world) == ["c"]


async def test_after_a_change_of_leader_the_binds_in_progress_get_one_plan(world: World) -> None:
    first, second = world.service(*nodes(1, 4), *gang("g", 4)), world.service()
    await offered(first, world, *names("g", 4))
    binds = [second.spawn(second.bind(world.api.pod(name), "n1")) for name in names("g", 4)]
    assert [await bind for bind in binds] == ["", "", "", ""]
    assert world.api.doubles() == []


async def test_the_plan_ends_when_a_bound_member_is_deleted(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2), make_claim("c", count=2), make_pod("single", "c"))
    await offered(service, world, "g-0", "g-1")
    assert await service.bind(world.api.pod("g-1"), "n1") == ""
    world.api.delete_pod("g-1")
    await world.settle(1.0)
    assert await offered(service, world, "single") == [["n1"]]


async def test_no_member_is_offered_a_node_when_another_one_has_lost_its_devices(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2))
    await offered(service, world, "g-0")
    plan = service.extender.gangs.plans.get(GroupKey("gang", "default", "g"))
    assert plan is not None
    ((_, allocation),) = plan.places["uid-g-1"].planned
    world.add(with_metadata(make_claim("f"), finalizers=(FINALIZER,)))
    world.api.set_status("f", allocation=allocation)
    await world.settle(1.0)
    assert await offered(service, world, "g-0") == [[]]


async def test_a_member_may_go_where_kube_scheduler_did_not_let_it_before(world: World) -> None:
    service = world.service(*nodes(2, 1), *gang("g", 2))
    places = dict(zip(names("g", 2), await offered(service, world, *names("g", 2)), strict=True))
    (other,), (own,) = places["g-0"], places["g-1"]
    assert (await service.filter(world.api.pod("g-1"), other)).NodeNames == []
    assert (await service.filter(world.api.pod("g-1"), own)).NodeNames == [own]


async def test_members_are_tried_again_when_a_node_is_no_longer_avoided(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2))
    service.start()
    await offered(service, world, "g-0", "g-1")
    assert (await service.filter(world.api.pod("g-1"), "elsewhere")).NodeNames == []
    assert await offered(service, world, "g-0") == [[]]
    await world.settle(Gangs.AVOIDED_SECONDS - 5.0)
    before = service.client.requeues
    await world.settle(10.0)
    assert service.client.requeues > before
    assert all(await offered(service, world, "g-0", "g-1"))


async def test_a_pod_more_than_the_gang_needs_waits_without_a_plan(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2, existing=3))
    await schedule(service, world, names("g", 2))
    await world.settle(1.0)
    assert await reasons(service, world, "g-2") == {f"gang default/g: pod g-2 fits on no node: {NO_SOLUTION}"}
    assert len(service.extender.gangs.plans) == 0


async def test_pods_of_a_leader_worker_set_leave_its_gang_with_a_size_of_1(world: World) -> None:
    """With startupPolicy LeaderReady the workers exist only after the leader runs."""
    labels = {LWS_NAME: "s", LWS_GROUP: "0"}
    waits = with_metadata(make_pod("a", "a"), labels=labels, annotations={LWS_SIZE: "2"})
    leads = with_metadata(make_pod("b", "b"), labels=labels, annotations={LWS_SIZE: "2", GANG: "s", GANG_SIZE: "1"})
    service = world.service(*nodes(1, 2), make_claim("a"), make_claim("b"), waits, leads)
    assert await offered(service, world, "a", "b") == [[], ["n1"]]


async def test_the_devices_for_a_claim_that_was_deleted_are_free(world: World) -> None:
    single = [each for name in ("a", "b") for each in (make_claim(name), make_pod(name, name))]
    service = world.service(*nodes(2, 1), *gang("g", 2), *single)
    assert len(await offered(service, world, "g-0")) == 1
    assert await offered(service, world, "a") == [[]]
    world.api.drop(world.api.claim("g-1"))
    await world.settle(1.0)
    assert len((await offered(service, world, "b"))[0]) == 1


MADE_AND_BOUND: tuple[GangPlanResult, ...] = ("made", "bound")

# --- metrics ----------------------------------------------------------------------------------------------------------


async def test_the_plan_of_a_gang_that_is_bound_is_counted_with_the_time_since_its_first_pod(world: World) -> None:
    pods = [each for each in gang("g", 2) if isinstance(each, Pod)]
    since = [with_metadata(pod, creation_timestamp="2026-01-01T00:00:00Z") for pod in pods]
    service = world.service(*nodes(1, 2), make_claim("g-0"), make_claim("g-1"), *since)
    await schedule(service, world, names("g", 2))
    await world.settle(1.0)
    assert [service.counted(GANG_PLANS, result) for result in MADE_AND_BOUND] == [1, 1]
    assert len(service.gang_waits) == 1


async def test_a_plan_that_ends_without_its_gang_is_counted_by_the_reason(world: World) -> None:
    service = world.service(*nodes(1, 2), *gang("g", 2))
    service.start()
    await offered(service, world, "g-0")
    await world.settle(GangPlans.SECONDS + 3.0)
    assert service.counted(GANG_PLANS, "expired") == 1
    await world.settle(10.0)
    await offered(service, world, "g-0")
    world.api.delete_pod("g-1")
    await world.settle(1.0)
    results: tuple[GangPlanResult, ...] = ("made", "gone", "bound", "lost")
    assert [service.counted(GANG_PLANS, result) for result in results] == [2, 1, 0, 0]


async def test_a_status_of_a_waiting_member_makes_no_pod_be_tried_again(world: World) -> None:
    """kube-scheduler writes a condition to each pod that was refused."""
    service = world.service(*nodes(1, 1), *gang("g", 2))
    assert await offered(service, world, "g-0", "g-1") == [[], []]
    before = service.extender.requeue.revision
    pod = world.api.pod("g-1")
    world.api.put(replace(pod, status=replace(pod.status, nominated_node_name="n1")))
    await world.settle(1.0)
    assert service.extender.requeue.revision == before
    world.api.put(with_metadata(world.api.pod("g-1"), annotations={GANG: "g", GANG_SIZE: "1"}))
    await world.settle(1.0)
    assert service.extender.requeue.revision > before


@pytest.mark.parametrize("how", ["is deleted", "fails", "leaves", "joins another gang"])
async def test_a_gang_is_tried_again_when_the_member_that_kept_it_back_is_gone(world: World, how: str) -> None:
    objects = [*gang("g", 2), make_claim("c"), member("other", "c", priority=7)]
    service = world.service(*nodes(1, 2), *objects)
    assert await reasons(service, world, "g-0") == {"gang default/g: its pods have different priorities"}
    before = service.extender.requeue.revision
    pod = world.api.pod("other")
    if how == "is deleted":
        world.api.delete_pod("other")
    elif how == "fails":
        world.api.put(replace(pod, status=replace(pod.status, phase="Failed")))
    else:
        world.api.put(with_metadata(pod, annotations={GANG: "h"} if how == "joins another gang" else {}))
    await world.settle(1.0)
    assert service.extender.requeue.revision > before
    assert await offered(service, world, "g-0") == [["n1"]]
