"""The devices of small clusters: each device once, with its state and its holders."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Device, ResourceClaim
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.readonly import ReadOnlyLedger
from dra_extender.insight.devicereport import report
from dra_extender.insight.devicereport.listing import DeviceQuery, counting_devices, reporting
from dra_extender.insight.devicereport.report import Amount, CountedDevice, Holding, sums
from dra_extender.limits import HOLDERS_OF_DEVICE
from dra_extender.scheduling.turns import run_at_once
from tests.support.diagnosis.hardware import RESOURCE, gpus, node, partitions, pool, shares
from tests.support.diagnosis.heldcluster import GATES, GPU, MIG, NIC, SHARE, claim, scene, shared_by
from tests.support.diagnosis.scene import Scene
from tests.support.questions import device_report
from tests.support.simulation.objects import make_class, make_node, make_slice
from tests.support.simulation.world import World

Json = dict[str, Any]


def counted(asked: DeviceQuery, *more: Json, gates: str = GATES) -> dict[str, CountedDevice]:
    found = device_report(scene(*more, gates=gates).view(), asked).devices
    return {f"{device.pool}/{device.name}": device for device in found}


@pytest.mark.parametrize(
    ("device", "state"),
    [
        ("a1-gpu/gpu-0", "used"),
        ("a1-gpu/gpu-2", "free"),
        ("t1-gpu/gpu-0", "tainted"),
        ("s1-share/share-0", "shared"),
        ("s1-share/share-1", "free"),
        ("m1-mig/half-0", "used"),
        ("m1-mig/half-1", "free"),
        ("m1-mig/whole-0", "blocked"),
        ("s1-late/late-0", "unusable"),
    ],
)
def test_each_device_has_its_state(device: str, state: str) -> None:
    assert counted(DeviceQuery())[device].state == state


def test_the_states_add_up_and_no_device_is_counted_twice() -> None:
    found = device_report(scene().view())
    totals = found.totals
    names = {(device.driver, device.pool, device.name) for device in found.devices}
    assert totals.devices == len(found.devices) == len(names)
    assert totals.devices == (
        totals.free + totals.shared + totals.used + totals.blocked + totals.tainted + totals.unusable
    )


def test_a_holder_is_told_with_its_pods_and_what_it_consumes() -> None:
    found = counted(DeviceQuery())
    assert found["a1-gpu/gpu-0"].holders == (Holding("default/train", ("train",)),)
    (share,) = found["s1-share/share-0"].holders
    assert (share.claim, share.consumed) == ("default/infer", {"memory": "30Gi"})
    assert found["s1-share/share-0"].capacity == (Amount("memory", "30Gi", "40Gi", 75.0),)
    assert found["s1-share/share-0"].fill == 75.0


def test_counters_are_told_with_what_is_taken_of_them() -> None:
    assert counted(DeviceQuery())["m1-mig/quarter-0"].counters == (Amount("card/memory", "40Gi", "80Gi", 50.0),)


@pytest.mark.parametrize(("device", "fill"), [("whole-0", 100.0), ("half-0", 50.0), ("quarter-2", 25.0)])
def test_the_partitions_of_a_gpu_count_as_one_gpu_that_is_as_full_as_its_counters(device: str, fill: float) -> None:
    view = Scene([node("m2"), *partitions("m2"), claim("some", MIG, "m2", device)]).view()
    assert device_report(view).totals.fill == fill


def test_a_claim_that_may_have_any_partition_fills_the_gpu() -> None:
    view = Scene([node("m2"), *partitions("m2"), claim("some", MIG, "m2", "*")]).view()
    assert device_report(view).totals.fill == 100.0


def test_the_model_is_published_under_a_plain_or_qualified_name() -> None:
    devices = [
        {"name": "plain", "attributes": {"model": {"string": "A100"}}},
        {"name": "product", "attributes": {"x.example.com/productName": {"string": "H100"}, "model": {"int": 7}}},
        {"name": "none", "attributes": {"model": {"int": 7}}},
    ]
    found = device_report(Scene([node("n"), pool("n", "x.example.com", devices)]).view()).devices
    assert {device.name: device.model for device in found} == {"plain": "A100", "product": "H100", "none": ""}


def test_taints_and_classes_are_those_that_decisions_see() -> None:
    found = counted(DeviceQuery())
    assert found["t1-gpu/gpu-0"].taints == ("maintenance=firmware:NoSchedule",)
    assert found["t1-gpu/gpu-0"].classes == ("any", "gpu")
    assert found["h1-nic/nic-0"].classes == ("any",)


@pytest.mark.parametrize(
    ("gates", "device", "state"),
    [
        ("DRADeviceTaints=false,DRADeviceTaintRules=false", "t1-gpu/gpu-0", "free"),
        ("DRAPartitionableDevices=false", "m1-mig/whole-0", "unusable"),
    ],
)
def test_a_feature_that_is_off_changes_the_state(gates: str, device: str, state: str) -> None:
    assert counted(DeviceQuery(), gates=gates)[device].state == state


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (DeviceQuery(nodes=frozenset({"h1"}), drivers=frozenset({NIC})), ["h1-nic/nic-0", "h1-nic/nic-1"]),
        (
            DeviceQuery(classes=frozenset({"gpu"}), states=frozenset({"used"})),
            ["a1-gpu/gpu-0", "a1-gpu/gpu-1", "a2-gpu/gpu-0"],
        ),
        (DeviceQuery(namespaces=frozenset({"team"})), ["a2-gpu/gpu-0"]),
        (DeviceQuery(states=frozenset({"shared"})), ["s1-share/share-0"]),
        (DeviceQuery(nodes=frozenset({"s1"}), states=frozenset({"unusable"})), ["s1-late/late-0"]),
        (DeviceQuery(nodes=frozenset({"nowhere"})), []),
    ],
)
def test_only_what_is_asked_about_is_told(asked: DeviceQuery, names: list[str]) -> None:
    assert list(counted(asked)) == names


def everywhere(name: str) -> Json:
    spec = {
        "driver": "net.example.com", "allNodes": True, "devices": [{"name": "d"}],
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
    }  # fmt: skip
    return {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def test_a_device_that_all_nodes_see_is_counted_once_and_belongs_to_none() -> None:
    assert counted(DeviceQuery(drivers=frozenset({"net.example.com"})), everywhere("net"))["net/d"].node == ""
    seen = counted(DeviceQuery(nodes=frozenset({"a1"}), drivers=frozenset({"net.example.com"})), everywhere("net"))
    assert list(seen) == ["net/d"]


def test_a_claim_that_cannot_be_read_and_may_have_any_device_of_a_pool_has_them_all() -> None:
    found = counted(DeviceQuery(nodes=frozenset({"a1"})), claim("any", GPU, "a1", "*"))
    assert {device.state for device in found.values()} == {"used"}


def test_pages_follow_one_another_and_together_are_everything() -> None:
    view = scene().view()
    whole = device_report(view).devices
    found: list[CountedDevice] = []
    after, pages = "", 0
    while True:
        page = finish(reporting(view, limit=2, after=after))
        found, after, pages = found + list(page.devices), page.next, pages + 1
        if not after:
            break
    assert tuple(found) == whole
    assert pages == 6


def finish(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_many_nodes_are_reported_one_slice_per_turn() -> None:
    many = [item for number in range(300) for item in (node(f"n{number}"), gpus(f"n{number}", "A", 8, "1Gi", "1.0.0"))]
    steps = reporting(Scene(many).view())
    assert sum(1 for _ in steps) == 300


@pytest.mark.parametrize("devices", [0, 5], ids=["a slice goes", "a slice has one device more"])
async def test_a_pool_that_changes_while_it_is_counted_is_counted_as_it_was(world: World, devices: int) -> None:
    """A deleted slice raised KeyError, so the page and metrics stayed as they were."""
    slices = [make_slice("", [f"d{part}"], pool="net", count=3, part=str(part)) for part in range(3)]
    service = world.service(make_class(), make_node("n"), *slices)
    steps = reporting(service.extender.view)
    next(steps)
    if devices:
        world.api.put(make_slice("", [f"e{number}" for number in range(devices)], pool="net", count=3, part="2"))
    else:
        world.api.drop(slices[2])
    await world.settle()
    assert [device.name for device in finish(steps).devices] == ["d0", "d1", "d2"]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("nodes", {"a1": (8, 6, 2, 1), "m1": (7, 5, 1, 1)}),
        ("drivers", {SHARE: (2, 1, 0, 1), NIC: (2, 2, 0, 0)}),
        ("classes", {"gpu": (30, 23, 3, 2)}),
        ("namespaces", {"team": (1, 0, 1, 1), "default": (4, 0, 3, 3)}),
    ],
)
def test_devices_are_added_up(by: Any, expected: dict[str, tuple[int, int, int, int]]) -> None:
    found = {
        item.name: (item.totals.devices, item.totals.free, item.totals.used, item.claims)
        for item in sums(device_report(scene().view()).devices, by)
    }
    assert {name: found[name] for name in expected} == expected


def test_what_belongs_to_no_node_or_class_has_no_name() -> None:
    bare = Scene([node("n"), shares("n", 1), *partitions("n"), everywhere("net"), pool("n", "x.example.com", [])])
    found = device_report(bare.view()).devices
    assert {item.name for item in sums(found, "nodes")} == {"", "n"}
    assert {item.name for item in sums(found, "classes")} == {""}
    assert sums(found, "namespaces") == ()


def test_so_many_holders_of_a_device_are_listed_and_the_rest_is_counted() -> None:
    (device,) = device_report(shared_by(HOLDERS_OF_DEVICE + 44, 1).view()).devices
    assert [holder.claim for holder in device.holders] == [f"default/c0-{number:04}" for number in range(256)]
    assert device.more_holders == 44
    assert device.capacity == (Amount("memory", "44850Mi", "40Gi", 109.5),)
    (device,) = device_report(shared_by(HOLDERS_OF_DEVICE, 1).view()).devices
    assert (len(device.holders), device.more_holders) == (256, 0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The claims of holders that were made, and capacities of shares that were added."""
    found: list[str] = []
    holding, add = report._holding, Quantity.__add__

    def count_holding(ledger: ReadOnlyLedger, uid: str) -> Holding:
        found.append(uid)
        return holding(ledger, uid)

    def count_sum(one: Quantity, other: Quantity) -> Quantity:
        found.append(str(one))
        return add(one, other)

    monkeypatch.setattr(report, "_holding", count_holding)
    monkeypatch.setattr(Quantity, "__add__", count_sum)
    return found


