"""Which pools nodes see, and what it costs to find out."""

from __future__ import annotations

import weakref

import pytest
from msgspec.structs import replace

from dra_extender.api.core import Node, NodeSelector
from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Counter, CounterSet, DeviceTaintRule, ResourcePool, ResourceSlice
from dra_extender.devices import nodes, nodeselection
from dra_extender.devices.inventory import Inventory
from tests.support.counting import calls, lines
from tests.support.simulation.objects import Json, make_slice

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
    assert sum(inventory.nodes.refresh(seen)) >= 4 * POOLS
    assert inventory.nodes.is_current(seen)
    inventory.put_slice(for_all)
    assert sum(inventory.nodes.refresh(seen)) == 1, "the slice was gathered for all nodes"
    assert len(seen.pools) == 1
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
    """A slice with devices for each node, and one slice with the counters that all of them consume."""
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


SELECTING = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]}


def selecting(pool: str) -> ResourceSlice:
    """A slice for nodes in a rack, in a pool of which some nodes have a slice too."""
    found = make_slice("", [f"{pool}-d"], pool=pool, count=2)
    selector = convert(NodeSelector, SELECTING)
    return replace(found, spec=replace(found.spec, all_nodes=None, node_selector=selector))


def test_what_a_node_costs_is_charged_where_devices_name_their_nodes() -> None:
    inventory = Inventory(FeatureGates())
    for name in ("n0", "n1"):
        inventory.nodes.put(Node(ObjectMeta(name=name)))
    named: list[str | Json] = [{"name": f"d{number}", "nodeName": f"n{number}"} for number in range(100)]
    for part in range(8):
        item = make_slice("", named, pool="p", count=8, part=f"-{part}")
        spec = replace(item.spec, all_nodes=None, per_device_node_selection=True)
        inventory.put_slice(replace(item, spec=spec))
    for seen in inventory.nodes.seen.values():
        work: list[int] = []
        count = lines(lambda: work.extend(inventory.nodes.refresh(seen)), 100_000, "devices")  # noqa: B023
        assert 0 < count / sum(work) < 20


def test_a_node_is_brought_up_to_date_pool_by_pool_and_an_interruption_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathered: list[object] = []
    monkeypatch.setattr(nodes, "gather_pool", lambda published, *given: gathered.append(published.id))
    inventory = Inventory(FeatureGates())
    inventory.nodes.put(Node(ObjectMeta(name="n", labels={"rack": "r"})))
    for number in range(5):
        inventory.put_slice(selecting(f"p{number}"))
    seen, steps = inventory.nodes.seen["n"], 0
    while not inventory.nodes.is_current(seen):
        steps += 1
        step = inventory.nodes.refresh(seen)
        next(step)
        next(step, 0)
        del step
    assert (len(gathered), len(set(gathered)), steps) == (5, 5, 5)


def test_a_node_that_goes_while_it_is_brought_up_to_date_leaves_nothing_behind() -> None:
    inventory = Inventory(FeatureGates())
    inventory.nodes.put(Node(ObjectMeta(name="old", labels={"rack": "r"})))
    inventory.put_slice(replace(selecting("p"), spec=replace(selecting("p").spec, pool=ResourcePool("p", 1, 1))))
    step = inventory.nodes.refresh(inventory.nodes.seen["old"])
    next(step)
    inventory.nodes.drop("old")
    inventory.nodes.put(Node(ObjectMeta(name="new")))
    assert list(step) == []
    assert list(inventory.nodes_seeing(("gpu.example.com", "p"))) == []


def test_the_selector_of_a_slice_is_parsed_once_however_many_nodes_and_events_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[NodeSelector] = []

    def counting(selector: NodeSelector) -> nodeselection.Matcher:
        parsed.append(selector)
        return parse(selector)

    parse = nodeselection.parse
    monkeypatch.setattr(nodeselection, "parse", counting)
    inventory = Inventory(FeatureGates())
    inventory.put_slice(selecting("p"))
    for number in range(4):
        inventory.nodes.put(Node(ObjectMeta(name=f"n{number}", labels={"rack": "r"})))
        inventory.put_slice(make_slice(f"n{number}", ["e"], pool="p", count=2, part=f"-{number}"))
        for name in inventory.nodes:
            view = inventory.view(name)
            assert view is not None
            assert len(view.devices) == 2
    assert len(parsed) == 1


def test_what_no_node_sees_any_longer_is_not_kept() -> None:
    inventory, pool = Inventory(FeatureGates()), ("gpu.example.com", "p")
    item = selecting("p")
    inventory.put_slice(replace(item, spec=replace(item.spec, pool=ResourcePool("p", 1, 1))))
    inventory.nodes.put(Node(ObjectMeta(name="n", labels={"rack": "r"})))
    seen = inventory.nodes.current(inventory.nodes.seen["n"])
    kept = weakref.ref(seen.found[pool])
    inventory.nodes.put(Node(ObjectMeta(name="n")))
    assert pool not in inventory.nodes.current(seen).found
    assert kept() is None


def test_nodes_that_do_not_see_a_pool_find_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[object] = []
    monkeypatch.setattr(nodes, "gather_pool", lambda *given: gathered.append(given))
    inventory = Inventory(FeatureGates())
    inventory.put_slice(selecting("p"))
    for number in range(3):
        inventory.nodes.put(Node(ObjectMeta(name=f"{number}")))
    assert sum(inventory.nodes.refresh_all()) > 0
    assert len(gathered) == 1


def test_a_device_that_gets_the_taint_of_a_rule_is_charged() -> None:
    """After a rule for all devices, the first filter on 5,000 nodes took 2.5 s in one turn."""
    inventory = Inventory(FeatureGates())
    inventory.nodes.put(Node(ObjectMeta(name="n")))
    inventory.put_slice(make_slice("n", [f"d{index}" for index in range(8)]))
    seen = inventory.nodes.seen["n"]
    plain = sum(inventory.nodes.refresh(seen))
    taint = {"key": "k", "effect": "NoSchedule"}
    spec = {"taint": taint, "deviceSelector": {"device": "d0"}}
    inventory.put_rule(convert(DeviceTaintRule, {"metadata": {"name": "r"}, "spec": spec}))
    assert sum(inventory.nodes.refresh(seen)) >= plain + 8 * 7


def test_rules_that_reach_no_device_are_charged_for_each_slice_that_is_read() -> None:
    inventory = Inventory(FeatureGates())
    inventory.nodes.put(Node(ObjectMeta(name="n")))
    inventory.put_slice(make_slice("n", ["d0"]))
    for number in range(320):
        spec = {"taint": {"key": "k", "effect": "NoSchedule"}, "deviceSelector": {"pool": f"other-{number}"}}
        inventory.put_rule(convert(DeviceTaintRule, {"metadata": {"name": f"r{number}"}, "spec": spec}))
    assert sum(inventory.nodes.refresh(inventory.nodes.seen["n"])) >= 320 // 16
