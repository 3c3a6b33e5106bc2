"""Pods that wait get an event with the reason, once per reason, while the service does its other work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from dra_extender.api.core import Pod, PodResourceClaimStatus
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.meta import Condition
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.why.text import LONGEST
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.turns import run_at_once
from dra_extender.service.diagnoses import CLAIM_SECONDS, PORTION, REMEMBERED, REPORT_SECONDS, Diagnoses
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World

NINE = "claim c: 9 devices of class gpu requested, no node has more than 2; count <= 2 (then it fits 2 nodes)"


class Told:
    """Events in the order in which they were reported."""

    def __init__(self, service: Service) -> None:
        self.now = 0.0
        self.events: list[tuple[str, str, str]] = []
        extender = service.extender
        self.diagnoses = Diagnoses(extender.view, lambda: extender.requeue.pods, self._report, clock=lambda: self.now)

    def _report(self, about: Pod | ResourceClaim, reason: str, note: str) -> None:
        assert len(note) <= LONGEST
        self.events.append((f"{type(about).__name__} {about.metadata.name}", reason, note))


@pytest.fixture
async def service(world: World) -> AsyncIterator[Service]:
    world.add(make_class(), make_node("n1"), make_node("n2"))
    world.add(make_slice("n1", ["a", "b"]), make_slice("n2", ["a", "b"]))
    made = world.service()
    await world.settle()
    yield made


async def refused(world: World, service: Service, count: int) -> Told:
    world.add(make_claim("c", count=count), make_pod("p", "c"))
    await world.settle()
    assert not (await service.filter(world.api.pod("p"))).NodeNames
    return Told(service)


async def test_the_pod_and_the_claim_to_blame_are_told_the_rule_and_the_remedy(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    assert await told.diagnoses.diagnose_next() is not None
    assert told.events == [("Pod p", "DevicesUnavailable", NINE), ("ResourceClaim c", "DevicesUnavailable", NINE)]


async def test_a_pod_that_was_refused_once_is_diagnosed_once(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    assert await told.diagnoses.diagnose_next() is not None
    assert await told.diagnoses.diagnose_next() is None


async def test_the_same_reason_is_not_told_again_after_another_attempt(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    await told.diagnoses.diagnose_next()
    world.add(make_node("n3"))
    await world.settle()
    await service.filter(world.api.pod("p"))
    told.now = 2 * REPORT_SECONDS
    assert await told.diagnoses.diagnose_next() is not None
    assert len(told.events) == 2


async def test_another_reason_is_told_at_once(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    await told.diagnoses.diagnose_next()
    world.api.drop(world.api.claim("c"))
    await world.settle()
    await service.filter(world.api.pod("p"))
    world.add(make_node("n3"))
    await world.settle()
    await service.filter(world.api.pod("p"))
    await told.diagnoses.diagnose_next()
    assert told.events[2:] == [("Pod p", "ClaimMissing", "claim default/c does not exist")]


async def test_a_pod_that_is_gone_meanwhile_is_told_nothing(world: World, service: Service) -> None:
    told = await refused(world, service, 9)
    world.api.drop(world.api.pod("p"))
    await world.settle()
    assert await told.diagnoses.diagnose_next() is None
    assert told.events == []


def kept_away(name: str, *claims: str, message: str = "0/2 nodes are available", **spec: Any) -> Pod:
    """A pod that kube-scheduler did not ask about."""
    pod = make_pod(name, *claims, **spec)
    condition = Condition("PodScheduled", "False", "Unschedulable", message)
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(condition,)))


def from_template(name: str, claim: str, **spec: Any) -> Pod:
    """A pod that kube-scheduler did not ask about, with a claim that was created from a template."""
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    pod = kept_away(name, resourceClaims=entries, **spec)
    made = PodResourceClaimStatus("gpu", claim)
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, resource_claim_statuses=(made,)))


@pytest.fixture
async def serving(world: World) -> AsyncIterator[Service]:
    """A service that knows which schedulers call it."""
    world.add(make_class(), make_node("n1", cpu="4"), make_slice("n1", ["a", "b"]))
    made = world.service(config=SchedulingConfig(scheduler_names=frozenset({"dra-scheduler"})))
    await world.settle()
    yield made


async def test_a_pod_that_kube_scheduler_did_not_ask_about_is_told_as_well(world: World, serving: Service) -> None:
    needs = [{"name": "c", "resources": {"requests": {"cpu": "100"}}}]
    world.add(make_claim("c"), kept_away("p", "c", containers=needs))
    await world.settle()
    told = Told(serving)
    await told.diagnoses.diagnose_next()
    note = "devices fit on node n1, but cpu: 100 requested, 4 free; cpu <= 4 (then it fits 1 node)"
    assert told.events == [("Pod p", "NodesUnavailable", note)]
    assert await told.diagnoses.diagnose_next() is None


async def test_a_resource_that_nobody_offers_is_told(world: World, serving: Service) -> None:
    asked = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    world.add(kept_away("p", containers=[{"name": "c", "resources": asked}]))
    await world.settle()
    told = Told(serving)
    await told.diagnoses.diagnose_next()
    nothing = "node n1: neither the node nor a device class provides nvidia.com/gpu"
    assert told.events == [("Pod p", "NodesUnavailable", f"{nothing}; is its driver installed?")]


@pytest.mark.parametrize("spec", [{"schedulerName": "other"}, {"containers": [{"name": "c"}]}])
async def test_pods_of_others_and_pods_without_devices_are_told_nothing(
    world: World, serving: Service, spec: dict[str, Any]
) -> None:
    claims = ["c"] if "schedulerName" in spec else []
    world.add(make_claim("c", count=9), kept_away("p", *claims, **spec))
    await world.settle()
    told = Told(serving)
    assert await told.diagnoses.diagnose_next() is None
    assert told.events == []


async def diagnosed(told: Told) -> list[str]:
    """The pods that were diagnosed, until none is due."""
    found = list[str]()
    while (diagnosis := await told.diagnoses.diagnose_next()) is not None:
        found.append(diagnosis.pod)
    return found


async def test_pods_that_differ_in_name_only_share_a_diagnosis_and_each_is_told_once(
    world: World, serving: Service
) -> None:
    names = [f"p{number}" for number in range(500)]
    for name in names:
        world.add(make_claim(f"{name}-gpu", count=9, pod=name), from_template(name, f"{name}-gpu"))
    world.add(make_claim("other-gpu", count=9, pod="other"), from_template("other", "other-gpu", priority=1))
    await world.settle()
    told = Told(serving)
    assert await diagnosed(told) == ["default/p0", "default/other"]
    assert sorted(about for about, _, _ in told.events) == sorted(f"Pod {name}" for name in [*names, "other"])
    note = "claim gpu: 9 devices of class gpu requested, no node has more than 2; count <= 2 (then it fits 1 node)"
    assert {told for _, _, told in told.events} == {note}


async def test_pods_of_many_namespaces_share_a_diagnosis(world: World, serving: Service) -> None:
    names = [f"p{number}" for number in range(20)]
    for name in names:
        claim = make_claim(f"{name}-gpu", count=9, pod=name, namespace=f"team-{name}")
        world.add(claim, from_template(name, f"{name}-gpu", namespace=f"team-{name}"))
    await world.settle()
    told = Told(serving)
    assert await diagnosed(told) == ["team-p0/p0"]
    note = "claim gpu: 9 devices of class gpu requested, no node has more than 2; count <= 2 (then it fits 1 node)"
    assert {told for _, _, told in told.events} == {note}
    assert sorted(about for about, _, _ in told.events) == sorted(f"Pod {name}" for name in names)


async def test_a_diagnosis_that_names_objects_of_a_namespace_is_not_shared_with_another(
    world: World, serving: Service
) -> None:
    for space in ("blue", "red"):
        name = f"{space}-holder"
        world.add(make_claim(name, namespace=space), make_pod(name, name, namespace=space))
        await world.settle()
        assert await serving.bind(world.api.pod(f"{space}/{name}"), "n1") == ""
    for space in ("blue", "red", "white"):
        for name in (f"{space}-p", f"{space}-q"):
            claim = make_claim(f"{name}-gpu", pod=name, namespace=space)
            world.add(claim, from_template(name, f"{name}-gpu", namespace=space))
    await world.settle()
    told = Told(serving)
    assert sorted(await diagnosed(told)) == ["blue/blue-p", "red/red-p", "white/white-p"]
    for space, other in (("blue", "red"), ("red", "blue")):
        notes = {note for about, _, note in told.events if f"{space}-" in about}
        assert len(notes) == 1
        assert all(f"{space}-holder" in note and f"{other}-" not in note for note in notes), notes
    assert not [note for about, _, note in told.events if "white-" in about and "-holder" in note]


async def test_the_pod_that_was_not_looked_at_for_longest_is_next(world: World, serving: Service) -> None:
    """One that there is nothing to tell about and that is refused again and again does not keep the others waiting."""
    world.add(make_claim("c", count=9))
    told, found = Told(serving), list[str]()
    for number in range(3):
        told.now += 1
        world.add(kept_away("gated", "c", message=f"refusal {number}", schedulingGates=[{"name": "g"}]))
        world.add(*(kept_away(name, "c", priority=ord(name)) for name in ("p", "q") if not number))
        await world.settle()
        diagnosis = await told.diagnoses.diagnose_next()
        assert diagnosis is not None
        found.append(diagnosis.pod)
    assert sorted(found) == ["default/gated", "default/p", "default/q"]


async def test_a_pod_that_is_not_tried_for_want_of_a_claim_is_told_after_a_while(
    world: World, serving: Service
) -> None:
    world.add(make_claim("training-gpu"), make_pod("p", "trainig-gpu"))
    await world.settle()
    told = Told(serving)
    assert await told.diagnoses.diagnose_next() is None, "the claim may come a moment later"
    told.now += CLAIM_SECONDS
    assert await told.diagnoses.diagnose_next() is not None
    text = "claim default/trainig-gpu does not exist; did you mean training-gpu? (then it fits 1 node)"
    assert told.events == [("Pod p", "ClaimMissing", text)]
    assert list(told.diagnoses.pending()) == [world.api.pod("p").metadata.uid], "it counts among those that wait"


async def test_a_pod_that_is_not_tried_because_its_claim_is_being_deleted_is_told(
    world: World, serving: Service
) -> None:
    claim = make_claim("c")
    meta = msgspec.structs.replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    world.add(msgspec.structs.replace(claim, metadata=meta), make_pod("p", "c"))
    await world.settle()
    told = Told(serving)
    assert await told.diagnoses.diagnose_next() is None, "the claim may be gone a moment later"
    told.now += CLAIM_SECONDS
    assert await told.diagnoses.diagnose_next() is not None
    text = "claim c is being deleted; create claim c again after it is deleted (then it fits 1 node)"
    assert told.events == [("Pod p", "ClaimLeaving", text), ("ResourceClaim c", "ClaimLeaving", text)]


@pytest.mark.parametrize("amounts", [0, 12_000])
async def test_pods_with_many_amounts_are_searched_one_in_a_turn(amounts: int, world: World, service: Service) -> None:
    spec = {"requests": {f"hugepages-{number}": "0" for number in range(amounts)}}
    first = convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": spec}]}})
    world.add(*(with_metadata(first, name=f"p{n}", namespace="default", uid=f"p{n}") for n in range(10)))
    await world.settle()
    search, turns = service.spawn(Told(service).diagnoses.diagnose_next()), 0
    while not search.done():
        await asyncio.sleep(0)
        turns += 1
    assert (turns >= 10) is bool(amounts)


async def test_pods_that_are_not_due_are_searched_in_turns(world: World, service: Service) -> None:
    pods = [make_pod(f"p{number}", "missing") for number in range(2 * PORTION + 100)]
    told = Told(service)
    told.diagnoses._refused = lambda: {pod.metadata.uid: 1 for pod in pods}
    assert sum(1 for _ in told.diagnoses._search()) == 2


async def test_pods_whose_claims_are_missing_are_found_however_many_there_are(serving: Service) -> None:
    """With more pods than results are remembered, none was found: each was forgotten before the next search."""
    told = Told(serving)
    for number in range(REMEMBERED + 1):
        serving.extender.apply(Applied(make_pod(f"p{number}", "missing")))
    run_at_once(told.diagnoses._find_unasked())
    assert not told.diagnoses.pending()
    told.now = CLAIM_SECONDS
    run_at_once(told.diagnoses._find_unasked())
    assert len(told.diagnoses.pending()) == REMEMBERED + 1
