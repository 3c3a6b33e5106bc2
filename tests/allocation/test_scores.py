"""Scores: nodes that look the same share a score, and a search."""

from __future__ import annotations

import pytest

from dra_extender.allocation.cache import results
from tests.support.allocation.manynodes import World, attributes, exactly, nodes, selector, wanted


def test_scores_share_the_searches_of_filter() -> None:
    world = nodes(*[[{}, {}, {}]] * 4)
    world.take("c", "n1", "d2")
    world.take("d", "n2", "d1", "d2")
    claim = wanted(exactly())
    world.ask(claim)
    searches = world.decisions.searches
    assert world.decisions.scores([claim], world.names) == dict.fromkeys(world.names, 0)
    assert world.decisions.searches == searches == 3


def test_scores_stay_right_when_there_are_more_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "REMEMBERED_RESULTS", 5)
    world = World()
    for speed in range(1, 5):
        world.add_node(attributes(speed=speed))
    asks = [
        {"name": f"s{speed}", "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
        | selector(f'device.attributes["gpu"].speed == {speed}')
        for speed in range(1, 5)
    ]
    claim = wanted({"name": "r", "firstAvailable": asks})
    for speed in (4, 1, 3, 2):
        world.publish("n3", attributes(speed=speed))
        assert list(world.decisions.scores([claim], world.names).values()) == [8, 7, 6, 9 - speed]
