"""How much work a decision about a gang is, whatever its pods ask for."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from dra_extender.allocation.budget import CallState, TurnBudget, TurnSpent, WorkBudget
from dra_extender.allocation.cache.results import NODE
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api import core
from dra_extender.api.core import Node, Pod
from dra_extender.api.groups import GANG, GANG_SIZE, GroupKey
from dra_extender.api.resource import ResourceClaimStatus
from dra_extender.devices.overlay import Planned
from dra_extender.limits import PARTS_OF_GANG, PARTS_OF_POD, PODS_OF_GANG, REQUESTS_OF_GANG, REQUESTS_OF_POD
from dra_extender.scheduling import noderules
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.gangs.attributes import SAME, values_of
from dra_extender.scheduling.gangs.decision import PART, GangDecision
from dra_extender.scheduling.gangs.gang import gang_of, gang_with_devices
from dra_extender.scheduling.gangs.plans import GangPlans
from dra_extender.scheduling.gangs.topology import PREFERRED, REQUIRED
from tests.support.counting import calls, lines
from tests.support.devices.objects import make_allocation
from tests.support.scheduling.gangs import gang, member, names, nodes, offered, reasons
from tests.support.simulation.objects import (
    DRIVER,
    Objects,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import Service, World

MOST_LINES = 800_000
"""Of Python in one turn: 20 for each unit of a turn and of a search that begins in it, and a third more."""


def kinds(size: int, count: int, **more: Any) -> Objects:
    """A gang whose pods are of so many kinds, because they tolerate different taints."""
    found: list[Any] = []
    for index in range(size):
        tolerations = [{"key": f"kind-{index % count}", "operator": "Exists"}]
        pod = member(f"g-{index}", f"g-{index}", size=size, tolerations=tolerations, **more)
        found += [make_claim(f"g-{index}"), pod]
    return found


def sharing(size: int, count: int) -> Objects:
    """A gang whose pods all name the same claims, which have this number of devices of n1."""
    claims: list[Any] = []
    for index in range(count):
        status = ResourceClaimStatus(allocation=make_allocation(f"{DRIVER}/n1/gpu-{index}"))
        claims.append(msgspec.structs.replace(make_allocated(f"c-{index}"), status=status))
    return [
        *claims,
        *(member(f"g-{index}", *(each.metadata.name for each in claims), size=size) for index in range(size)),
    ]


def in_many_domains(objects: Objects) -> Objects:
    """Each node has values of its own of four labels that the pods prefer."""
    labels = [f"example.com/{key}" for key in "abcd"]
    found: list[Any] = []
    for each in objects:
        if isinstance(each, Node):
            found.append(with_metadata(each, labels=dict.fromkeys(labels, each.name)))
        elif isinstance(each, Pod):
            written = {**each.metadata.annotations, PREFERRED: ",".join(labels)}
            found.append(with_metadata(each, annotations=written))
        else:
            found.append(each)
    return found


def one_turn(service: Service, world: World, *, last: bool = False) -> None:
    config = service.extender.view.config
    budget = TurnBudget(WorkerReplies(), allowance=config.turn_work, ceiling=config.question_work, last=last)
    run(service, world, budget)


def run(service: Service, world: World, budget: WorkBudget, name: str = "g-0") -> GangDecision | None:
    """None when the turn ends before the decision."""
    extender = service.extender
    view, pod = extender.view.with_budget(budget), world.api.pod(name)
    found, prefiltered = gang_with_devices(view, pod), pre_filter(view, pod)
    assert found is not None and isinstance(prefiltered, PreFilterState)
    try:
        return extender.gangs.decide(view, found, prefiltered, list(view.cluster.nodes))
    except TurnSpent:
        return None


def with_uuids(count: int, devices: int) -> Objects:
    """Nodes with devices each of which has a value of its own, and a gang that names the attribute."""
    found: list[Any] = [make_class(), *(make_node(f"n{number}", cpu="100") for number in range(count))]
    for node in range(count):
        uuids = [{"uuid": {"string": f"{node}-{number}"}} for number in range(devices)]
        named = [{"name": f"d{number}", "attributes": uuid} for number, uuid in enumerate(uuids)]
        found.append(make_slice(f"n{node}", named))
    for each in gang("g", 2):
        if isinstance(each, Pod):
            each = with_metadata(each, annotations={**each.metadata.annotations, SAME: f"{DRIVER}/uuid"})
        found.append(each)
    return in_many_domains(found)


@pytest.mark.parametrize(
    "objects",
    [
        [*nodes(PODS_OF_GANG, 1), *gang("g", PODS_OF_GANG)],
        [*nodes(64, 8), *gang("g", PODS_OF_GANG)],
        [*nodes(100, 8), *kinds(256, 4)],
        [*nodes(300, 1), *kinds(100, 100)],
        [*nodes(1, 60), *sharing(250, 60)],
    ],
)  # fmt: skip
async def test_a_turn_runs_few_lines(world: World, objects: Objects) -> None:
    service = world.service(*objects)
    assert lines(lambda: one_turn(service, world), MOST_LINES, "app") > 0


@pytest.mark.parametrize("last", [False, True], ids=["one of many turns", "the last turn"])
@pytest.mark.parametrize(
    "pods",
    [gang("g", 256), [*gang("g", 256)[:-2], member("g-255", "missing", size=256)], kinds(256, 256)],
    ids=["equal pods", "a claim is missing", "all pods differ"],
)
async def test_a_turn_runs_few_lines_however_many_domains_there_are(world: World, pods: Objects, last: bool) -> None:
    service = world.service(*in_many_domains([*nodes(64, 4), *pods]))
    assert lines(lambda: one_turn(service, world, last=last), MOST_LINES, "app") > 0


async def test_an_attribute_with_a_value_for_each_device_is_decided_in_few_turns(world: World) -> None:
    service, call, turns, found = world.service(*with_uuids(500, 4)), CallState(), 0, None
    while found is None:
        turns += 1
        budget = TurnBudget(WorkerReplies(), allowance=10_000, ceiling=20_000, last=turns > 100, call=call)
        found = run(service, world, budget)
    assert "most frequent values of device attribute" in found.reason
    assert not found.waiting
    assert turns < 5


async def test_values_of_an_attribute_are_compared_a_few_hundred_in_a_turn(world: World) -> None:
    service, call, counts = world.service(*with_uuids(500, 4)), CallState(), list[int]()

    def turn() -> None:
        budget = TurnBudget(WorkerReplies(), allowance=100, ceiling=20_000, call=call)
        with suppress(TurnSpent):
            found.append(values_of(service.extender.view.with_budget(budget), (f"{DRIVER}/uuid",), ()))

    found: list[object] = []
    while not found:
        counts.append(calls(turn))
    assert max(counts) < 3_000


async def test_a_turn_reads_what_earlier_turns_of_the_call_have_not_read(world: World) -> None:
    service, call, counts = world.service(*with_uuids(500, 4)), CallState(), list[int]()
    for _ in range(8):
        budget = TurnBudget(WorkerReplies(), allowance=10_000, ceiling=20_000, call=call)
        counts.append(lines(lambda budget=budget: run(service, world, budget), MOST_LINES, "app"))  # type: ignore[misc]
    assert max(counts[4:]) < counts[0] / 20


async def test_a_plan_of_an_earlier_turn_whose_device_another_claim_takes_is_made_again(world: World) -> None:
    service = world.service(*nodes(1, 3), *gang("g", 2), make_claim("c"), make_pod("other", "c"))
    call = CallState()

    def places() -> dict[str, str]:
        budget = TurnBudget(WorkerReplies(), allowance=10_000, ceiling=20_000, call=call)
        found = run(service, world, budget)
        assert found is not None and found.places is not None
        planned = [each for place in found.places.values() for each in place.planned]
        return {claim.metadata.name: allocation.devices.results[0].device for claim, allocation in planned}

    assert places() == {"g-0": "gpu-0", "g-1": "gpu-1"}
    assert await service.bind(world.api.pod("other"), "n1") == ""
    await world.settle(1.0)
    assert world.api.claim("c").allocation is not None
    assert places() == {"g-0": "gpu-1", "g-1": "gpu-2"}


async def test_equal_nodes_are_searched_once_for_all_numbers_of_pods(world: World) -> None:
    few, many = WorkBudget(), WorkBudget()
    run(world.service(*nodes(1_000, 8), *gang("g", 2)), world, few)
    run(world.service(*gang("h", 32)), world, many, "h-0")
    assert few.used > 1_000 * NODE
    assert many.used - few.used < 1_000 * NODE


async def test_each_claim_that_a_pod_of_a_gang_names_is_charged_in_one_turn_of_the_call(world: World) -> None:
    service = world.service(*nodes(1, 60), *sharing(100, 60))
    whole, call, used = WorkBudget(), CallState(), 0
    assert run(service, world, whole) is not None
    assert whole.used > 100 * 60 * PART
    for _ in range(100):
        budget = TurnBudget(WorkerReplies(), allowance=1_000, ceiling=100_000, call=call)
        found = run(service, world, budget)
        used += budget.used
        if found:
            break
    assert whole.used <= used < 2 * whole.used


async def test_as_many_pods_as_a_gang_may_have_are_placed_in_one_call(world: World) -> None:
    service = world.service(*nodes(PODS_OF_GANG, 1), *gang("g", PODS_OF_GANG), workers=VirtualWorkers())
    assert len((await offered(service, world, "g-0"))[0]) == 1


async def test_as_many_pods_as_a_gang_may_have_are_placed_in_one_call_whatever_labels_they_prefer(world: World) -> None:
    objects = in_many_domains([*nodes(64, 8), *gang("g", PODS_OF_GANG)])
    service = world.service(*objects, workers=VirtualWorkers())
    assert len((await offered(service, world, "g-0"))[0]) == 1


async def test_pods_of_different_kinds_fill_nodes_together(world: World) -> None:
    service = world.service(*nodes(64, 8), *kinds(256, 4), workers=VirtualWorkers())
    assert len((await offered(service, world, "g-0"))[0]) == 1


async def test_the_pods_of_a_gang_have_so_many_parts_and_no_more(world: World) -> None:
    selector = {f"k{index}": "" for index in range(PARTS_OF_POD)}
    pods = [member(f"p-{number}", nodeSelector=selector) for number in range(PARTS_OF_GANG // PARTS_OF_POD)]
    service = world.service(*nodes(1, 1), make_claim("c"), member("last", "c"), *pods)
    (reason,) = await reasons(service, world, "last")
    assert reason.startswith(f"gang default/g: its pods have more than {PARTS_OF_GANG:,} claims, containers")


@pytest.mark.parametrize("term", [{}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}])
async def test_the_pods_of_a_gang_that_has_too_many_parts_are_not_all_counted(term: Any, world: World) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term] * (PARTS_OF_GANG + 1)}}
    first = member("p-0", affinity={"nodeAffinity": required})
    pods = [with_metadata(first, name=f"p-{number}", uid=f"p-{number}") for number in range(64)]
    service = world.service(*nodes(1, 1), *pods)
    found = gang_of(service.extender.view, first)
    assert found is not None
    assert "its pods have more than" in found.problem
    assert calls(lambda: gang_of(service.extender.view, first)) < 2_000


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
async def test_the_claims_of_a_gang_have_so_many_requests_and_no_more(more: int, refused: bool, world: World) -> None:
    """A claim counts for each pod that names it: each pod's claims are looked at."""
    one = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    alternatives = [{"name": f"a{number}", **one} for number in range(7)]
    requests = [{"name": f"r{number}", "firstAvailable": alternatives} for number in range(32)]
    names = [f"c{number}" for number in range(REQUESTS_OF_POD // (32 * 8))]
    claims = [make_claim(name, requests=requests) for name in names]
    pods = [member(f"p-{number}", *names) for number in range(more + REQUESTS_OF_GANG // REQUESTS_OF_POD)]
    service = world.service(*nodes(1, 1), *claims, *pods)
    told = await service.filter(world.api.pod("p-0"))
    text = f"gang default/g: the claims of its pods have more than {REQUESTS_OF_GANG:,} requests"
    found = {**told.FailedNodes, **told.FailedAndUnresolvableNodes}
    assert found
    assert all(reason.startswith(text) for reason in found.values()) is refused


async def test_each_pod_of_a_gang_is_read_three_times_however_often_it_is_compared_with_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No two pods fit a node together, as is seen only when they are compared with it."""
    read: Counter[str] = Counter()

    def requested(pod: Pod) -> Mapping[str, int]:
        read[pod.metadata.uid] += 1
        return core.requested(pod)

    large = [{"name": "c", "resources": {"requests": {"cpu": "60"}}}]
    service = world.service(*nodes(12, 3), *kinds(12, 12, containers=large))
    monkeypatch.setattr(noderules, "requested", requested)
    found = run(service, world, WorkBudget())
    assert found is not None
    assert found.rank == 12
    assert max(read.values()) == 3


async def test_the_name_of_a_gang_that_was_tried_in_vain_is_not_kept(world: World) -> None:
    """A user may write 200,000 characters, and the last 10,000 gangs are remembered."""
    service = world.service(*nodes(1, 2), *gang("g", 2))
    plans, key = service.extender.gangs.plans, GroupKey("gang", "default", "g" * 200_000)
    before = sys.getrefcount(key)
    plans.put(key, {}, ())
    await world.settle(GangPlans.SECONDS + 1.0)
    plans.expire()
    assert plans.get(key) is None
    assert plans.is_paused(GroupKey("gang", "default", "g" * 200_000))
    assert not plans.is_paused(GroupKey("gang", "default", "g" * 199_999))
    assert sys.getrefcount(key) == before


async def test_a_decision_that_takes_too_long_is_a_reason(world: World) -> None:
    config = SchedulingConfig(turn_work=1, question_work=1, call_work=1)
    names = ["g-0", "g-1"]
    pods = [
        with_metadata(make_pod(name, name), annotations={GANG: "g", GANG_SIZE: "2", REQUIRED: "r"}) for name in names
    ]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": f"r{number}", "exactly": exactly} for number in range(32)]
    claims = [make_claim(name, requests=requests) for name in names]
    service = world.service(*nodes(2, 1), *claims, *pods, config=config, workers=VirtualWorkers())
    (reason,) = await reasons(service, world, "g-0")
    assert reason.startswith("gang default/g: ")


@pytest.mark.parametrize(
    "written", [{GANG: "g" * 100_000}, {GANG_SIZE: "9" * 100_000}, {REQUIRED: "r" * 100_000, GANG_SIZE: "1"}]
)
async def test_what_a_user_writes_is_quoted_in_part(world: World, written: dict[str, str]) -> None:
    pod = with_metadata(make_pod("p", "c"), annotations={GANG: "g", GANG_SIZE: "2", **written})
    service = world.service(*nodes(1, 1), make_claim("c"), pod)
    (reason,) = await reasons(service, world, "p")
    assert len(reason) < 500


async def test_a_claim_that_many_pods_of_a_gang_share_is_held_once(world: World) -> None:
    claims = [make_claim(f"c-{index}") for index in range(60)]
    pods = [member(f"g-{index}", *(each.metadata.name for each in claims), size=100) for index in range(100)]
    service = world.service(*nodes(1, 60), *claims, *pods, make_pod("p"), workers=VirtualWorkers())
    assert await offered(service, world, "g-0") == [["n1"]]
    view, other = service.extender.view, world.api.pod("p")
    assert len(view.kept(other)) == 60
    assert calls(lambda: view.with_pod(other)) < 60 * 30


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "being deleted"])
async def test_a_turn_does_not_rely_on_claims_that_changed_after_an_earlier_one(world: World, deleted: bool) -> None:
    service = world.service(*nodes(2, 3), *gang("g", 2))
    call = CallState()

    def turn() -> GangDecision | None:
        return run(service, world, TurnBudget(WorkerReplies(), allowance=10_000, ceiling=20_000, call=call))

    found = turn()
    assert found is not None
    assert len(found.places or {}) == 2
    claim = world.api.claim("g-1")
    if deleted:
        world.api.drop(claim)
    else:
        world.api.put(with_metadata(claim, deletion_timestamp="2026-01-01T00:00:00Z"))
    await world.settle()
    found = turn()
    assert found is not None
    assert found.node == ""
    assert "1 of 2 pods can be placed" in found.reason


async def test_claims_that_another_gang_is_being_bound_with_cost_few_calls(world: World) -> None:
    """kube-scheduler asks about the next gang while pods of the last ones are bound."""
    size = 40
    service = world.service(*nodes(8, 10), *gang("g", size), make_claim("c"), make_pod("p", "c"))
    view, pod = service.extender.view, world.api.pod("p")
    before = calls(lambda: view.with_pod(pod))
    places = zip(names("g", size), await offered(service, world, *names("g", size)), strict=True)
    planned = calls(lambda: view.with_pod(pod)) - before
    service.client.latency = 5.0
    for name, (node,) in places:
        service.spawn(service.bind(world.api.pod(name), node))
    await world.settle(1.0)
    assert calls(lambda: view.with_pod(pod)) - before < 6 * size < planned


async def test_the_bind_of_a_planned_member_decides_once(world: World) -> None:
    service = world.service(*nodes(1, 4), *gang("g", 2))
    await offered(service, world, *names("g", 2))
    decided: list[str] = []
    view = service.extender.view

    def kept(pod: Pod) -> Sequence[Planned]:
        decided.append(pod.metadata.name)
        return view.kept(pod)

    service.extender.deferred._view = msgspec.structs.replace(view, kept=kept)
    assert await service.bind(world.api.pod("g-0"), "n1") == ""
    assert decided == ["g-0"]
