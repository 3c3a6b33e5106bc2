"""Questions to workers: who waits, who is woken, who takes turns, and who has had enough."""

from __future__ import annotations

import asyncio

import pytest

from dra_extender.allocation.budget import EVALUATING, SEARCHING
from dra_extender.allocation.signatures import BYTES_PER_UNIT
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.nodegroups import UNDECIDED
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.deferred import UNAVAILABLE, USED_UP
from dra_extender.scheduling.outcomes import WORKER_ANSWERS
from tests.support.allocation.heavy import LOOPS, REPLACED, knapsack, long_selector, selecting
from tests.support.questions import diagnose
from tests.support.simulation.objects import Json, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.workers import NEVER, VirtualWorkers
from tests.support.simulation.world import Service, World

SERIAL = "device.attributes['gpu.example.com'].serial"


def cluster(world: World, nodes: int, devices: int = 2) -> list[str]:
    """Nodes whose devices are all different."""
    names = [f"n{index}" for index in range(nodes)]
    world.add(make_class())
    for name in names:
        listed = [
            {"name": f"d{index}", "attributes": {"serial": {"string": f"{name}-{index}"}}} for index in range(devices)
        ]
        world.add(make_node(name), make_slice(name, listed))
    return names


def add_pod(world: World, name: str, claim: ResourceClaim) -> None:
    world.add(claim, make_pod(name, claim.metadata.name))


async def refusal(world: World, service: Service, pod: str) -> str:
    """The one reason for which the pod fits nowhere."""
    answer = await service.filter(world.api.pod(pod))
    assert answer.NodeNames == [], answer
    (reason,) = set(answer.FailedAndUnresolvableNodes.values())
    return reason


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (selecting("c", LOOPS), EVALUATING),
        (selecting("c", f"{REPLACED} && {LOOPS}"), EVALUATING),
        (selecting("c", long_selector("inquiry")), EVALUATING),
        (selecting("c", *(long_selector(f"inquiry {index}") for index in range(20))), EVALUATING),
    ],
    ids=["loops", "text", "length", "many selectors"],
)
async def test_a_pod_that_needs_workers_is_refused_and_woken_by_their_answer(
    world: World, claim: ResourceClaim, reason: str
) -> None:
    cluster(world, 2)
    add_pod(world, "p", claim)
    service = world.service(workers=VirtualWorkers())
    service.start()
    assert await refusal(world, service, "p") == reason
    for _ in range(10):
        requeues = service.client.requeues
        await world.settle(3.0)
        answer = await service.filter(world.api.pod("p"))
        if answer.NodeNames:
            break
        assert service.client.requeues > requeues
    assert answer.NodeNames == ["n0", "n1"]
    assert await service.bind(world.api.pod("p"), "n0") == ""


@pytest.mark.parametrize(("bound", "requeues"), [(False, 1), (True, 0)], ids=["not bound", "bound"])
async def test_a_pod_with_some_nodes_is_woken_when_the_others_are_known_unless_it_is_bound(
    world: World, bound: bool, requeues: int
) -> None:
    """Another extender, or a plugin, may have refused the nodes that were offered."""
    cluster(world, 2)
    add_pod(world, "p", selecting("c", f"{SERIAL}.startsWith('n0') || {LOOPS}"))
    service = world.service(workers=VirtualWorkers(lambda _: 1.9))
    service.start()
    await world.settle(5.0)
    answer = await service.filter(world.api.pod("p"))
    assert (answer.NodeNames, answer.FailedAndUnresolvableNodes) == (["n0"], {"n1": EVALUATING})
    if bound:
        assert await service.bind(world.api.pod("p"), "n0") == ""
    await world.settle(1.0)
    before = service.client.requeues
    await world.settle(5.0)
    assert service.client.requeues - before == requeues
    if not bound:
        assert (await service.filter(world.api.pod("p"))).NodeNames == ["n0", "n1"]


async def test_a_refusal_is_remembered_while_workers_have_not_answered(world: World) -> None:
    cluster(world, 2)
    add_pod(world, "p", selecting("c", LOOPS))
    workers = VirtualWorkers(lambda _: 1.9)
    service = world.service(workers=workers)
    for _ in range(3):
        assert await refusal(world, service, "p") == EVALUATING
        await world.settle(0.1)
    assert workers.asked == ["evaluate"]


