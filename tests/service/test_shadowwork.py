"""Shadow mode takes little work in one turn of the event loop, and no pod keeps it from recording others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dra_extender.api.core import Pod
from dra_extender.scheduling.claims import all_claim_names
from dra_extender.scheduling.turns import Turns
from dra_extender.service.shadow import Choice, FollowedCopy
from tests.service.test_shadow import TWO, running, waiting
from tests.support.diagnosis.gpupods import pod
from tests.support.service.shadowing import Shadowed, recording

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
