"""Shadow mode: each binding of another scheduler counts for one rule, and nothing is written."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dra_extender.insight.shadow import EXAMPLES, Outcome, Usage
from dra_extender.placement.policies import PolicyName
from tests.support.diagnosis.gangscenes import GANG, SIZE
from tests.support.diagnosis.hardware import device_class
from tests.support.diagnosis.heldcluster import GPU
from tests.support.service.shadowing import GPUS, HALF, TWO, Json, Shadowed, machine, recording, running, waiting


@pytest.mark.parametrize(
    ("policy", "documents", "bound", "expected"),
    [
        ("first-fit", TWO, ("a", "gpu-0"), "same"),
        ("first-fit", TWO, ("b", "gpu-0"), "same"),
        ("first-fit", TWO, ("a", "gpu-1"), "other devices"),
        ("pack", HALF, ("b", "gpu-1"), "same"),
        ("pack", HALF, ("a", "gpu-0"), "other node"),
        ("spread", HALF, ("b", "gpu-1"), "other node"),
        ("spread", HALF, ("a", "gpu-0"), "same"),
        ("first-fit", [GPUS, *machine("a", 2, unschedulable=True)], ("a", "gpu-0"), "refused"),
    ],
)
async def test_a_binding_is_compared_with_the_state_before_it(
    policy: PolicyName, documents: list[Json], bound: tuple[str, str], expected: str
) -> None:
    async with recording(Shadowed(documents, policy)) as shadowed:
        shadowed.bind(waiting("p"), running("p", *bound))
        assert await shadowed.rules() == {expected: 1}


async def test_the_watches_may_show_the_binding_before_the_allocation() -> None:
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.bind(waiting("p"), running("p", "a", "gpu-1"), pod_first=True)
        assert await shadowed.rules() == {"other devices": 1}


async def test_a_pod_is_compared_with_the_state_before_its_first_allocation() -> None:
    """A scheduler allocates for several pods before it binds the first of them, and binds in another order."""
    async with recording(Shadowed(TWO)) as shadowed:
        for name in "pq":
            shadowed.apply(*waiting(name))
        bound = [running("p", "a", "gpu-0"), running("q", "a", "gpu-1")]
        shadowed.apply(*(claim for _, claim in bound))
        shadowed.apply(bound[1][0], bound[0][0])
        assert await shadowed.rules() == {"same": 2}


async def test_devices_that_become_free_before_the_binding_count_as_in_use() -> None:
    async with recording(Shadowed([*TWO, *running("first", "a", "gpu-0")])) as shadowed:
        pod, claim = running("p", "a", "gpu-1")
        shadowed.apply(*waiting("p"), claim)
        shadowed.remove(*running("first", "a", "gpu-0"))
        shadowed.apply(pod)
        assert await shadowed.rules() == {"same": 1}


async def test_a_claim_that_was_allocated_before_keeps_the_pod_on_its_node() -> None:
    shared = running("first", "b", "gpu-1")
    later = copy.deepcopy(shared[0])
    later["metadata"] |= {"name": "later", "uid": "uid-later"}
    earlier = copy.deepcopy(later)
    del earlier["spec"]["nodeName"]
    async with recording(Shadowed([*TWO, *shared], "pack")) as shadowed:
        shadowed.apply(earlier, later)
        assert await shadowed.rules() == {"same": 1}


def prioritized(document: list[Json]) -> list[Json]:
    """The claim asks for the class `better`, else for `gpu`; it has got the latter."""
    pod, claim = copy.deepcopy(document)
    subrequest = {"allocationMode": "ExactCount", "count": 1}
    alternatives = [{"name": name, "deviceClassName": name} | subrequest for name in ("better", "gpu")]
    claim["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": alternatives}]
    for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()):
        result["request"] = "r/gpu"
    return [pod, claim]


@pytest.mark.parametrize(("device", "expected"), [("gpu-1", "lost alternative"), ("gpu-0", "lost alternative")])
async def test_a_scheduler_loses_an_alternative_that_fits(device: str, expected: str) -> None:
    better = device_class("better", f'device.driver == "{GPU}"')
    async with recording(Shadowed([better, *TWO])) as shadowed:
        shadowed.bind(prioritized(waiting("p")), prioritized(running("p", "a", device)))
        assert await shadowed.rules() == {expected: 1}


async def test_an_alternative_that_does_not_fit_is_not_lost() -> None:
    none = device_class("better", 'device.driver == "none.example.com"')
    async with recording(Shadowed([none, *TWO])) as shadowed:
        shadowed.bind(prioritized(waiting("p")), prioritized(running("p", "a", "gpu-0")))
        assert await shadowed.rules() == {"same": 1}


async def test_a_pod_that_fits_has_waited_for_its_scheduler() -> None:
    async with recording(Shadowed(TWO, "pack")) as shadowed:
        shadowed.apply(*waiting("p"))
        shadowed.watch.now += 40
        shadowed.apply(*reversed(running("p", "a", "gpu-0")))
        assert await shadowed.rules() == {"waited": 1}
        found = await shadowed.settled()
        assert (found.waited_seconds, found.longest_wait) == (40.0, 40.0)


async def test_a_pod_has_waited_from_when_it_fitted() -> None:
    """Devices become free after 30 seconds; its scheduler places the pod 20 seconds later."""
    full = [*TWO, *running("x", "a", "gpu-0", "gpu-1"), *running("y", "b", "gpu-0", "gpu-1")]
    async with recording(Shadowed(full)) as shadowed:
        shadowed.apply(*waiting("p"))
        await shadowed.settled()
        shadowed.watch.now += 30
        shadowed.remove(*running("x", "a", "gpu-0", "gpu-1"))
        await shadowed.settled()
        shadowed.watch.now += 20
        shadowed.apply(*reversed(running("p", "a", "gpu-0")))
        assert (await shadowed.rules(), (await shadowed.example()).seconds) == ({"waited": 1}, 20.0)


async def test_a_pod_waits_from_when_its_claim_exists() -> None:
    async with recording(Shadowed(TWO)) as shadowed:
        pod, claim = waiting("p")
        shadowed.apply(pod)
        shadowed.watch.now += 60
        shadowed.apply(claim)
        shadowed.apply(*reversed(running("p", "a", "gpu-0")))
        assert await shadowed.rules() == {"same": 1}


async def test_one_free_device_makes_one_pod_wait_needlessly() -> None:
    full = [GPUS, *machine("a", 2), *running("x", "a", "gpu-0", "gpu-1")]
    async with recording(Shadowed(full)) as shadowed:
        for name in "pqr":
            shadowed.apply(*waiting(name))
        shadowed.remove(*running("x", "a", "gpu-0", "gpu-1"))
        await shadowed.settled()
        shadowed.watch.now += 60
        for name, device in (("r", "gpu-0"), ("q", "gpu-1")):
            shadowed.apply(*reversed(running(name, "a", device)))
        assert await shadowed.rules() == {"same": 1, "waited": 1}


async def test_a_refused_pod_has_the_rule_of_why() -> None:
    async with recording(Shadowed([GPUS, *machine("a", 2, unschedulable=True)])) as shadowed:
        shadowed.bind(waiting("p"), running("p", "a", "gpu-0"))
        found = await shadowed.example()
        assert (found.theirs.node, found.ours) == ("a", Outcome(why="cordoned"))
        rows = {rule: text for _, rule, text in (await shadowed.settled()).rows()}
        assert rows["refused"].endswith(f"; default/p: a {GPU}/a-gpu/gpu-0 -> cordoned")


async def test_the_rule_is_about_the_node_that_the_pod_has_got() -> None:
    async with recording(Shadowed([*TWO[:3], *machine("b", 2, unschedulable=True)])) as shadowed:
        shadowed.bind(waiting("p"), running("p", "b", "gpu-0"))
        assert (await shadowed.example()).ours == Outcome(why="cordoned")


@pytest.mark.parametrize(("device", "expected"), [("gpu-0", "same"), ("gpu-1", "other devices")])
async def test_the_watches_may_show_an_allocation_before_its_pod(device: str, expected: str) -> None:
    async with recording(Shadowed(TWO)) as shadowed:
        pod, claim = running("p", "a", device)
        shadowed.apply(waiting("p")[1], claim, waiting("p")[0], pod)
        assert await shadowed.rules() == {expected: 1}
        assert (await shadowed.settled()).now.devices == 1


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, "race"), (2, "other devices")])
async def test_a_scheduler_does_not_know_a_device_that_has_just_become_free(seconds: float, expected: str) -> None:
    async with recording(Shadowed([*TWO, *running("first", "a", "gpu-0")])) as shadowed:
        shadowed.remove(*running("first", "a", "gpu-0"))
        shadowed.watch.now += seconds
        shadowed.bind(waiting("p"), running("p", "a", "gpu-1"))
        assert await shadowed.rules() == {expected: 1}


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, "race"), (0.5, "race"), (2.0, "other devices")])
async def test_a_scheduler_writes_allocations_in_another_order_than_it_decides(seconds: float, expected: str) -> None:
    """It has placed q on gpu-0 and then p on gpu-1, which is bound first."""
    async with recording(Shadowed(TWO)) as shadowed:
        for name in "pq":
            shadowed.apply(*waiting(name))
        shadowed.watch.now += 3
        shadowed.apply(*reversed(running("p", "a", "gpu-1")))
        shadowed.watch.now += seconds
        shadowed.apply(*reversed(running("q", "a", "gpu-0")))
        assert await shadowed.rules() == {expected: 1, "same" if seconds < 2 else "waited": 1}


async def test_a_device_that_changes_hands_again_has_still_been_just_freed() -> None:
    async with recording(Shadowed([*TWO, *running("first", "a", "gpu-0")])) as shadowed:
        shadowed.apply(*waiting("q"))
        shadowed.remove(*running("first", "a", "gpu-0"))
        shadowed.bind(waiting("p"), running("p", "a", "gpu-1"))
        shadowed.watch.now += 2
        shadowed.apply(running("q", "a", "gpu-0")[1])
        assert await shadowed.rules() == {"race": 1}


async def test_a_pod_counts_once_the_allocations_of_earlier_pods_are_known() -> None:
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.bind(waiting("p"), running("p", "a", "gpu-0"))
        assert await shadowed.rules() == {"same": 1}
        shadowed.bind(waiting("q"), running("q", "a", "gpu-1"))
        await shadowed.quiet()
        assert shadowed.record.settled().pods == 1


def member(document: list[Json], size: int) -> list[Json]:
    document[0]["metadata"]["annotations"] = {GANG: "g", SIZE: str(size)}
    return document


def ganged(name: str, size: int, *bound: str) -> list[Json]:
    """A pod of the gang with one GPU, where it is bound."""
    return member(running(name, *bound) if bound else waiting(name), size)


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ([("a", "gpu-0"), ("a", "gpu-1"), ("b", "gpu-0")], {"same": 3}),
        ([("b", "gpu-0"), ("a", "gpu-1"), ("a", "gpu-0")], {"same": 3}),
        ([("b", "gpu-1"), ("a", "gpu-1"), ("a", "gpu-0")], {"same": 2, "other devices": 1}),
        ([("b", "gpu-1"), ("a", "gpu-1"), ("b", "gpu-0")], {"other devices": 1, "same": 1, "other node": 1}),
    ],
)
async def test_a_gang_is_compared_as_one(bound: list[tuple[str, str]], expected: dict[str, int]) -> None:
    """Its pods may exchange their places, and pods of it that are bound later do not change its decision."""
    async with recording(Shadowed(TWO)) as shadowed:
        for name in "pqr":
            shadowed.apply(*ganged(name, 3))
        for name, place in zip("pqr", bound, strict=True):
            shadowed.apply(*reversed(ganged(name, 3, *place)))
        assert await shadowed.rules() == expected


async def test_a_gang_that_does_not_fit_is_refused_as_one() -> None:
    async with recording(Shadowed([*TWO, *running("x", "a", "gpu-0"), *running("y", "b", "gpu-0")])) as shadowed:
        for name in "pqr":
            shadowed.apply(*ganged(name, 3))
        for name, place in {"p": "a", "q": "b"}.items():
            shadowed.apply(*reversed(ganged(name, 3, place, "gpu-1")))
        found = await shadowed.settled()
        assert (await shadowed.rules(), found.packed.devices) == ({"refused": 2}, 2)
        assert {each.rule: each.why for each in found.rules if each.pods} == {"refused": {"gang": 2}}


async def test_a_gang_that_waits_is_packed_once_all_of_it_fits() -> None:
    full = [GPUS, *machine("a", 3), *running("x", "a", "gpu-0"), *running("y", "a", "gpu-1")]
    async with recording(Shadowed(full, "pack")) as shadowed:
        for name in "pq":
            shadowed.apply(*ganged(name, 2))
        assert (await shadowed.settled()).packed == Usage(2, 1, 2)
        shadowed.remove(*running("x", "a", "gpu-0"))
        assert (await shadowed.settled()).packed == Usage(3, 1, 0)


async def test_a_pod_that_ends_without_allocations_was_not_allocated() -> None:
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.apply(*waiting("p"), running("p", "a", "gpu-0")[0])
        assert await shadowed.rules() == {}
        shadowed.remove(running("p", "a", "gpu-0")[0])
        assert await shadowed.rules() == {"not allocated": 1}


async def test_pods_are_not_decided_while_too_many_events_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.service.shadow.BEHIND", 3)
    async with recording(Shadowed(TWO)) as shadowed:
        for name, device in (("p", "gpu-0"), ("q", "gpu-1")):
            shadowed.bind(waiting(name), running(name, "a", device))
        assert await shadowed.rules() == {"not decided": 1, "same": 1}


async def test_pods_without_claims_and_pods_that_ran_before_are_not_recorded() -> None:
    pod = running("q", "b", "gpu-0")[0]
    del pod["spec"]["resourceClaims"]
    before = running("p", "a", "gpu-0")
    async with recording(Shadowed([*TWO, *before])) as shadowed:
        shadowed.apply(*before, pod)
        assert await shadowed.rules() == {}


async def test_examples_are_the_newest_few() -> None:
    async with recording(Shadowed([GPUS, *machine("a", 8)])) as shadowed:
        for index in range(8):
            shadowed.bind(waiting(f"p{index}"), running(f"p{index}", "a", f"gpu-{index}"))
        same = (await shadowed.settled()).rules[0]
        assert (same.pods, len(same.examples)) == (8, EXAMPLES)
        assert same.examples[-1].pod == "default/p7"


EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}


async def test_a_claim_for_extended_resources_is_made_for_the_binding() -> None:
    provides = {**GPUS, "spec": {**GPUS["spec"], "extendedResourceName": "example.com/gpu"}}
    (pod, _), (bound, claim) = waiting("p"), running("p", "a", "gpu-1")
    for document in (pod, bound):
        del document["spec"]["resourceClaims"]
        document["spec"]["containers"][0]["resources"]["requests"] |= {"example.com/gpu": "1"}
    bound["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "p", "requestMappings": []}}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    claim["metadata"] |= {"annotations": EXTENDED, "ownerReferences": [owner]}
    created: dict[str, Any] = {key: value for key, value in claim.items() if key != "status"}
    documents = [provides, *machine("a", 2), *machine("b", 2)]
    async with recording(Shadowed(documents, gates="DRAExtendedResource=true")) as shadowed:
        shadowed.apply(pod, created, claim, bound)
        assert await shadowed.rules() == {"other devices": 1}
        shadowed.remove(bound, claim)
        found = await shadowed.settled()
        assert (found.now.devices, found.packed.devices) == (0, 0)


async def test_a_scheduler_of_any_name_is_recorded() -> None:
    bound = running("p", "a", "gpu-0")
    bound[0]["spec"]["schedulerName"] = "other"
    unbound = waiting("p")
    unbound[0]["spec"]["schedulerName"] = "other"
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.bind(unbound, bound)
        assert ((await shadowed.example()).scheduler, await shadowed.rules()) == ("other", {"same": 1})
