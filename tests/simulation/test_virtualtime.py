"""What a test in virtual time rests on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.simulation.objects import make_claim, make_pod
from tests.support.simulation.world import World, replay, story


async def test_waiting_costs_nothing(world: World) -> None:
    """Time is where the waits have brought it, to the second."""
    await asyncio.sleep(99_000.0)
    assert world.clock.monotonic() == 99_000.0


@pytest.mark.parametrize(
    ("wait", "problem"),
    [
        (lambda: asyncio.Event().wait(), "nothing will ever happen"),
        (lambda: asyncio.sleep(100_001.0), "not over after 100,001 s"),
    ],
)
def test_what_would_wait_for_ever_is_an_error(wait: Callable[[], Awaitable[object]], problem: str) -> None:
    async def told(world: World) -> None:
        await wait()

    with pytest.raises(RuntimeError, match=problem):
        replay(told)


def test_what_must_never_happen_fails_a_test_that_does_not_look() -> None:
    async def told(world: World) -> None:
        world.add(make_claim("c"), make_pod("p", "c", node="n1"))

    with pytest.raises(AssertionError, match="p bound without c"):
        replay(told)


async def test_services_are_ended_with_the_story() -> None:
    async with story() as world:
        work = world.service().spawn(asyncio.sleep(10.0))
        await world.settle()
    assert work.cancelled()


def test_a_seed_is_an_order() -> None:
    """The same each time, and another one for another seed; without a seed callbacks run as they came."""

    def order(seed: int | None) -> list[int]:
        found: list[int] = []

        async def told(world: World) -> None:
            async def note(number: int) -> None:
                found.append(number)

            await asyncio.gather(*(note(number) for number in range(9)))

        replay(told, seed)
        return found

    assert order(None) == list(range(9))
    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2)) == list(range(9))


@pytest.mark.parametrize("seed", [3])
async def test_the_seed_of_a_test_is_that_of_its_loop(world: World, seed: int) -> None:
    found: list[int] = []

    async def note(number: int) -> None:
        found.append(number)

    await asyncio.gather(*(note(number) for number in range(9)))
    assert found != list(range(9))
