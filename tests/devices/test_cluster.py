"""Which events may let a refused pod fit, and what is said about objects that are no good."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, PartialAllocation, Removed
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import (
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.validity import ObjectProblem
from tests.support.counting import calls
from tests.support.devices.changing import drop, put, spoil
from tests.support.devices.objects import make_allocation, make_claim, make_node, make_slice


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(FeatureGates())


def device_class(name: str, **metadata_and_spec: Any) -> DeviceClass:
    created = metadata_and_spec.pop("created", None)
    return convert(DeviceClass, {"metadata": {"name": name, "creationTimestamp": created}, "spec": metadata_and_spec})


def rule(name: str, **selector: str) -> DeviceTaintRule:
    taint = {"key": "broken", "effect": "NoSchedule"}
    return convert(DeviceTaintRule, {"metadata": {"name": name}, "spec": {"taint": taint, "deviceSelector": selector}})


class TestImprovement:
    def test_slices_improve_when_their_content_is_new(self, cluster: Cluster) -> None:
        assert put(cluster, make_slice("s", "p", ["d0"]))
        assert not put(cluster, make_slice("s", "p", ["d0"]))
        assert put(cluster, make_slice("s", "p", ["d0", "d1"]))
        assert drop(cluster, make_slice("s", "p"))
        assert not drop(cluster, make_slice("s", "p"))

    def test_a_slice_may_move_to_another_pool(self, cluster: Cluster) -> None:
        put(cluster, make_node("n"))
        put(cluster, make_slice("s", "p", ["d0"], nodeName="n"))
        put(cluster, make_slice("s", "q", ["d0"], nodeName="n"))
        view = cluster.inventory.view("n")
        assert view is not None
        assert [pool.id for pool in view.pools] == [("gpu", "q")]

    def test_nodes_improve_when_added_or_relabelled_but_not_by_heartbeats(self, cluster: Cluster) -> None:
        assert put(cluster, make_node("n"))
        assert not put(cluster, make_node("n"))
        assert put(cluster, make_node("n", zone="a"))
        assert not drop(cluster, make_node("n"))

    def test_classes_improve_when_their_spec_is_new(self, cluster: Cluster) -> None:
        assert put(cluster, device_class("c"))
        assert not put(cluster, device_class("c", created="2026-01-01T00:00:00Z"))
        assert put(cluster, device_class("c", extendedResourceName="example.com/gpu"))

    def test_a_version_older_than_the_one_known_is_no_improvement(self, cluster: Cluster) -> None:
        consumer = {"resource": "pods", "name": "p", "uid": "uid-p"}
        reserved = make_claim("c", 9, ["gpu/p/d"], pod="p")
        status = msgspec.structs.replace(
            reserved.status, reserved_for=(convert(ResourceClaimConsumerReference, consumer),)
        )
        put(cluster, make_claim("c", 1, pod="p"))
        cluster.apply(Applied(msgspec.structs.replace(reserved, status=status), "reply"))
        assert not put(cluster, make_claim("c", 5, pod="p"))
        assert put(cluster, make_claim("c", 10, pod="p"))

    def test_taint_rules_improve_when_they_go(self, cluster: Cluster) -> None:
        assert not put(cluster, rule("r", driver="gpu"))
        assert put(cluster, rule("r", driver="nic"))
        assert drop(cluster, rule("r"))

    @pytest.mark.parametrize(
        ("before", "after", "improves"),
        [
            (None, {}, False),
            ({}, {"labels": {"a": "b"}}, False),
            ({}, {"devices": ["gpu/p/d0"]}, True),
            ({"pod": "u"}, {"pod": "u", "devices": ["gpu/p/d0"]}, False),
            ({"devices": ["gpu/p/d0"]}, {"devices": ["gpu/p/d0"]}, False),
            ({"devices": ["gpu/p/d0"]}, {}, True),
            ({"devices": ["gpu/p/d0"]}, None, True),
            ({}, None, False),
        ],
        ids=["created", "relabelled", "shared claim allocated", "a pod's own claim allocated", "unchanged",
             "deallocated", "deleted with devices", "deleted without devices"],
    )  # fmt: skip
    def test_claims(self, cluster: Cluster, before: Any, after: Any, improves: bool) -> None:
        if before is not None:
            put(cluster, make_claim("c", 1, **before))
        found = drop(cluster, make_claim("c", 2)) if after is None else put(cluster, make_claim("c", 2, **after))
        assert found is improves

    def test_a_consumer_less_makes_room(self, cluster: Cluster) -> None:
        def reserved(version: int, *uids: str) -> ResourceClaim:
            consumers = [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]
            metadata = {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
            return convert(ResourceClaim, {"metadata": metadata, "status": {"reservedFor": consumers}})

        put(cluster, reserved(1, "a"))
        assert not put(cluster, reserved(2, "a", "b"))
        assert put(cluster, reserved(3, "b"))

    def test_a_shared_claim_that_leaves_flight_lets_others_in(self, cluster: Cluster) -> None:
        claim = make_claim("c", 1)
        put(cluster, claim)
        hold = cluster.ledger.hold(claim, make_allocation("gpu/p/d0"), owner="pod")
        written = make_claim("c", 2, ["gpu/p/d0"])
        cluster.ledger.confirm(hold, written)
        assert put(cluster, written)


def holding(*devices: str) -> PartialAllocation:
    return PartialAllocation("u", tuple(DeviceRequestAllocationResult("r", "gpu", "p", device) for device in devices))


def problem_of(cluster: Cluster, slice_name: str) -> ObjectProblem:
    (found,) = (problem for problem in cluster.problems if problem.object == ObjectKey("ResourceSlice", slice_name))
    return found


class TestProblems:
    def test_an_incomplete_pool_is_named_with_both_numbers(self, cluster: Cluster) -> None:
        put(cluster, make_slice("s", "p", ["d0"], count=2))
        text = "pool gpu/p has 1 slice of generation 1, but spec.pool.resourceSliceCount is 2"
        assert text in problem_of(cluster, "s").what
        put(cluster, make_slice("t", "p", ["d1"], count=2))
        assert cluster.problems == []

    def test_a_duplicate_device_is_named_on_each_slice(self, cluster: Cluster) -> None:
        put(cluster, make_slice("s", "p", ["d0"], count=2))
        put(cluster, make_slice("t", "p", ["d0"], count=2))
        assert "duplicate device name d0 in slice t" in problem_of(cluster, "s").what
        assert "duplicate device name d0 in slice t" in problem_of(cluster, "t").what

    def test_duplicate_counter_sets_are_named(self, cluster: Cluster) -> None:
        counters = [{"name": "shared", "counters": {"slots": {"value": "1"}}}]
        put(cluster, make_slice("s", "p", count=2, sharedCounters=counters))
        put(cluster, make_slice("t", "p", count=2, sharedCounters=counters))
        assert "duplicate counter set name shared in slice t" in problem_of(cluster, "t").what
        assert "counter set" in problem_of(cluster, "t").advice

    @pytest.mark.parametrize(
        ("counter_set", "counter", "text"),
        [
            ("none", "slots", "counter set none of device d0 is not defined in the pool"),
            ("shared", "none", "counter none of device d0 is not defined in set shared"),
        ],
    )
    def test_missing_counters_are_named(self, cluster: Cluster, counter_set: str, counter: str, text: str) -> None:
        consumes = [{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}]
        put(cluster, make_slice("s", "p", [{"name": "d0", "consumesCounters": consumes}], count=2))
        put(
            cluster,
            make_slice("t", "p", count=2, sharedCounters=[{"name": "shared", "counters": {"slots": {"value": "1"}}}]),
        )
        assert text in problem_of(cluster, "s").what

    def test_a_broken_node_selector_is_named_with_its_field(self, cluster: Cluster) -> None:
        broken = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["x"]}]}]}
        put(cluster, make_slice("s", "p", ["d0"], nodeSelector=broken))
        assert problem_of(cluster, "s").what.startswith("spec.nodeSelector: nodeSelectorTerms[0]")

    def test_an_unreadable_object_counts_as_absent_until_it_can_be_read(self, cluster: Cluster) -> None:
        put(cluster, make_node("n"))
        put(cluster, make_slice("s", "p", ["d0"], nodeName="n"))
        spoil(cluster, "ResourceSlice", "s", "spec.devices[0].capacity: bad quantity")
        assert problem_of(cluster, "s").what == "cannot be read: spec.devices[0].capacity: bad quantity"
        view = cluster.inventory.view("n")
        assert view is not None and view.devices == ()
        put(cluster, make_slice("s", "p", ["d0"], nodeName="n"))
        assert cluster.problems == []

    def test_an_unreadable_claim_keeps_its_devices(self, cluster: Cluster) -> None:
        put(cluster, make_claim("c", 1, ["gpu/p/d0"]))
        assert not spoil(cluster, "ResourceClaim", "default/c", "status: not an object")
        assert set(cluster.ledger.in_use(("gpu", "p"))) == {"d0"}
        assert [problem.object for problem in cluster.problems] == [ObjectKey("ResourceClaim", "default/c")]

    def test_devices_of_a_claim_that_was_never_readable_are_in_use(self, cluster: Cluster) -> None:
        spoil(cluster, "ResourceClaim", "default/c", "too deep", holding("d0", "d1"))
        assert set(cluster.ledger.in_use(("gpu", "p"))) == {"d0", "d1"}
        assert cluster.ledger.get("default", "c") is None  # nothing is decided on it
        ours = make_claim("ours", 2, ["gpu/p/d0"])
        put(cluster, ours)
        assert [rival.metadata.key for rival in cluster.ledger.rivals(ours)] == ["default/c (unreadable)"]
        assert cluster.claim("default/c (unreadable)") is None
        drop(cluster, ours)
        assert spoil(cluster, "ResourceClaim", "default/c", "too deep", holding("d1"))
        assert set(cluster.ledger.in_use(("gpu", "p"))) == {"d1"}
        assert cluster.apply(Removed(ObjectKey("ResourceClaim", "default/c"))).requeue
        assert set(cluster.ledger.in_use(("gpu", "p"))) == set()

    def test_an_allocation_that_came_with_an_unreadable_version_is_in_use_beside_the_last_readable_one(
        self, cluster: Cluster
    ) -> None:
        readable = make_claim("c", 1, ["gpu/p/d0"])
        put(cluster, readable)
        spoil(cluster, "ResourceClaim", "default/c", "too deep", holding("d0", "d1"))
        assert set(cluster.ledger.in_use(("gpu", "p"))) == {"d0", "d1"}
        assert cluster.ledger.violations() == ()
        put(cluster, make_claim("c", 3, ["gpu/p/d1"]))
        assert set(cluster.ledger.in_use(("gpu", "p"))) == {"d1"}
        assert cluster.ledger.violations() == ()

    def test_devices_that_cannot_be_told_any_more_stay_in_use_and_that_is_a_problem(self, cluster: Cluster) -> None:
        spoil(cluster, "ResourceClaim", "default/c", "too deep", holding("d0"))
        spoil(cluster, "ResourceClaim", "default/c", "too deep", PartialAllocation(uid="u", complete=False))
        assert set(cluster.ledger.in_use(("gpu", "p"))) == {"d0"}
        (problem,) = cluster.problems
        assert (
            problem.what
            == "cannot be read: too deep; its allocation cannot be read, so its devices may be allocated a second time"
        )


class TestTaintRules:
    @pytest.mark.parametrize(
        ("selector", "tainted"),
        [
            ({}, {"d0", "d1"}),
            ({"driver": "gpu"}, {"d0", "d1"}),
            ({"driver": "nic"}, set()),
            ({"pool": "p", "device": "d1"}, {"d1"}),
            ({"pool": "q"}, set()),
            (None, set()),
        ],
    )
    def test_a_rule_reaches_what_its_selector_says(self, cluster: Cluster, selector: Any, tainted: set[str]) -> None:
        put(cluster, make_node("n"))
        put(cluster, make_slice("s", "p", ["d0", "d1"], nodeName="n"))
        spec: dict[str, Any] = {"taint": {"key": "broken", "effect": "NoSchedule"}}
        if selector is not None:
            spec["deviceSelector"] = selector
        put(cluster, convert(DeviceTaintRule, {"metadata": {"name": "r"}, "spec": spec}))
        view = cluster.inventory.view("n")
        assert view is not None
        assert {device.id[2] for device in view.devices if device.model.traits.taints} == tainted

    def test_rules_do_nothing_while_the_gate_is_off(self) -> None:
        cluster = Cluster(FeatureGates(DRADeviceTaintRules=False))
        put(cluster, make_node("n"))
        put(cluster, rule("r"))
        put(cluster, make_slice("s", "p", ["d0"], nodeName="n"))
        view = cluster.inventory.view("n")
        assert view is not None and not view.devices[0].model.traits.taints

    @pytest.mark.parametrize("what", ["added", "removed"])
    def test_a_rule_costs_its_event_the_same_however_many_devices_the_pools_have(
        self, what: str, cluster: Cluster
    ) -> None:
        """On 15,000 nodes a rule for all devices kept the event loop for 8 seconds."""
        counted: list[int] = []
        for devices in (1, 64):
            for number in range(20):
                names = [f"d{index}" for index in range(devices)]
                put(cluster, make_node(f"n{number}"))
                put(cluster, make_slice(f"s{number}", f"n{number}", names, nodeName=f"n{number}"))
                assert cluster.inventory.view(f"n{number}") is not None
            if what == "removed":
                put(cluster, rule("r"))
                assert all(cluster.inventory.view(f"n{number}") for number in range(20))
            change = put if what == "added" else drop
            counted.append(calls(partial(change, cluster, rule("r"))))
            drop(cluster, rule("r"))
        assert counted[0] == counted[1] < 50 * 20


class TestSharing:
    def test_equal_devices_of_equal_nodes_are_one_object(self, cluster: Cluster) -> None:
        devices = [{"name": f"d{i}", "attributes": {"model": {"string": "x"}}} for i in range(2)]
        for name in ("n0", "n1"):
            put(cluster, make_node(name))
            put(cluster, make_slice(f"s-{name}", name, devices, nodeName=name))
        first, second = cluster.inventory.slices()
        assert first.spec.devices is second.spec.devices
        views = [cluster.inventory.view(name) for name in ("n0", "n1")]
        assert len({id(device.model) for view in views if view for device in view.devices}) == 1

    def test_amounts_that_a_selector_can_tell_apart_make_different_models(self, cluster: Cluster) -> None:
        put(cluster, make_node("n"))
        devices = [{"name": f"d{i}", "capacity": {"m": {"value": text}}} for i, text in enumerate(("1", "1000m"))]
        put(cluster, make_slice("s", "p", devices, nodeName="n"))
        view = cluster.inventory.view("n")
        assert view is not None
        assert view.devices[0].model is not view.devices[1].model

    def test_an_open_pool_is_built_once_for_all_nodes_that_match_alike(self, cluster: Cluster) -> None:
        for index in range(4):
            put(cluster, make_node(f"n{index}", zone=f"z{index % 2}"))
        by_zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z0"]}]}]}
        put(cluster, make_slice("all", "fabric", ["d0"], allNodes=True))
        put(cluster, make_slice("some", "zoned", ["d0"], nodeSelector=by_zone))
        pools = {id(pool) for i in range(4) if (view := cluster.inventory.view(f"n{i}")) for pool in view.pools}
        assert len(pools) == 2

    def test_what_follows_from_the_devices_alone_is_one_for_all_nodes_with_equal_devices(
        self, cluster: Cluster
    ) -> None:
        for name in ("n0", "n1"):
            put(cluster, make_node(name))
            put(cluster, make_slice(f"s-{name}", name, ["d0", "d1"], nodeName=name))
        views = cluster.inventory.view("n0"), cluster.inventory.view("n1")
        first, second = (view.pools[0] for view in views if view is not None)
        assert first.names is second.names
        assert first.models is second.models
        assert [device.id for device in first.devices] == [("gpu", "n0", "d0"), ("gpu", "n0", "d1")]

    def test_a_node_that_sees_the_whole_pool_does_not_look_at_the_slices_of_others(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[object] = []
        monkeypatch.setattr("dra_extender.devices.publishedpool.Generations", looks.append)
        put(cluster, make_node("n"))
        put(cluster, make_slice("s", "p", ["d"], nodeName="n"))
        view = cluster.inventory.view("n")
        assert view is not None
        assert view.devices
        assert looks == []

    def test_an_event_on_one_node_leaves_the_views_of_others_alone(self, cluster: Cluster) -> None:
        for name in ("n0", "n1"):
            put(cluster, make_node(name))
            put(cluster, make_slice(f"s-{name}", name, ["d0"], nodeName=name))
        before = cluster.inventory.view("n0"), cluster.inventory.view("n1")
        put(cluster, make_slice("s-n0", "n0", ["d1"], nodeName="n0"))
        assert cluster.inventory.view("n0") is not before[0]
        assert cluster.inventory.view("n1") is before[1]

    def test_after_a_look_around_no_decision_has_to_look(self, cluster: Cluster) -> None:
        for name in ("n0", "n1", "n2"):
            put(cluster, make_node(name))
            put(cluster, make_slice(f"s-{name}", name, ["d0"], nodeName=name))
        nodes = cluster.inventory.nodes
        looking = nodes.refresh_all()
        next(looking)
        drop(cluster, make_node("n1"))
        assert sum(looking) > 0
        assert all(map(nodes.is_current, nodes.seen.values()))
