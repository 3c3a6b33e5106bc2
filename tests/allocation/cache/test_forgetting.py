"""What is remembered of devices goes with them."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest

from dra_extender.allocation.cache import equivalence
from tests.support.allocation.manynodes import World, attributes, exactly, nodes, selector, wanted

MODEL_X = selector('device.attributes["gpu"].model == "x"')


def test_what_was_derived_of_a_pool_goes_with_it() -> None:
    world = nodes([attributes(model="x")])
    gone = world.add_node(attributes(model="y", serial="s"), attributes(model="x", serial="t"))
    for claim in (wanted(exactly(1, **MODEL_X)), wanted(exactly())):
        world.ask(claim)
    seen = world.cluster.inventory.nodes.seen[gone]
    (pool,) = seen.pools
    assert pool.pool is not None
    left: list[ref[Any]] = [ref(pool), *map(ref, pool.pool.models)]
    del seen, pool
    world.withdraw(gone)
    world.ask(wanted(exactly()))
    assert [found for one in left if (found := one()) is not None] == []


def test_a_forgotten_device_signature_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "REMEMBERED", 1)
    world = World()
    for serials in ("aa", "bc", "dd"):
        world.add_node(*(attributes(serial=serial) for serial in serials))
    same = {"matchAttribute": "gpu/serial"}
    assert world.ask(wanted(exactly(2), constraints=[same])) == ("n0 n2", "n1")
