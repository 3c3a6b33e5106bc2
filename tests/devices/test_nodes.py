"""Which pools nodes see, and what it costs to find out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dra_extender.api.core import Node, NodeSelector
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Counter, CounterSet, ResourceSlice
from dra_extender.devices import nodes
from dra_extender.devices.inventory import Inventory
from tests.support.counting import calls, lines
from tests.support.simulation.objects import make_slice

POOLS = 200


@pytest.mark.parametrize("devices", [[], ["a"]])
def test_pools_for_all_nodes_are_evaluated_once_and_not_for_each_node(devices: list[str]) -> None:
    inventory = Inventory(FeatureGates())
    for name in ("first", "second"):
        inventory.nodes.put(Node(ObjectMeta(name=name)))
        inventory.put_slice(make_slice(name, ["own"]))
    for number in range(POOLS):
        inventory.put_slice(make_slice("", devices, pool=f"pool-{number}"))
    first, second = map(inventory.nodes.seen.__getitem__, ("first", "second"))
    inventory.nodes.current(first)
    assert calls(lambda: inventory.nodes.current(second)) < 4 * POOLS
    assert len(second.pools) == 1 + POOLS
    assert len(list(inventory.pools_seen("second"))) == 1 + POOLS
    assert list(inventory.nodes_seeing(("gpu.example.com", "pool-0"))) == ["first", "second"]


def test_work_for_a_node_counts_each_pool_that_it_is_compared_with() -> None:
    inventory = Inventory(FeatureGates())
    inventory.nodes.put(Node(ObjectMeta(name="n")))
    for number in range(POOLS):
        for_all = make_slice("", [], pool=f"pool-{number}")
        inventory.put_slice(replace(for_all, spec=replace(for_all.spec, all_nodes=None, node_selector=NodeSelector())))
    seen = inventory.nodes.seen["n"]
    assert inventory.nodes.refresh_work(seen) == 4 * POOLS
    inventory.nodes.current(seen)
    inventory.put_slice(for_all)
    assert inventory.nodes.refresh_work(seen) == 0
    assert len(inventory.nodes.current(seen).pools) == 1
    inventory.put_slice(make_slice("", ["a"], pool="pool-0"))
    assert len(inventory.nodes.current(seen).pools) == 2


def test_a_pool_for_all_nodes_is_seen_only_where_its_newest_generation_is() -> None:
    inventory, pool = Inventory(FeatureGates()), ("gpu.example.com", "p")
    for name in ("a", "b"):
        inventory.nodes.put(Node(ObjectMeta(name=name)))
    inventory.put_slice(make_slice("", ["d0"], pool="p", count=2, part="-0"))
    inventory.put_slice(make_slice("a", ["d1"], pool="p", generation=2, part="-1"))
    assert [list(inventory.pools_seen(name)) for name in ("a", "b")] == [[pool], []]
    assert list(inventory.nodes_seeing(pool)) == ["a"]
    inventory.drop_slice("slice-p-1")
    assert [list(inventory.pools_seen(name)) for name in ("a", "b")] == [[pool], [pool]]
    assert list(inventory.nodes_seeing(pool)) == ["a", "b"]


@pytest.mark.parametrize("devices", [[], ["a"]])
def test_a_pool_for_all_nodes_that_changes_costs_the_same_with_any_number_of_nodes(devices: list[str]) -> None:
    def count(number: int) -> int:
        inventory = Inventory(FeatureGates())
        for name in range(number):
            inventory.nodes.put(Node(ObjectMeta(name=f"{name}")))
        return lines(lambda: inventory.put_slice(make_slice("", devices, pool="p")), 10_000, "devices")

    assert count(200) == count(2)


def test_a_node_that_missed_more_changes_than_are_remembered_looks_at_all_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "CHANGED_POOLS", 4)
    inventory = Inventory(FeatureGates())
    inventory.nodes.put(Node(ObjectMeta(name="n")))
    inventory.put_slice(make_slice("", ["a"], pool="kept"))
    inventory.put_slice(make_slice("n", ["a"], pool="own"))
    assert list(inventory.pools_seen("n")) == [("gpu.example.com", "own"), ("gpu.example.com", "kept")]
    seen = inventory.nodes.seen["n"]
    for number in range(20):
        for node in ("", "n"):
            inventory.put_slice(make_slice(node, ["a"], pool=f"{node}{number}"))
            inventory.drop_slice(make_slice(node, ["a"], pool=f"{node}{number}").metadata.name)
        assert len(seen.stale) <= 4
    inventory.put_slice(make_slice("n", ["a"], pool="own", generation=2))
    assert not inventory.nodes.is_current(seen)
    assert list(inventory.pools_seen("n")) == [("gpu.example.com", "own"), ("gpu.example.com", "kept")]
    assert inventory.nodes.is_current(seen)


def consuming(node: str, pool: str, count: int, devices: int, value: str = "1") -> ResourceSlice:
    """A slice of a pool with shared counters."""
    consumes = [{"counterSet": "c", "counters": {"m": {"value": value}}}]
    named = [{"name": f"{node}-{number}", "consumesCounters": consumes} for number in range(devices)]
    return make_slice(node, named, pool=pool, count=count, part=f"-{node}")


def shared_pool(slices: int, devices: int) -> Inventory:
    """Each node has a slice with so many devices, all of which consume the counters of one more slice."""
    inventory = Inventory(FeatureGates())
    counters = make_slice("", [], pool="p", count=slices + 1, part="-c")
    offered = (CounterSet("c", {"m": Counter(Quantity(9))}),)
    inventory.put_slice(replace(counters, spec=replace(counters.spec, shared_counters=offered)))
    for number in range(slices):
        inventory.nodes.put(Node(ObjectMeta(name=f"n{number}")))
        inventory.put_slice(consuming(f"n{number}", "p", slices + 1, devices))
    return inventory


def test_what_a_node_costs_in_a_pool_with_counters_does_not_depend_on_the_slices_of_others() -> None:
    def count(slices: int) -> int:
        inventory = shared_pool(slices, 4)
        first, second = (inventory.nodes.seen[name] for name in ("n0", "n1"))
        inventory.nodes.current(first)
        found = lines(lambda: inventory.nodes.current(second), 10_000, "devices")
        pool = second.pools[0].pool
        assert pool is not None
        assert (len(pool.names), len(pool.consumers), pool.problem) == (4, 4 * slices, "")
        return found

    assert count(60) <= count(2) + 5


def test_a_change_of_one_slice_looks_at_no_device_of_the_others() -> None:
    def count(devices: int) -> int:
        inventory = shared_pool(40, devices)
        changed = consuming("n0", "p", 41, 3, value="2")
        return lines(lambda: inventory.put_slice(changed), 20_000, "devices")

    assert count(32) <= count(4) + 5
