"""Namespace a floods what all namespaces share. Then namespace b has a few items, and gets them within its fair turn,
however many variants namespace a has and however long each takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
import pytest

from dra_extender.allocation.budget import EVALUATING
from dra_extender.allocation.workerrequests import EvaluateRequest, WorkerRequest
from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.http.page.updates import PageUpdates
from dra_extender.insight.problems import ClusterProblem
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.deferred import FAILED_SECONDS, NAMESPACE_CLAIMS, UNITS, USED_UP
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.turns import Turns, run_at_once
from dra_extender.scheduling.view import View
from dra_extender.service.diagnoses import Diagnoses
from tests.support.allocation.heavy import LOOPS, selecting
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import Service, World
from tests.support.unexpected import Reports

FLOOD = 120
K = TypeVar("K", Pod, ResourceClaim)


def item(namespace: str, number: int) -> str:
    return f"{namespace}-{number}"


def inside(namespace: str, obj: K) -> K:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, namespace=namespace))


async def filter_pod(world: World, service: Service, name: str, claim: ResourceClaim) -> list[str]:
    """Filter a new pod of the namespace with which its name begins."""
    namespace = name[0]
    pod = inside(namespace, make_pod(name, name))
    world.add(inside(namespace, claim), pod)
    await world.settle(0.01)
    return list((await service.filter(pod)).NodeNames or ())


async def flooded(world: World) -> Service:
    """A service that has refused many different pods of namespace a, then one of namespace b."""
    world.add(make_class(), make_node("n1"), make_slice("n1", ["d"]))
    service = world.service()
    await world.settle()
    for number in range(FLOOD):
        assert not await filter_pod(world, service, item("a", number), make_claim(item("a", number), count=2 + number))
    assert not await filter_pod(world, service, "b-0", make_claim("b-0", count=2))
    return service


async def workers(world: World) -> Sequence[str]:
    """What worker processes get to do, with one process."""
    order: list[str] = []

    def seconds(request: WorkerRequest) -> float:
        assert isinstance(request, EvaluateRequest), request
        order.append("a" if "'a'" in request.expression else "b")
        return 1.0

    world.add(make_class(), make_node("n1"), make_slice("n1", ["d"]))
    service = world.service(workers=VirtualWorkers(seconds, capacity=1))
    await world.settle()
    for name in (*(item("a", number) for number in range(6)), "b-0"):
        expression = f"{LOOPS} && '{name[0]}' != '' && '{name}' != ''"
        await filter_pod(world, service, name, selecting(name, expression))
    await world.settle(10.0)
    return order


async def diagnoses(world: World) -> Sequence[str]:
    """What is diagnosed, one after the other."""
    service, order = await flooded(world), list[str]()

    def report(about: Pod | ResourceClaim, reason: str, note: str) -> None:
        order.extend([about.metadata.namespace] if isinstance(about, Pod) else ())

    told = Diagnoses(service.extender.view, lambda: service.extender.requeue.pods, report)
    while len(order) <= FLOOD:
        assert await told.diagnose_next() is not None
    return order


async def late_diagnoses(world: World) -> Sequence[str]:
    """The same when the pod of namespace b is refused while those of namespace a are being diagnosed."""
    service, order, now = await flooded(world), list[str](), 0.0

    def report(about: Pod | ResourceClaim, reason: str, note: str) -> None:
        order.extend([about.metadata.name] if isinstance(about, Pod) else ())

    told = Diagnoses(service.extender.view, lambda: service.extender.requeue.pods, report, clock=lambda: now)
    for _ in range(20):
        await told.diagnose_next()
    assert not await filter_pod(world, service, "b-1", make_claim("b-1", count=7))
    now, before = 1.0, len(order)
    while len(order) <= FLOOD + 1:
        assert await told.diagnose_next() is not None
    return [{"b-1": "b"}.get(name, "a") for name in order[before:]]


async def page(world: World) -> Sequence[str]:
    """The pods that the page lists, in the order in which it asks for their diagnoses."""
    service = await flooded(world)
    updates = PageUpdates(InsightOf(service.extender.view), clock=lambda: 0.0)
    run_at_once(updates.update())
    pods = [service.extender.view.pods.get(key.removeprefix("pod\n")) for key in updates.state.keys("pod\n")]
    return [pod.metadata.namespace for pod in pods if pod is not None]


class InsightOf:
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


SHARED: dict[str, Callable[[World], Awaitable[Sequence[str]]]] = {
    "worker processes": workers,
    "diagnoses": diagnoses,
    "diagnoses of later refusals": late_diagnoses,
    "the page": page,
}


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED.keys())
async def test_a_namespace_waits_for_no_more_than_two_items_of_one_that_floods_what_they_share(
    world: World, shared: Callable[[World], Awaitable[Sequence[str]]]
) -> None:
    """Two: one is being worked on, one may have the first turn."""
    order = await shared(world)
    assert "b" in order[:3], order[:20]
    assert order.count("a") >= 6


VARIANTS = 500
MANY = 6
"""Turns of a call that reaches its limit."""


def distinct(world: World, nodes: int) -> list[str]:
    """Nodes whose devices all have a serial number of their own."""
    names = [f"n{number}" for number in range(nodes)]
    world.add(make_class())
    for name in names:
        device = {"name": "d", "attributes": {"serial": {"string": name}}}
        world.add(make_node(name), make_slice(name, [device]))
    return names


async def test_of_500_variants_no_more_than_two_are_answered_before_all_small_parts_of_another_namespace(
    world: World,
) -> None:
    order: list[str] = []

    def seconds(request: WorkerRequest) -> float:
        assert isinstance(request, EvaluateRequest), request
        order.append("a" if "'a'" in request.expression else "b")
        return 1.9 if order[-1] == "a" else 0.05

    distinct(world, 10)
    service = world.service(workers=VirtualWorkers(seconds, capacity=1))
    await world.settle()
    serial = "device.attributes['gpu.example.com'].serial"
    for number in range(VARIANTS):
        name = item("a", number)
        await filter_pod(world, service, name, selecting(name, f"{LOOPS} && 'a' != '' && '{name}' != {serial}"))
    order.clear()
    await filter_pod(world, service, "b-0", selecting("b-0", f"{LOOPS} && 'b' != '' && {serial} != ''"))
    await world.settle(20.0)
    assert order.count("b") == 10
    assert order[:12].count("b") == 10, order[:20]


async def turns_of(world: World, service: Service, name: str, claim: ResourceClaim, nodes: Sequence[str]) -> int:
    """How many turns of the event loop one call of filter takes."""
    pod = inside(name[0], make_pod(name, name))
    world.add(inside(name[0], claim), pod)
    await world.settle(0.01)
    call, turns = service.spawn(service.filter(pod, *nodes)), 0
    while not call.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_calls_for_500_variants_take_long_only_until_the_time_of_their_namespace_is_used(world: World) -> None:
    names = distinct(world, 50)
    config = SchedulingConfig(turn_work=100, call_work=1_000, worker_claim_seconds=0.01, nominate="never")
    service = world.service(workers=VirtualWorkers(), config=config)
    serial = "device.attributes['gpu.example.com'].serial"

    async def variant(name: str) -> int:
        return await turns_of(world, service, name, selecting(name, f"{serial}.endsWith('{name}')"), names)

    turns = [await variant(item("a", number)) for number in range(VARIANTS)]
    assert turns[0] >= MANY <= await variant("b-0")
    work = NAMESPACE_CLAIMS * config.worker_claim_seconds * UNITS
    assert sum(turns) < 2 * work / config.turn_work + 3 * VARIANTS
    await world.settle(config.worker_forgiving_seconds)
    assert await variant("a-later") >= MANY


async def test_diagnoses_of_a_namespace_take_no_more_turns_than_those_of_another_that_waits(world: World) -> None:
    """Apart from the diagnosis that is being made."""
    distinct(world, 50)
    service, order = world.service(config=SchedulingConfig(turn_work=100)), list[str]()
    await world.settle()
    for number in range(10):
        name = item("a", number)
        selectors = (f"'{name}' == '{part}'" for part in range(12))
        await filter_pod(world, service, name, selecting(name, *selectors, count=2))
    for number in range(10):
        exactly = {"deviceClassName": "unknown", "allocationMode": "ExactCount", "count": 1 + number}
        claim = make_claim(item("b", number), requests=[{"name": "r", "exactly": exactly}])
        await filter_pod(world, service, item("b", number), claim)

    def report(about: Pod | ResourceClaim, reason: str, note: str) -> None:
        order.extend([about.metadata.namespace] if isinstance(about, Pod) else ())

    told = Diagnoses(service.extender.view, lambda: service.extender.requeue.pods, report)
    turns, longest = {"a": 0, "b": 0}, 0
    while order.count("b") < 10:
        diagnosis, taken = service.spawn(told.diagnose_next()), 0
        while not diagnosis.done():
            await asyncio.sleep(0)
            taken += 1
        longest = max(longest, taken)
        turns[order[-1]] += taken
        assert turns["a"] <= turns["b"] + longest, order


async def test_equal_claims_of_another_namespace_do_not_use_up_the_time(world: World) -> None:
    """Of nodes whose devices all differ, so that a selector is evaluated for each."""
    serial = "device.attributes['gpu.example.com'].serial"
    names = [f"n{index}" for index in range(200)]
    world.add(make_class())
    for name in names:
        devices = [{"name": "d", "attributes": {"serial": {"string": name}}}]
        world.add(make_node(name), make_slice(name, devices))
    for namespace in ("a", "b"):
        claim = selecting("c", f"{serial}.endsWith('nobody')")
        meta = msgspec.structs.replace(claim.metadata, namespace=namespace, uid=f"claim-{namespace}")
        world.add(msgspec.structs.replace(claim, metadata=meta), make_pod(f"p-{namespace}", "c", namespace=namespace))
    config = SchedulingConfig(turn_work=30, call_work=100, worker_claim_seconds=0.0001)
    service = world.service(workers=VirtualWorkers(), config=config)
    service.start()
    await service.filter(world.api.pod("a/p-a"), *names)
    await world.settle(2.0)
    answer = await service.filter(world.api.pod("a/p-a"), *names)
    assert USED_UP in answer.FailedAndUnresolvableNodes.values()
    answer = await service.filter(world.api.pod("b/p-b"), *names)
    assert USED_UP not in answer.FailedAndUnresolvableNodes.values()


async def test_work_that_ends_in_an_unexpected_error_is_charged_and_given_up(world: World, tolerated: Reports) -> None:
    def fail(_: WorkerRequest) -> float:
        raise RuntimeError("planted")

    world.add(make_class(), make_node("n"), make_slice("n", ["d"]), selecting("c", LOOPS), make_pod("p", "c"))
    workers = VirtualWorkers(fail)
    service = world.service(workers=workers, config=SchedulingConfig(worker_claim_seconds=2.5 * FAILED_SECONDS))
    service.start()
    reasons = list[str]()
    for _ in range(6):
        reasons += (await service.filter(world.api.pod("p"))).FailedAndUnresolvableNodes.values()
        await world.settle(1.0)
    assert reasons == [*[EVALUATING] * 3, *[USED_UP] * 3]
    assert len(workers.asked) == len(tolerated) == 3
