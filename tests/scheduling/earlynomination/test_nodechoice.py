"""Which node is tried next for pods of one kind."""

from __future__ import annotations

import asyncio

from dra_extender.scheduling.earlynomination.nodechoice import OLD_SECONDS, RENEWED_SECONDS, NodeList, NodeLists
from tests.support.simulation.virtualtime import VirtualClock


def test_equal_nodes_take_turns_and_better_ones_come_first() -> None:
    targets = NodeList(["a", "b", "c", "d"], {"c": 2, "d": 2})
    taken = []
    for _ in range(3):
        name = next(targets.first())
        taken.append(name)
        targets.used(name)
    assert taken == ["c", "d", "c"]
    targets.drop("c")
    targets.drop("d")
    assert (targets.best(), len(targets)) == (["a", "b"], 2)


async def test_nodes_are_looked_for_anew_when_none_are_left_and_there_may_be_more() -> None:
    clock = VirtualClock()
    lists = NodeLists(clock)
    assert lists.get("kind", 1) is None
    targets = lists.put("kind", ["a"], {}, 1)
    assert lists.get("kind", 2) is targets
    targets.drop("a")
    assert lists.get("kind", 2) is targets
    await asyncio.sleep(RENEWED_SECONDS)
    assert lists.get("kind", 1) is targets
    assert lists.get("kind", 2) is None
    await asyncio.sleep(OLD_SECONDS)
    assert lists.get("kind", 1) is None
