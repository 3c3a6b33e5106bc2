"""Pools as a node sees them: relevance, generations, completeness, validity, order, taints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dra_extender.api.core import Node, NodeSelectorRequirement
from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceAttribute, DeviceTaintRule, ResourceSlice
from dra_extender.devices import nodes, nodeselection, validity
from dra_extender.devices.inventory import Inventory, node_view
from dra_extender.devices.models import traits_of
from dra_extender.devices.pools import NodeView
from dra_extender.devices.validity import TOO_MANY, TOO_SELECTIVE, defects, valid_alone

Json = dict[str, Any]

ON = FeatureGates(DRADeviceTaintRules=True)
ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
BROKEN = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": []}]}]}


def item(name: str, devices: str = "", *, gen: int = 1, count: int = 1, pool: str = "p", **spec: Any) -> Json:
    """A slice on node n1 with the devices named, unless `spec` says otherwise."""
    where = (
        {} if spec.keys() & {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} else {"nodeName": "n1"}
    )
    content = spec.pop("content", [{"name": part} for part in devices.split()])
    body = {"driver": "d", "pool": {"name": pool, "generation": gen, "resourceSliceCount": count}, **where, **spec}
    return {"metadata": {"name": name}, "spec": {**body, **({"devices": content} if content else {})}}


def view(slices: Sequence[Json], features: FeatureGates = ON, rules: Sequence[Json] = ()) -> NodeView:
    node = convert(Node, {"metadata": {"name": "n1", "labels": {"zone": "a"}}})
    decoded = [convert(ResourceSlice, entry) for entry in slices]
    return node_view(node, decoded, [convert(DeviceTaintRule, rule) for rule in rules], features)


def seen(slices: Sequence[Json], features: FeatureGates = ON) -> str:
    """The devices of each pool, `?` for incomplete, `!` for invalid."""
    found = view(slices, features)
    assert not found.error
    return "; ".join(
        f"{pool.id[1]}:"
        + ("?" if pool.incomplete else "!" if pool.invalid else " ".join(d.id[2] for d in pool.devices))
        for pool in found.pools
    )


@pytest.mark.parametrize(
    ("slices", "expected", "problems"),
    [
        ([item("a", "x y", count=2), item("b", "z", count=2)], "p:x y z", 0),
        ([item("a", "x y", count=2), item("b", "z v", count=2)], "p:!", 1),
        ([item("a", "x y", count=2), item("b", "z v", count=2, nodeName="n2")], "p:x y", 0),
        ([item("a", "x y z v", allNodes=True)], "p:!", 0),
        ([item("a", "x", pool="a"), item("b", "x y z", pool="b"), item("c", "x y", pool="c")], "a:x; b:!; c:!", 0),
    ],
)
def test_a_node_sees_so_many_devices_and_no_more(
    slices: list[Json], expected: str, problems: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (nodes, validity):
        monkeypatch.setattr(module, "DEVICES_OF_NODE", 3)
    assert seen(slices) == expected
    decoded = [convert(ResourceSlice, entry) for entry in slices]
    found = list(validity.problems_of(("d", "p"), [each for each in decoded if each.spec.pool.name == "p"], ON))
    assert [TOO_MANY in problem.what for problem in found] == [True] * problems
    assert all(pool.problem == TOO_MANY for pool in view(slices).pools if pool.invalid)


@pytest.mark.parametrize(
    ("smaller", "larger", "expected", "evaluated"),
    [(1, 2, "a:x; b:y", 3), (1, 3, "a:x; b:!", 1), (4, 3, "a:!; b:y", 3), (4, 4, "a:!; b:!", 0)],
)
def test_a_node_evaluates_so_many_requirements_of_node_selectors_and_no_more(
    smaller: int, larger: int, expected: str, evaluated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: dict[int, NodeSelectorRequirement] = {}
    parse = nodeselection._label
    monkeypatch.setattr(nodeselection, "REQUIREMENTS_OF_NODE", 3)
    monkeypatch.setattr(nodeselection, "_label", lambda found: parse(parsed.setdefault(id(found), found)))
    inventory = Inventory(ON)
    node = convert(Node, {"metadata": {"name": "n1", "labels": {"zone": "a"}}})
    inventory.nodes.put(node)
    for pool, device, count in (("b", "y", larger), ("a", "x", smaller)):
        terms = [{"matchExpressions": ZONE_A["nodeSelectorTerms"][0]["matchExpressions"] * count}]
        content = [{"name": device, "nodeSelector": {"nodeSelectorTerms": terms}}]
        published = item(pool, pool=pool, content=content, perDeviceNodeSelection=True)
        inventory.put_slice(convert(ResourceSlice, published))
    found = inventory.view("n1")
    assert found is not None
    shown = [f"{pool.id[1]}:{'!' if pool.invalid else ' '.join(pool.names)}" for pool in found.pools]
    assert "; ".join(shown) == expected
    assert len(parsed) == evaluated
    invalid = [problem for problem in inventory.problems() if TOO_SELECTIVE in problem.what]
    assert len(invalid) == expected.count("!")
    inventory.drop_slice("b")
    inventory.drop_slice("a")
    inventory.put_slice(convert(ResourceSlice, item("a", "x", pool="a", nodeSelector=ZONE_A)))
    again = inventory.view("n1")
    assert again is not None
    assert not any(pool.problem for pool in again.pools)


COUNTERS: Json = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]}


def consuming(name: str, counter_set: str = "s", counter: str = "c") -> Json:
    return {
        "name": name,
        "consumesCounters": [{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}],
    }


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([item("a", "x")], "p:x"),
        ([item("a", "x", nodeName="n2")], ""),
        ([item("a", "x", allNodes=True)], "p:x"),
        ([item("a", "x", nodeSelector=ZONE_A)], "p:x"),
        ([item("a", "x", nodeName="n2", allNodes=True)], ""),
        ([item("a", content=[{"name": "x", "nodeName": "n2"}], perDeviceNodeSelection=True)], ""),
        ([item("a", content=[{"name": "x"}, {"name": "y", "allNodes": True}], perDeviceNodeSelection=True)], "p:x y"),
        ([item("a", "x", perDeviceNodeSelection=False)], ""),
    ],
)
def test_a_slice_is_seen_by_the_nodes_it_is_for(slices: list[Json], expected: str) -> None:
    assert seen(slices) == expected


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([item("a", "x", gen=1), item("b", "y", gen=2)], "p:y"),
        ([item("b", "y", gen=2), item("a", "x", gen=1)], "p:y"),
        ([item("a", "x", count=2)], "p:?"),
        ([item("a", "x"), item("b", "y")], "p:?"),
        ([item("b", "y", count=2), item("a", "x", count=2)], "p:x y"),
        # complete with slices for other nodes
        ([item("a", "x", count=2), item("b", "y", count=2, nodeName="n2")], "p:x"),
        # a newer generation elsewhere hides an incomplete old one, but not a complete one
        ([item("a", "x", count=2), item("b", "y", gen=2, nodeName="n2")], ""),
        ([item("a", "x"), item("b", "y", gen=2, nodeName="n2")], "p:x"),
        # nothing relevant: not seen at all
        ([item("b", "y", count=2, nodeName="n2")], ""),
    ],
)
def test_only_complete_pools_of_one_generation_have_devices(slices: list[Json], expected: str) -> None:
    assert seen(slices) == expected


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([item("a", "x x")], "p:!"),
        ([item("a", "x", count=2), item("b", "x", count=2)], "p:!"),
        ([item("a", "x", count=2), item("b", "x", count=2, nodeName="n2")], "p:x"),
        ([item("a", count=2, **COUNTERS), item("b", content=[consuming("x")], count=2)], "p:x"),
        ([item("a", count=3, **COUNTERS), item("c", count=3, **COUNTERS), item("b", "x", count=3)], "p:!"),
        ([item("b", content=[consuming("x")])], "p:!"),
        ([item("a", count=2, **COUNTERS), item("b", content=[consuming("x", counter="other")], count=2)], "p:!"),
        (
            [
                item("a", count=3, **COUNTERS),
                item("b", "x", count=3),
                item("c", content=[consuming("y", "gone")], count=3, nodeName="n2"),
            ],
            "p:!",
        ),
        # one slice is all that the node sees, but not all of the pool
        ([item("a", "x", count=2), item("b", content=[consuming("y")], count=2, nodeName="n2")], "p:!"),
        # counter slices belong to the pool on every node
        ([item("a", count=2, nodeName="n2", **COUNTERS), item("b", content=[consuming("x")], count=2)], "p:x"),
    ],
)
def test_duplicate_names_and_missing_counters_make_a_pool_invalid(slices: list[Json], expected: str) -> None:
    assert seen(slices) == expected


@pytest.mark.parametrize(
    "entry", [item("a"), item("a", "x y"), item("a", "x y x"), item("a", content=[consuming("x")])]
)
def test_devices_stand_alone_when_a_pool_of_them_has_no_defects(entry: Json) -> None:
    only = convert(ResourceSlice, entry)
    assert valid_alone(only.spec.devices) == (not list(defects([only], ON)))


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([item("a", count=2, **COUNTERS), item("b", content=[consuming("x")], count=2)], "p:x"),
        ([item("b", content=[consuming("x")])], "p:x"),
        ([item("a", "x", perDeviceNodeSelection=False, nodeName="n1")], ""),
    ],
)
def test_without_partitionable_devices_counters_are_not_looked_at(slices: list[Json], expected: str) -> None:
    assert seen(slices, FeatureGates(DRAPartitionableDevices=False)) == expected


def test_pools_with_binding_conditions_come_last_then_names_decide() -> None:
    bound = [{"name": "x"}, {"name": "y", "bindingConditions": ["ready"]}]
    slices = [
        item("1", content=bound, pool="a"),
        item("2", "z", pool="c"),
        item("3", "w", pool="b"),
        item("4", count=9),
    ]
    assert seen(slices) == "b:w; c:z; p:?; a:x y"


def test_devices_are_in_the_order_of_slice_names_then_of_the_list() -> None:
    assert seen([item("b", "2 1", count=2), item("a", "4 3", count=2)]) == "p:4 3 2 1"


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (item("a", "x", nodeSelector=BROKEN), "gather pool information: failed to perform node selection for slice a:"),
        (
            item("a", content=[{"name": "x", "nodeSelector": BROKEN}], perDeviceNodeSelection=True),
            "gather pool information: failed to perform node selection for device x in slice a:",
        ),
    ],
)
def test_a_node_selector_that_cannot_be_parsed_is_told_by_the_view(entry: Json, error: str) -> None:
    assert view([entry]).error.startswith(error)


def test_devices_behind_the_first_match_are_looked_at_only_when_they_are_reached() -> None:
    content = [{"name": "x", "allNodes": True}, {"name": "y", "nodeSelector": BROKEN}, {"name": "z", "nodeName": "n2"}]
    found = view([item("a", content=content, perDeviceNodeSelection=True)])
    assert (found.error, list(found.unmatchable), found.elsewhere) == ("", [1], 0b100)


def rule(**selector: str) -> Json:
    return {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}},
    }


@pytest.mark.parametrize(
    ("rules", "tainted"),
    [
        ([rule()], "x y"),
        ([rule(driver="d", pool="p", device="y")], "y"),
        ([rule(pool="q")], ""),
        ([{"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}], ""),
    ],
)
def test_rules_add_their_taint_to_the_devices_they_select(rules: list[Json], tainted: str) -> None:
    found = view([item("a", "x y")], rules=rules)
    assert " ".join(device.id[2] for device in found.devices if device.model.traits.taints) == tainted
    assert not any(
        device.model.traits.taints
        for device in view([item("a", "x y")], FeatureGates(DRADeviceTaintRules=False), rules).devices
    )


def test_devices_of_equal_content_share_a_model() -> None:
    tainted = {"name": "z", "taints": [{"key": "k", "effect": "NoSchedule"}]}
    first, second, other = view([item("a", content=[{"name": "x"}, {"name": "y", "allNodes": True}, tainted])]).devices
    assert first.model is second.model
    assert first.model is not other.model


def test_traits_are_active_taints_and_exact_amounts_only() -> None:
    taints = [{"key": "k", "effect": effect} for effect in ("NoSchedule", "None", "Odd", "NoExecute")]
    device = convert(ResourceSlice, item("a", content=[{**consuming("x"), "taints": taints}])).spec.devices[0]
    traits = traits_of("d", device)
    assert [taint.effect for taint in traits.taints] == ["NoSchedule", "NoExecute"]
    assert traits.consumes == (("s", "c", 10**9),)


@pytest.mark.parametrize(
    ("attributes", "name", "expected"),
    [
        ({"model": {"string": "x"}}, "d/model", DeviceAttribute(string="x")),
        ({"d/model": {"string": "x"}, "model": {"string": "y"}}, "d/model", DeviceAttribute(string="x")),
        ({"model": {"string": "x"}}, "other/model", None),
        ({"model": {}}, "d/model", DeviceAttribute()),
        ({}, "d/model", None),
    ],
)
def test_an_attribute_is_found_by_its_full_name_or_in_the_drivers_domain(
    attributes: Json, name: str, expected: DeviceAttribute | None
) -> None:
    device = convert(ResourceSlice, item("a", content=[{"name": "x", "attributes": attributes}])).spec.devices[0]
    assert traits_of("d", device).attribute(name) == expected
