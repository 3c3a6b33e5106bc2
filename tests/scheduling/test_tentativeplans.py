"""Tentative plans: for how long they count, and which of them touch a pool or a claim."""

from __future__ import annotations

from dra_extender.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.tentativeplans import TentativePlan, TentativePlans
from dra_extender.scheduling.verbs import prioritize
from tests.support.counting import calls
from tests.support.scheduling.gangs import nodes
from tests.support.simulation.objects import make_claim, make_pod
from tests.support.simulation.world import World


class Clock:
    """Only the time that passes."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def plan(pod: str, node: str, *pools: str, claim: str = "") -> TentativePlan:
    results = tuple(
        DeviceRequestAllocationResult(request="r", driver="gpu.example.com", pool=pool, device="a") for pool in pools
    )
    claims: tuple[ResourceClaim, ...] = (make_claim(claim or f"of-{pod}"),)
    return TentativePlan(pod, node, claims, (AllocationResult(devices=DeviceAllocationResult(results=results)),))


def made(*plans: TentativePlan) -> tuple[TentativePlans, Clock]:
    clock = Clock()
    tentative_plans = TentativePlans(5.0, clock)  # type: ignore[arg-type] # it asks for nothing else
    for each in plans:
        tentative_plans.put(each)
    return tentative_plans, clock


def pods(plans: object) -> list[str]:
    return [each.pod_uid for each in plans]  # type: ignore[attr-defined]


def test_a_plan_counts_for_some_seconds_from_when_it_was_put_last() -> None:
    tentative_plans, clock = made(plan("a", "n1", "n1"), plan("b", "n1", "n1"))
    clock.now = 4.0
    tentative_plans.put(plan("a", "n2", "n2"))
    clock.now = 6.0
    assert pods(tentative_plans.all()) == ["a"]
    assert (tentative_plans.get("a"), tentative_plans.get("b")) == (plan("a", "n2", "n2"), None)
    clock.now = 9.0
    assert (len(tentative_plans.all()), tentative_plans.touching(POOLS)) == (0, [])


def test_of_too_many_the_oldest_goes() -> None:
    tentative_plans, _ = made(*(plan(f"p{number}", "n1", "n1") for number in range(TentativePlans.MOST + 2)))
    assert len(tentative_plans.all()) == TentativePlans.MOST
    assert pods(tentative_plans.all())[0] == "p2"


POOLS = [("gpu.example.com", "n1"), ("gpu.example.com", "n2")]


def test_plans_that_touch_a_pool_or_a_claim_come_in_the_order_in_which_they_were_put() -> None:
    tentative_plans, _ = made(
        plan("c", "n1", "n1", "fabric"), plan("a", "n2", "n2"), plan("b", "n3", "n3", "fabric"), plan("d", "n1", "n1")
    )
    assert pods(tentative_plans.touching(POOLS)) == ["c", "a", "d"]
    assert pods(tentative_plans.touching([("gpu.example.com", "fabric")])) == ["c", "b"]
    claim = plan("b", "n3").claims[0]
    assert pods(tentative_plans.touching([claim.metadata.uid])) == ["b"]
    tentative_plans.drop("c")
    tentative_plans.put(plan("a", "n4", "n4"))
    assert pods(tentative_plans.touching(POOLS)) == ["d"]


def test_the_plans_of_others_come_by_node() -> None:
    tentative_plans, _ = made(plan("a", "n1", "n1"), plan("b", "n2", "n2"), plan("c", "n1", "n1"))
    assert {node: pods(plans) for node, plans in tentative_plans.others("b").items()} == {"n1": ["a", "c"]}


async def test_claims_without_devices_cost_the_pods_of_others_little(world: World) -> None:
    """Plans of 40 pods with 1,000 of them took 0.16 s in each prioritize call for the node."""
    service = world.service(*nodes(1, 2), make_claim("c"), make_pod("p", "c"))
    view, claims = service.extender.view, tuple(make_claim(f"c-{number}", requests=[]) for number in range(1_000))
    before, other = plan("a", "n1", "n1"), TentativePlan("b", "n1", claims, (AllocationResult(),) * len(claims))
    prefiltered = pre_filter(view, world.api.pod("p"))
    assert isinstance(prefiltered, PreFilterState)
    assert prioritize._fits_beside(view, prefiltered, "n1", [before])
    assert calls(lambda: prioritize._fits_beside(view, prefiltered, "n1", [before, other])) < len(claims)
