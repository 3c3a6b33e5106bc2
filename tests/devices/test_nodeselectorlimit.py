"""Which pools are refused because of their node selectors."""

from __future__ import annotations

import pytest

from dra_extender.devices import nodeselection
from dra_extender.devices.nodeselection import NodeSelectorLimit
from tests.support.counting import calls

SMALL, LARGE, OTHER = ("d", "a"), ("d", "b"), ("e", "a")


def test_the_largest_pools_of_a_driver_are_refused_and_those_of_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeselection, "REQUIREMENTS_OF_NODE", 10)
    pools = NodeSelectorLimit()
    assert pools.change(LARGE, 9) == set()
    assert pools.change(OTHER, 10) == set()
    assert pools.change(SMALL, 2) == {LARGE}
    assert pools.refused == {LARGE}
    assert pools.change(OTHER, 11) == {OTHER}
    assert pools.change(SMALL, 0) == {LARGE}
    assert pools.refused == {OTHER}


def test_a_change_of_one_of_many_pools_looks_at_no_other() -> None:
    pools = NodeSelectorLimit()
    for number in range(1_000):
        pools.change(("d", f"{number}"), 1)
    assert calls(lambda: pools.change(SMALL, 2)) < 10