async def test_what_exceeds_the_limits_is_an_error_of_the_claim_and_not_tried_for_every_pod(world: World) -> None:
    cluster(world, 50)
    workers = VirtualWorkers(lambda _: 3.0)
    service = world.service(workers=workers)
    for name in ("a", "b"):
        add_pod(world, f"p-{name}", selecting(name, LOOPS))
    assert await refusal(world, service, "p-a") == EVALUATING
    assert await refusal(world, service, "p-b") == EVALUATING
    await world.settle(5.0)
    for name in ("a", "b"):
        answer = await service.filter(world.api.pod(f"p-{name}"))
        assert answer.Error == f"claim default/{name}: selector #0: needs more than 2 s on a device"
    assert workers.asked == ["evaluate"]
    assert service.counted(WORKER_ANSWERS, "time") == 1


async def test_a_device_that_changes_is_asked_about_anew(world: World) -> None:
    cluster(world, 1, 1)
    add_pod(world, "p", selecting("c", f"{LOOPS} && {SERIAL} != ''"))
    workers = VirtualWorkers(lambda _: 3.0)
    service = world.service(workers=workers)
    assert await refusal(world, service, "p") == EVALUATING
    await world.settle(5.0)
    assert (await service.filter(world.api.pod("p"))).Error
    world.add(make_slice("n0", [{"name": "d0", "attributes": {"serial": {"string": "new"}}}], generation=2))
    await world.settle()
    assert await refusal(world, service, "p") == EVALUATING
    await world.settle()
    assert len(workers.asked) == 2


