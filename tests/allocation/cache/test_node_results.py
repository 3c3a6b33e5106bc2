"""Verdicts of many nodes: how many searches they cost, which differences between nodes count, and what is answered."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.allocation import selection
from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.plan import Plan, Unfit
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, Removed
from dra_extender.api.resource import DeviceTaintRule
from dra_extender.devices.models import DeviceModel
from tests.support.allocation.manynodes import (
    World,
    all_of,
    attributes,
    exactly,
    memory,
    nodes,
    selector,
    units,
    wanted,
)

Json = dict[str, Any]

NOBODY = "cannot allocate all claims"


MODEL_X = selector('device.attributes["gpu"].model == "x"')
MULTI = {"allowMultipleAllocations": True}
TAINTED = {"taints": [{"key": "t", "effect": "NoSchedule"}]}


def serials(models: str) -> World:
    """20 nodes with four devices of these models in turn, each with a serial number of its own."""
    return nodes(
        *(
            [attributes(model=models[index % len(models)], serial=f"{node}-{index}") for index in range(4)]
            for node in range(20)
        )
    )


class TestWork:
    def test_equal_nodes_cost_one_search(self) -> None:
        world = nodes(*[[{}, {}]] * 100)
        world.ask(wanted(exactly()))
        assert world.decisions.searches == 1

    def test_asking_again_costs_none(self) -> None:
        world = nodes(*[[{}, {}]] * 10)
        world.ask(wanted(exactly()))
        world.ask(wanted(exactly(), name="another"))
        assert world.decisions.searches == 1

    def test_an_allocation_costs_one_more(self) -> None:
        world = nodes(*[[{}, {}]] * 100)
        world.ask(wanted(exactly(2)))
        world.take("c", "n5", "d1")
        assert world.ask(wanted(exactly(2)))[1] == "n5"
        assert world.decisions.searches == 2
        world.take("d", "n7", "d0")
        world.ask(wanted(exactly(2)))
        assert world.decisions.searches == 2, "it does not matter which of two equal devices is free"

    def test_returning_to_a_known_state_costs_none(self) -> None:
        world = nodes([{}, {}])
        world.ask(wanted(exactly(2)))
        world.take("c", "n0", "d1")
        world.ask(wanted(exactly(2)))
        world.take("c", "n0")
        assert world.ask(wanted(exactly(2)))[0] == "n0"
        assert world.decisions.searches == 2

    def test_busy_nodes_cost_one_search_whatever_they_have(self) -> None:
        world = World()
        for count in range(1, 9):
            node = world.add_node(*[{}] * count)
            world.take(f"c{count}", node, *(f"d{index}" for index in range(count)))
        assert world.ask(wanted(exactly()))[0] == ""
        assert world.decisions.searches == 1

    def test_a_plan_on_any_node_evaluates_nothing_that_was_evaluated_on_devices_that_look_the_same(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = serials("xy")
        asked = wanted(exactly(2, **MODEL_X))
        world.ask(asked)
        seen: list[str] = []
        evaluated = selection._suitability

        def count(model: DeviceModel, filter: DeviceFilter, budget: WorkBudget) -> selection.Suitability:
            seen.append(str(model.traits.attributes["serial"].value))
            return evaluated(model, filter, budget)

        monkeypatch.setattr(selection, "_suitability", count)
        plan = world.decisions.plan([asked], "n7")
        assert isinstance(plan, Plan)
        assert [result.device for result in plan.allocations[0].devices.results] == ["d0", "d2"]
        assert seen == []

    def test_serial_numbers_make_no_difference_unless_they_are_read(self) -> None:
        world = serials("x")
        world.ask(wanted(exactly(2, **MODEL_X)))
        assert world.decisions.searches == 1
        fits, _ = world.ask(wanted(exactly(1, **selector('device.attributes["gpu"].serial == "7-3"'))))
        assert fits == "n7"

    def test_devices_nobody_asks_for_make_no_difference(self) -> None:
        world = nodes(*([attributes(model="x"), *[attributes(model="y")] * node] for node in range(10)))
        world.ask(wanted(exactly(1, **MODEL_X)))
        world.take("c", "n5", "d3")
        world.ask(wanted(exactly(1, **MODEL_X)))
        assert world.decisions.searches == 1

    def test_an_unrelated_change_costs_none(self) -> None:
        world = nodes(*[[{}]] * 10)
        world.ask(wanted(exactly()))
        world.put_class("unrelated", "true")
        world.cluster.apply(Applied(convert(Node, {"metadata": {"name": "n3", "labels": {"new": "label"}}})))
        world.ask(wanted(exactly()))
        assert world.decisions.searches == 1

    def test_a_changed_class_is_looked_at_anew(self) -> None:
        world = nodes([attributes(model="x")])
        assert world.ask(wanted(exactly()))[0] == "n0"
        world.put_class("any", 'device.attributes["gpu"].model == "y"')
        assert world.ask(wanted(exactly()))[0] == ""

    def test_only_the_nodes_asked_for_are_looked_at(self) -> None:
        world = nodes(*([*[{}] * count] for count in range(1, 5)))
        assert world.decisions.node_results([wanted(exactly(3))], ["n3", "n0"]).fits == ["n3"]
        assert world.decisions.searches == 2


SHARE = {"shareID": "s", "consumedCapacity": {"memory": "3"}}

DIFFERENCES: dict[str, tuple[list[Json], list[Json], Json]] = {
    "a device more": ([{}, {}], [{}], exactly(2)),
    "an attribute a selector reads": ([attributes(model="x")], [attributes(model="y")], exactly(1, **MODEL_X)),
    "a taint": ([{}], [TAINTED], exactly()),
    "capacity": ([memory("4")], [memory("2")], exactly(capacity={"requests": {"memory": "3"}})),
    "counters consumed": ([units("1")] * 2, [units("2")] * 2, exactly(2)),
}


class TestDifferences:
    """Of two nodes alike but for one thing the first fits and the second does not."""

    @pytest.mark.parametrize(("first", "second", "request_"), DIFFERENCES.values(), ids=DIFFERENCES)
    def test_what_is_published_counts(self, first: list[Json], second: list[Json], request_: Json) -> None:
        world = World()
        world.add_node(*first, counters={"u": "3"})
        world.add_node(*second, counters={"u": "3"})
        assert world.ask(wanted(request_)) == ("n0", "n1")

    def test_counters_offered_count(self) -> None:
        world = World()
        world.add_node(units("1"), units("1"), counters={"u": "2"})
        world.add_node(units("1"), units("1"), counters={"u": "1"})
        assert world.ask(wanted(exactly(2))) == ("n0", "n1")

    def test_counters_used_by_devices_nobody_asks_for_count(self) -> None:
        world = World()
        for _ in range(2):
            world.add_node(attributes(model="x") | units("1"), attributes(model="y") | units("2"), counters={"u": "2"})
        world.take("c", "n1", "d1")
        assert world.ask(wanted(exactly(1, **MODEL_X))) == ("n0", "n1")

    def test_values_that_a_constraint_compares_count(self) -> None:
        world = World()
        world.add_node(attributes(root=1), attributes(root=1))
        world.add_node(attributes(root=1), attributes(root=2))
        world.add_node(attributes(root=1), attributes(root=True))
        claim = wanted(exactly(2), constraints=[{"matchAttribute": "gpu/root"}])
        assert world.ask(claim) == ("n0", "n1 n2")

    def test_whether_a_device_can_be_shared_counts(self) -> None:
        world = nodes([MULTI], [{}])
        assert world.ask(wanted(exactly(name="a"), exactly(name="b"))) == ("n0", "n1")

    def test_what_shares_consume_counts(self) -> None:
        world = nodes(*[[memory("4", requestPolicy={"default": "2"}) | MULTI]] * 2)
        world.take("c", "n1", "d0", **SHARE)
        assert world.ask(wanted(exactly())) == ("n0", "n1")

    def test_devices_in_use_count_for_mode_all(self) -> None:
        world = nodes(*[[{}, {}]] * 2)
        world.take("c", "n1", "d1")
        assert world.ask(wanted(all_of())) == ("n0", "n1")

    def test_devices_in_use_count_for_admin_access(self) -> None:
        world = nodes([{}], [], [{}], [])
        world.take("c", "n2", "d0")
        assert world.ask(wanted(exactly(adminAccess=True))) == ("n0 n2", "n1 n3")

    def test_node_selection_of_devices_counts(self) -> None:
        world = nodes(*[[]] * 2)
        pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": "d0", "nodeName": "n0"}, {"name": "d1", "nodeName": "n1"} | TAINTED]
        world.put_slice("fabric", {"driver": "gpu", "pool": pool, "perDeviceNodeSelection": True, "devices": devices})
        assert world.ask(wanted(exactly())) == ("n0", "n1")

    def test_devices_that_all_nodes_see_are_in_use_for_all_of_them(self) -> None:
        world = nodes(*[[]] * 2)
        pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
        world.put_slice("fabric", {"driver": "gpu", "pool": pool, "allNodes": True, "devices": [{"name": "d0"}]})
        assert world.ask(wanted(exactly())) == ("n0 n1", "")
        world.take("c", "fabric", "d0")
        assert world.ask(wanted(exactly())) == ("", "n0 n1")

    def test_labels_count_where_slices_select_nodes(self) -> None:
        world = World()
        world.add_node(labels={"zone": "a"})
        world.add_node(labels={"zone": "b"})
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
        where = {"nodeSelector": {"nodeSelectorTerms": [term]}}
        world.put_slice("fabric", {"driver": "gpu", "pool": pool, "devices": [{"name": "d0"}], **where})
        assert world.ask(wanted(exactly())) == ("n0", "n1")

    def test_taint_rules_count(self) -> None:
        world = nodes(*[[{}]] * 2)
        spec = {"taint": {"key": "t", "effect": "NoSchedule"}, "deviceSelector": {"pool": "n1"}}
        world.cluster.apply(Applied(convert(DeviceTaintRule, {"metadata": {"name": "r"}, "spec": spec})))
        assert world.ask(wanted(exactly())) == ("n0", "n1")

    def test_the_state_of_a_pool_counts(self) -> None:
        world = nodes(*[[{}]] * 3)
        world.publish("n1", {}, count=2)
        world.put_slice(
            "n2-devices",
            {
                "driver": "gpu",
                "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1},
                "nodeName": "n2",
                "devices": [{"name": "d0"}, {"name": "d0"}],
            },
        )
        found = world.decisions.node_results([wanted(exactly())], world.names)
        assert found.fits == ["n0"]
        assert found.refused == {"n1": NOBODY, "n2": "invalid resource pools were encountered"}

    @pytest.mark.parametrize("odd", [{"version": "not a version"}, {"strings": ["a", "b"]}])
    def test_an_attribute_that_cannot_be_used_counts_although_nothing_reads_it(self, odd: Json) -> None:
        world = nodes([attributes(model="x")], [{"attributes": {"model": {"string": "x"}, "odd": odd}}])
        found = world.decisions.node_results([wanted(exactly(1, **MODEL_X))], world.names)
        assert "CEL runtime error" in found.error


class TestAnswers:
    def test_no_claims_fit_everywhere(self) -> None:
        world = World()
        assert world.decisions.node_results([], ("n0", "elsewhere")).fits == ["n0", "elsewhere"]

    def test_nodes_come_back_in_the_order_asked(self) -> None:
        world = nodes(*[[{}]] * 3)
        assert world.decisions.node_results([wanted(exactly())], iter(["n2", "n0", "n1"])).fits == ["n2", "n0", "n1"]

    def test_unknown_nodes_are_refused_until_they_are_known(self) -> None:
        world = nodes([{}])
        world.names.append("n1")
        found = world.decisions.node_results([wanted(exactly())], world.names)
        assert (found.fits, found.refused) == (["n0"], {"n1": "node not synced yet"})
        world.names.pop()
        world.add_node({})
        assert world.ask(wanted(exactly()))[0] == "n0 n1"

    def test_a_node_that_is_gone_is_unknown_and_its_place_is_used_again(self) -> None:
        world = nodes([{}], [])
        assert world.ask(wanted(exactly())) == ("n0", "n1")
        world.cluster.apply(Removed.of(world.cluster.nodes["n0"]))
        assert world.ask(wanted(exactly()))[0] == ""
        world.add_node()
        assert world.ask(wanted(exactly()))[0] == ""

    def test_an_error_is_that_of_the_first_node_asked_for(self) -> None:
        world = World()
        for name in ("x", "y"):
            world.add_node()
            world.publish(world.names[-1], {}, count=2 if name == "x" else 3)
        claim = wanted(all_of())
        for order in (["n0", "n1"], ["n1", "n0"], ["n0", "n1"]):
            found = world.decisions.node_results([claim], order)
            assert f"resource pool gpu/{order[0]} is currently being updated" in found.error
            assert (found.fits, found.refused) == ([], {})

    def test_an_incomplete_pool_beside_a_usable_one_is_an_error_for_mode_all_only(self) -> None:
        world = nodes(*[[{}]] * 2)
        pool = {"name": "beside", "generation": 1, "resourceSliceCount": 2}
        world.put_slice("beside", {"driver": "nic", "pool": pool, "nodeName": "n1", "devices": [{"name": "d0"}]})
        assert world.ask(wanted(exactly())) == ("n0 n1", "")
        found = world.decisions.node_results([wanted(all_of())], world.names)
        assert "resource pool nic/beside is currently being updated" in found.error

    def test_an_error_on_a_node_not_asked_for_is_none(self) -> None:
        world = nodes([{}], [])
        world.publish("n1", {}, count=2)
        assert world.decisions.node_results([wanted(all_of())], ["n0"]).fits == ["n0"]

    def test_an_error_in_the_claims_names_these_claims(self) -> None:
        world = nodes([{}])
        for name in ("one", "two"):
            missing = {"name": "r", "exactly": {"deviceClassName": "none", "allocationMode": "ExactCount", "count": 1}}
            found = world.decisions.node_results([wanted(missing, name=name)], world.names)
            assert f"claim ns/{name}" in found.error

    def test_scores_prefer_the_first_alternative(self) -> None:
        world = nodes([attributes(model="x")], [attributes(model="y")], [])
        model_y = selector('device.attributes["gpu"].model == "y"')
        alternatives = [
            {"name": name, "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1, **selects}
            for name, selects in (("best", MODEL_X), ("good", model_y))
        ]
        claim = wanted({"name": "r", "firstAvailable": alternatives})
        assert world.decisions.scores([claim], world.names) == {"n0": 8, "n1": 7}
        assert world.decisions.scores([], world.names) == {"n0": 0, "n1": 0, "n2": 0}

    def test_a_plan_on_an_unknown_node_is_refused(self) -> None:
        world = World()
        answer = world.decisions.plan([wanted(exactly())], "nowhere")
        assert isinstance(answer, Unfit) and answer.reason == "node not synced yet"


def test_what_is_forgotten_is_found_out_again() -> None:
    world = nodes(*[[{}, {}]] * 10)
    before = world.ask(wanted(exactly(2)))
    world.decisions.forget()
    assert world.ask(wanted(exactly(2))) == before
    assert world.decisions.searches == 2
