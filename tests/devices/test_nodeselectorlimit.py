"""Which pools are refused because of their node selectors."""

from __future__ import annotations

import pytest

from dra_extender.devices import nodeselection
from dra_extender.devices.nodeselection import NodeSelectorLimit
from tests.support.counting import calls

SMALL, LARGE, OTHER = ("d", "a"), ("d", "b"), ("e", "a")


def test_the_largest_pools_are_refused_whatever_the_name_of_their_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeselection, "REQUIREMENTS_OF_NODE", 10)
    pools = NodeSelectorLimit()
    assert pools.change(LARGE, 9) == set()
    assert pools.change(SMALL, 1) == set()
    assert pools.change(OTHER, 8) == {LARGE}
    assert pools.change(SMALL, 3) == {OTHER}
    assert pools.refused == {LARGE, OTHER}
    assert pools.change(LARGE, 0) == {LARGE}
    assert pools.change(SMALL, 0) == {OTHER}
    assert pools.refused == set()
    assert pools.change(OTHER, 11) == {OTHER}


def test_a_change_of_one_of_many_pools_looks_at_no_other() -> None:
    pools = NodeSelectorLimit()
    for number in range(1_000):
        pools.change(("d", f"{number}"), 1)
    assert calls(lambda: pools.change(SMALL, 2)) < 10
