"""Shadow mode takes little work in one turn of the event loop, and no pod keeps it from recording others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dra_extender.api.core import Pod
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.scheduling.claims import all_claim_names
from dra_extender.scheduling.turns import PORTION, Turns
from dra_extender.service.shadow import Choice, FollowedCopy
from tests.support.diagnosis.gpupods import pod
from tests.support.service.shadowing import GPUS, TWO, Json, Shadowed, machine, recording, running, waiting

CHOOSING = FollowedCopy.choosing
MANY = 120


@asynccontextmanager
async def decisions(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counter[int]]:
    """How many decisions begin in each turn of the event loop."""
    counted, turn = Counter[int](), 0

    def choosing(copy: FollowedCopy, pod: Pod, preferred: str) -> Turns[Choice]:
        counted[turn] += 1
        return CHOOSING(copy, pod, preferred)

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    monkeypatch.setattr(FollowedCopy, "choosing", choosing)
    task = asyncio.create_task(count())
    try:
        yield counted
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_pods_that_come_together_are_placed_in_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with recording(Shadowed(TWO)) as shadowed, decisions(monkeypatch) as counted:
        for number in range(MANY):
            shadowed.apply(*waiting(f"p{number}"))
        await shadowed.quiet()
        assert (counted.total() >= MANY, max(counted.values())) == (True, 1)


async def test_pods_that_may_fit_again_are_placed_in_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with recording(Shadowed([*TWO, *running("first", "a", "gpu-0")])) as shadowed:
        for number in range(MANY):
            shadowed.apply(*waiting(f"p{number}", 3))
        await shadowed.quiet()
        async with decisions(monkeypatch) as counted:
            shadowed.remove(running("first", "a", "gpu-0")[0])
            await shadowed.quiet()
            assert (counted.total() > MANY / 2, max(counted.values())) == (True, 1)


async def test_pods_that_wait_for_one_claim_are_placed_in_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.apply(*(pod(f"p{number}", claims="shared") for number in range(MANY)))
        await shadowed.quiet()
        async with decisions(monkeypatch) as counted:
            shadowed.apply(waiting("shared")[1])
            await shadowed.quiet()
            assert (counted.total(), max(counted.values())) == (MANY, 1)


async def test_a_new_claim_reads_no_pods_that_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def names(pod: Pod) -> list[str]:
        read.append(pod.metadata.name)
        return all_claim_names(pod)

    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.apply(*(pod(f"p{number}", claims=f"missing-{number}") for number in range(MANY)))
        await shadowed.quiet()
        monkeypatch.setattr("dra_extender.service.shadow.all_claim_names", names)
        shadowed.apply(waiting("other")[1])
        await shadowed.quiet()
        assert read == []


def with_resources(document: list[Json], count: int) -> list[Json]:
    document[0]["spec"]["containers"][0]["resources"]["requests"] = {f"example.com/r{n}": "1" for n in range(count)}
    return document


async def test_a_pod_that_is_too_large_for_a_question_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    obstacles = SimulatedPod.obstacles

    def counted(simulated: SimulatedPod, node: Any) -> Any:
        compared.append(node.name)
        return obstacles(simulated, node)

    monkeypatch.setattr(SimulatedPod, "obstacles", counted)
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.bind(with_resources(waiting("p"), 1_001), with_resources(running("p", "a", "gpu-0"), 1_001))
        assert (await shadowed.rules(), compared) == ({"not decided": 1}, [])


async def test_a_pod_that_exceeds_the_budget_of_a_question_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.scheduling.turns.WORK", 1)
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.bind(waiting("p"), running("p", "a", "gpu-0"))
        assert await shadowed.rules() == {"not decided": 1}


async def test_a_large_object_counts_as_several_events_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.service.shadow.BEHIND", 10)
    large = pod("large")
    large["metadata"]["annotations"] = {"text": "x" * 100_000}
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.bind(waiting("p"), running("p", "a", "gpu-0"))
        shadowed.apply(large)
        shadowed.bind(waiting("q"), running("q", "a", "gpu-1"))
        assert await shadowed.rules() == {"not decided": 1, "same": 1}


async def test_a_decision_stops_when_too_many_events_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def choosing(copy: FollowedCopy, pod: Pod, preferred: str) -> Turns[Choice]:
        begun.append(pod.metadata.name)
        while len(begun) == 1:
            yield
        return (yield from CHOOSING(copy, pod, preferred))

    monkeypatch.setattr("dra_extender.service.shadow.BEHIND", 3)
    monkeypatch.setattr(FollowedCopy, "choosing", choosing)
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.apply(*reversed(waiting("first")))
        for _ in range(MANY):
            await asyncio.sleep(0)
        assert begun == ["first"]
        for name, device in (("p", "gpu-0"), ("q", "gpu-1")):
            shadowed.bind(waiting(name), running(name, "a", device))
        assert await shadowed.rules() == {"not decided": 1, "same": 1}


async def test_the_report_counts_pods_and_claims_in_turns() -> None:
    documents = [document for number in range(2 * PORTION) for document in waiting(f"p{number}", 9)]
    async with recording(Shadowed([*TWO, *documents])) as shadowed:
        turns = sum(1 for _ in shadowed.record.report(0))
        assert turns == 8


async def test_a_device_of_two_claims_counts_once_in_the_report() -> None:
    async with recording(Shadowed([*TWO, *running("p", "a", "gpu-0"), *running("q", "a", "gpu-0")])) as shadowed:
        found = await shadowed.settled()
        assert (found.now.devices, found.packed.devices) == (1, 1)


async def test_each_pod_that_waits_is_tried_once_devices_become_free() -> None:
    """However many pods came earlier that do not fit."""
    full = [GPUS, *machine("a", 2), *running("x", "a", "gpu-0", "gpu-1")]
    async with recording(Shadowed(full, "pack")) as shadowed:
        for number in range(MANY):
            shadowed.apply(*waiting(f"p{number}", 8))
        shadowed.apply(*waiting("fits"))
        shadowed.remove(*running("x", "a", "gpu-0", "gpu-1"))
        await shadowed.quiet()
        shadowed.watch.now += 60
        shadowed.apply(*reversed(running("fits", "a", "gpu-0")))
        assert (await shadowed.rules(), (await shadowed.example()).seconds) == ({"waited": 1}, 60.0)


async def test_nothing_is_kept_for_a_pod_that_was_gone_before_its_allocation() -> None:
    async with recording(Shadowed(TWO)) as shadowed:
        (gone, claim), (later, _) = running("gone", "a", "gpu-0"), running("later", "a")
        later["spec"]["resourceClaims"] = gone["spec"]["resourceClaims"]
        shadowed.apply(*waiting("gone"))
        shadowed.remove(gone)
        shadowed.apply(claim, later)
        claim["status"]["reservedFor"] = [{"resource": "pods", "name": "later", "uid": "uid-later"}]
        shadowed.apply(claim)
        shadowed.remove(later, claim)
        await shadowed.quiet()
        assert not any(isinstance(known, dict) and known for known in vars(shadowed.record).values())