async def test_claims_of_one_content_get_so_much_of_the_workers_time_and_are_told_so(world: World) -> None:
    cluster(world, 40)
    expression = f"{LOOPS} && {SERIAL} != ''"
    add_pod(world, "p", selecting("c", expression))
    add_pod(world, "q", selecting("d", expression))
    workers = VirtualWorkers(lambda _: 0.5)
    config = SchedulingConfig(worker_claim_seconds=5.0, worker_forgiving_seconds=60.0)
    service = world.service(workers=workers, config=config)
    service.start()
    assert await refusal(world, service, "p") == EVALUATING
    await world.settle(40.0)
    assert 10 <= len(workers.asked) <= 12
    answer = await service.filter(world.api.pod("p"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {USED_UP}
    answer = await service.filter(world.api.pod("q"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {USED_UP}
    await world.settle(60.0)
    world.add(make_node("more"))
    await world.settle()
    answer = await service.filter(world.api.pod("p"))
    assert EVALUATING in answer.FailedAndUnresolvableNodes.values()


@pytest.mark.slow
async def test_one_hostile_claim_on_5000_nodes_does_not_delay_an_ordinary_pod(world: World) -> None:
    names = cluster(world, 5_000, 1)
    workers = VirtualWorkers(lambda _: 1.0)
    service = world.service(workers=workers, config=SchedulingConfig(nominate="never"))
    service.start()
    add_pod(world, "hostile", selecting("h", f"{LOOPS} && {SERIAL} != ''"))
    add_pod(world, "ordinary", make_claim("c"))
    add_pod(world, "demanding", selecting("d", f"{LOOPS} && {SERIAL} == 'n7-0'", namespace="default"))
    await world.settle()
    assert EVALUATING in (await service.filter(world.api.pod("hostile"), *names)).FailedAndUnresolvableNodes.values()
    began = world.clock.monotonic()
    assert len((await service.filter(world.api.pod("ordinary"), *names)).NodeNames) == 5_000
    assert world.clock.monotonic() == began
    assert await service.bind(world.api.pod("ordinary"), "n1") == ""
    assert await refusal_of(world, service, "demanding", "n7") == EVALUATING
    await world.settle(4.0)
    assert (await service.filter(world.api.pod("demanding"), "n7")).NodeNames == ["n7"]
    assert workers.most_at_once == workers.capacity


async def refusal_of(world: World, service: Service, pod: str, node: str) -> str:
    answer = await service.filter(world.api.pod(pod), node)
    return answer.FailedAndUnresolvableNodes[node]


async def test_a_call_that_reaches_its_limit_offers_what_is_decided_and_goes_on_when_asked_again(world: World) -> None:
    names = cluster(world, 200)
    add_pod(world, "p", selecting("c", f"{SERIAL}.endsWith('199-0')"))
    config = SchedulingConfig(turn_work=300, call_work=1_000)
    service = world.service(workers=VirtualWorkers(), config=config)
    service.start()
    answer = await service.filter(world.api.pod("p"), *names)
    assert SEARCHING in answer.FailedAndUnresolvableNodes.values()
    for _ in range(20):
        await world.settle(2.0)
        answer = await service.filter(world.api.pod("p"), *names)
        if answer.NodeNames:
            break
    assert answer.NodeNames == ["n199"]


async def test_a_bind_waits_for_workers_and_then_holds_what_they_found(world: World) -> None:
    cluster(world, 1)
    add_pod(world, "p", selecting("c", LOOPS))
    service = world.service(workers=VirtualWorkers(lambda _: 1.5))
    assert await service.bind(world.api.pod("p"), "n0") == ""
    assert world.clock.monotonic() >= 1.5


async def test_a_bind_that_waits_for_workers_decides_on_the_state_afterwards(world: World) -> None:
    cluster(world, 1, 1)
    add_pod(world, "p", selecting("c", LOOPS))
    add_pod(world, "q", make_claim("d"))
    service = world.service(workers=VirtualWorkers(lambda _: 1.5))
    waiting = service.spawn(service.bind(world.api.pod("p"), "n0"))
    assert await service.bind(world.api.pod("q"), "n0") == ""
    assert await waiting == "cannot allocate all claims"


async def test_without_any_worker_process_pods_are_told_and_ordinary_ones_go_on(world: World) -> None:
    cluster(world, 2)
    add_pod(world, "p", selecting("c", LOOPS))
    add_pod(world, "q", make_claim("d"))
    service = world.service(workers=VirtualWorkers.none())
    service.start()
    assert await refusal(world, service, "p") == EVALUATING
    await world.settle(3.0)
    assert await refusal(world, service, "p") == UNAVAILABLE
    assert service.counted(WORKER_ANSWERS, "start") == 1
    assert (await service.filter(world.api.pod("q"))).NodeNames == ["n0", "n1"]


async def test_when_processes_can_be_started_again_pods_that_were_told_otherwise_are_woken(world: World) -> None:
    cluster(world, 2)
    add_pod(world, "p", selecting("c", LOOPS))
    seconds = [NEVER]
    service = world.service(
        workers=VirtualWorkers(lambda _: seconds[0]), config=SchedulingConfig(worker_pause_seconds=30.0)
    )
    service.start()
    assert await refusal(world, service, "p") == EVALUATING
    await world.settle(3.0)
    assert await refusal(world, service, "p") == UNAVAILABLE
    seconds[0], requeues = 0.1, service.client.requeues
    await world.settle(40.0)
    assert service.client.requeues > requeues
    assert await refusal(world, service, "p") == EVALUATING


async def test_pods_whose_claims_were_given_up_are_woken_when_that_is_over(world: World) -> None:
    cluster(world, 40)
    add_pod(world, "p", selecting("c", f"{LOOPS} && {SERIAL} == ''"))
    config = SchedulingConfig(worker_claim_seconds=5.0, worker_forgiving_seconds=60.0)
    service = world.service(workers=VirtualWorkers(lambda _: 0.5), config=config)
    service.start()
    assert await refusal(world, service, "p") == EVALUATING
    await world.settle(20.0)
    answer = await service.filter(world.api.pod("p"))
    assert USED_UP in answer.FailedAndUnresolvableNodes.values()
    requeues = service.client.requeues
    await world.settle(70.0)
    assert service.client.requeues > requeues
    answer = await service.filter(world.api.pod("p"))
    assert EVALUATING in answer.FailedAndUnresolvableNodes.values()


async def test_claims_whose_calls_come_to_no_end_are_given_up_and_wake_nobody(world: World) -> None:
    names = cluster(world, 200)
    add_pod(world, "p", selecting("c", f"{SERIAL}.endsWith('nobody')"))
    config = SchedulingConfig(turn_work=30, call_work=100, worker_claim_seconds=0.0001)
    service = world.service(workers=VirtualWorkers(), config=config)
    service.start()
    answer = await service.filter(world.api.pod("p"), *names)
    assert SEARCHING in answer.FailedAndUnresolvableNodes.values()
    await world.settle(2.0)
    answer = await service.filter(world.api.pod("p"), *names)
    assert USED_UP in answer.FailedAndUnresolvableNodes.values()
    requeues = service.client.requeues
    await world.settle(5.0)
    assert service.client.requeues == requeues


async def test_while_claims_are_charged_large_ones_of_others_are_looked_at_in_turns(world: World) -> None:
    cluster(world, 1, 30)
    add_pod(world, "charged", selecting("h", LOOPS))
    service = world.service(workers=VirtualWorkers(lambda _: 0.5), config=SchedulingConfig(turn_work=1_000))
    assert await refusal(world, service, "charged") == EVALUATING
    await world.settle(3.0)
    parameters = {"opaque": {"driver": "gpu.example.com", "parameters": {"text": "a" * 200_000}}}
    claims = [large(f"c{index}", parameters) for index in range(30)]
    world.add(*claims, make_pod("p", *(claim.metadata.name for claim in claims)))
    await world.settle()
    call = service.spawn(service.filter(world.api.pod("p")))
    others = 0
    while not call.done():
        await asyncio.sleep(0)
        others += 1
    assert (await call).NodeNames == ["n0"]
    one = 200_000 // BYTES_PER_UNIT
    assert others >= 30 * one // (1_000 + one)


def large(name: str, parameters: Json) -> ResourceClaim:
    """A claim with this configuration for the driver."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    devices = {"requests": [{"name": "r", "exactly": exactly}], "config": [parameters]}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": devices}})


async def test_who_asks_most_gives_way_when_there_are_too_many_questions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_extender.scheduling.deferred.QUEUED_WORK", 8)
    names = cluster(world, 50, 1)
    add_pod(world, "hostile", selecting("h", f"{LOOPS} && {SERIAL} != ''"))
    add_pod(world, "demanding", selecting("d", f"{LOOPS} && {SERIAL} == 'n7-0'"))
    service = world.service(workers=VirtualWorkers(lambda _: 1.0))
    await service.filter(world.api.pod("hostile"), *names)
    for _ in range(3):
        await refusal_of(world, service, "demanding", "n7")
        await world.settle(1.0)
        await service.filter(world.api.pod("hostile"), *names)
    assert (await service.filter(world.api.pod("demanding"), "n7")).NodeNames == ["n7"]


@pytest.mark.parametrize("turn_work", [10_000, 750, 250], ids=["longer", "half as long", "much shorter"])
async def test_a_hard_search_is_left_to_a_worker_for_filter_and_for_bind(world: World, turn_work: int) -> None:
    """Also when an attempt at the largest question takes more than a turn, as by default."""
    world.add(make_class(), make_node("n0"))
    devices = [
        {"name": f"d{i}", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "100"}}} for i in range(6)
    ]
    world.add(make_slice("n0", devices))
    add_pod(world, "p", knapsack())
    workers = VirtualWorkers()
    service = world.service(workers=workers, config=SchedulingConfig(turn_work=turn_work, question_work=1_500))
    service.start()
    assert await refusal(world, service, "p") == SEARCHING
    await world.settle(3.0)
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n0"]
    assert await service.bind(world.api.pod("p"), "n0") == ""
    assert set(workers.asked) == {"search"}


async def test_what_an_earlier_turn_left_to_a_worker_is_asked(world: World) -> None:
    names = [f"n{index}" for index in range(200)]
    world.add(make_class(), *map(make_node, names))
    devices = [
        {"name": f"d{i}", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "100"}}} for i in range(6)
    ]
    world.add(make_slice("n0", devices))
    add_pod(world, "p", knapsack())
    workers = VirtualWorkers()
    service = world.service(workers=workers, config=SchedulingConfig(turn_work=250, question_work=1_500))
    service.start()
    answer = await service.filter(world.api.pod("p"), *names)
    assert answer.FailedAndUnresolvableNodes["n0"] == SEARCHING
    requeues = service.client.requeues
    await world.settle(3.0)
    assert workers.asked == ["search"]
    assert service.client.requeues > requeues
    assert (await service.filter(world.api.pod("p"), *names)).NodeNames == ["n0"]


async def test_an_explanation_is_made_in_turns_and_says_what_is_left_to_workers(world: World) -> None:
    names = cluster(world, 100)
    add_pod(world, "p", selecting("c", LOOPS))
    add_pod(world, "q", selecting("d", f"{SERIAL} == 'nobody'"))
    workers = VirtualWorkers()
    service = world.service(workers=workers, config=SchedulingConfig(turn_work=500))
    await world.settle()
    found = diagnose(service.extender.view, world.api.pod("p"), names)
    assert [(group.reason, group.count) for group in found.groups] == [(UNDECIDED, 100)]
    assert not found.complete
    steps = sum(1 for _ in diagnosing(service.extender.view, world.api.pod("q"), names))
    assert steps > 3
    assert workers.asked == []


async def test_an_explanation_ends_where_no_turn_is_long_enough_for_a_single_node(world: World) -> None:
    names = cluster(world, 3, 40)
    add_pod(world, "p", selecting("c", f"{LOOPS} && {SERIAL} != ''"))
    service = world.service(workers=VirtualWorkers(), config=SchedulingConfig(turn_work=20))
    await world.settle()
    found = diagnose(service.extender.view, world.api.pod("p"), names)
    assert sorted(name for group in found.groups for name in group.nodes) == sorted(names)
    assert UNDECIDED in {group.reason for group in found.groups}
    assert not found.complete
