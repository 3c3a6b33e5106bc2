"""Which part of the page is refreshed next, and which is not refreshed again."""

from __future__ import annotations

import pytest

from dra_extender.http.page.parts import PagePart, PodCountPart
from dra_extender.http.page.state import PageState
from dra_extender.http.page.updates import LATE, SOON, RefreshQueue
from dra_extender.scheduling.turns import Turns


class World:
    """A queue, its page state and its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.state = PageState()
        self.queue = RefreshQueue(self.state, lambda: self.now)

    def keep(self, *keys: str) -> None:
        self.queue.keep("k", dict.fromkeys(keys, "a"), computing)

    async def refresh_all(self) -> list[str]:
        """The keys in the order in which they are due."""
        refreshed = []
        while (key := self.queue.due()) is not None:
            refreshed.append(key)
            await self.queue.refresh(key)
        return refreshed


def computing(key: str) -> Turns[PagePart]:
    yield
    return PodCountPart(key, 1)


@pytest.fixture
def world() -> World:
    return World()


async def test_each_part_is_refreshed_once_in_the_given_order_while_nothing_changes(world: World) -> None:
    world.keep("k2", "k1")
    assert await world.refresh_all() == ["k2", "k1"]
    assert world.queue.due() is None


@pytest.mark.parametrize(("changes", "seconds"), [(1, SOON), (0, LATE)])
async def test_a_part_is_due_soon_after_a_change_and_late_without_one(
    world: World, changes: int, seconds: float
) -> None:
    world.keep("k1")
    await world.refresh_all()
    world.queue.change += changes
    world.now = seconds - 0.1
    assert world.queue.due() is None
    world.now = seconds
    assert world.queue.due() == "k1"


async def test_a_new_part_comes_first(world: World) -> None:
    world.keep("k1")
    await world.refresh_all()
    world.now = LATE
    world.keep("k1", "k2")
    assert world.queue.due() == "k2"


async def test_a_part_that_is_no_longer_kept_is_dropped(world: World) -> None:
    world.keep("k1", "k2")
    world.queue.keep("other", {"other": "a"}, computing)
    await world.refresh_all()
    world.keep("k2")
    assert sorted(world.state.keys("")) == ["k2", "other"]


async def test_a_result_for_a_dropped_part_is_not_put(world: World) -> None:
    def forgetting(key: str) -> Turns[PagePart]:
        world.keep()
        yield
        return PagePart(key)

    world.queue.keep("k", {"k1": "a"}, forgetting)
    await world.queue.refresh("k1")
    assert (world.queue.due(), world.state.keys("")) == (None, [])