def test_a_step_of_a_report_does_not_grow_with_the_shares_of_the_devices(made: list[str]) -> None:
    taken = [0, *(len(made) for _ in reporting(shared_by(300, 4).view())), len(made)]
    assert taken[-1] == 4 * HOLDERS_OF_DEVICE
    assert max(after - before for before, after in pairwise(taken)) == HOLDERS_OF_DEVICE


def test_many_devices_with_few_holders_each_are_not_listed_in_one_step(made: list[str]) -> None:
    taken = [0, *(len(made) for _ in reporting(shared_by(100, 8).view())), len(made)]
    assert taken[-1] == 800
    assert max(after - before for before, after in pairwise(taken)) == 300


def test_metrics_list_no_holders_and_add_no_shares(made: list[str]) -> None:
    counts = run_at_once(counting_devices(shared_by(300, 2).view()))
    assert made == []
    assert counts.free[SHARE, "memory"] == 0
    assert counts.drivers == {(SHARE, "shared"): 2}


@pytest.mark.parametrize(("changes", "read"), [(False, ["d0"]), (True, ["d0", "d0", "d7"])])
def test_the_devices_in_use_are_read_once_for_all_slices_of_a_pool_and_after_a_change(
    monkeypatch: pytest.MonkeyPatch, changes: bool, read: list[str]
) -> None:
    devices = [
        {"name": f"d{index}", "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]}
        for index in range(8)
    ]
    card = [{"name": "card", "counters": {"memory": {"value": "8"}}}]
    slices = [pool("m2", "x.example.com", [each], part=f"-{each['name']}", count=9) for each in devices]
    slices.append(pool("m2", "x.example.com", (), part="-counters", count=9, sharedCounters=card))
    view, reads, device_of = Scene([node("m2"), *slices]).view(), list[str](), PublishedPool.device

    def take(name: str, device: str) -> None:
        assert isinstance(view.cluster, Cluster)
        view.cluster.apply(Applied(convert(ResourceClaim, claim(name, "x.example.com", "m2", device))))

    def reading(pool: PublishedPool, name: str) -> Device | None:
        reads.append(name)
        return device_of(pool, name)

    monkeypatch.setattr(PublishedPool, "device", reading)
    take("some", "d0")
    steps = counting_devices(view)
    for _ in range(4):
        next(steps)
    if changes:
        take("other", "d7")
    run_at_once(steps)
    assert reads == read
