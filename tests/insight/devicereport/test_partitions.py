"""How many partitions of each type can still be allocated, as Kubernetes 1.37 counts them for its pool status."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.insight.devicereport.listing import DeviceQuery
from dra_extender.insight.devicereport.report import PartitionType, partition_lines
from dra_extender.insight.headroom import class_request
from tests.support.diagnosis.hardware import device_class, gpus, node, partitions
from tests.support.diagnosis.heldcluster import MIG, claim
from tests.support.diagnosis.scene import Scene
from tests.support.questions import device_report, headroom

Json = dict[str, Any]
GATE = "DRAPartitionableDevicesType=true"
PROFILE = f"{MIG}/profile"
CLASSES = [device_class("mig", f'device.driver == "{MIG}"'), device_class("gpu", 'device.driver == "gpu.example.com"')]


def card(host: str, attribute: str = PROFILE) -> list[Json]:
    """A card that is offered whole, as two halves and as four quarters."""
    devices, counters = partitions(host)
    devices["spec"]["partitionTypeAttribute"] = attribute
    return [node(host), devices, counters]


def scene(*documents: Json, gates: str = GATE, release: Any = "1.37") -> Scene:
    return Scene([*CLASSES, *documents], gates=gates, release=release)


def counted(*documents: Json, **more: Any) -> dict[str, str]:
    found = device_report(scene(*documents, **more).view()).partitions
    return {each.type: each.problem or f"{each.allocatable}/{each.total}" for each in found}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((), {"half": "2/2", "quarter": "4/4", "whole": "1/1"}),
        (("half-0",), {"half": "1/2", "quarter": "2/4", "whole": "0/1"}),
        (("quarter-0",), {"half": "1/2", "quarter": "3/4", "whole": "0/1"}),
        (("half-0", "quarter-1"), {"half": "0/2", "quarter": "1/4", "whole": "0/1"}),
        (("whole-0",), {"half": "0/2", "quarter": "0/4", "whole": "0/1"}),
        (("*",), {"half": "0/2", "quarter": "0/4", "whole": "0/1"}),
        (("whole-0", "half-0"), {"half": "0/2", "quarter": "0/4", "whole": "0/1"}),
    ],
    ids=["free", "half", "quarter", "half and quarter", "whole", "unknown devices", "overdrawn"],
)
def test_each_type_is_counted_on_what_devices_in_use_leave(held: tuple[str, ...], expected: dict[str, str]) -> None:
    assert counted(*card("m1"), *([claim("some", MIG, "m1", *held)] if held else ())) == expected


def test_an_attribute_may_be_published_without_the_domain_of_the_driver_or_with_it() -> None:
    documents = card("m1")
    for device in documents[1]["spec"]["devices"]:
        device["attributes"][PROFILE] = {"string": "explicit"}
    found = counted(*documents)
    assert set(found) == {"explicit"}
    assert found["explicit"] == "devices of type explicit consume different counters"


def test_a_device_that_consumes_no_counters_is_no_partition() -> None:
    documents = card("m1")
    documents[1]["spec"]["devices"].append({"name": "extra"})
    assert counted(*documents) == {"half": "2/2", "quarter": "4/4", "whole": "1/1"}


@pytest.mark.parametrize("attribute", ["example.com/profile", "mig.example.com/missing"])
def test_a_partition_without_the_attribute_is_named(attribute: str) -> None:
    assert counted(*card("m1", attribute)) == {"": f"device whole-0 has no string attribute {attribute}"}


def test_a_type_that_is_no_string_is_named() -> None:
    documents = card("m1")
    documents[1]["spec"]["devices"][2]["attributes"]["profile"] = {"int": 3}
    assert counted(*documents, *card("m2"))[""] == f"device half-1 has no string attribute {PROFILE}"


@pytest.mark.parametrize("gates", ["", f"{GATE},DRAPartitionableDevices=false"], ids=["gate off", "counters off"])
def test_types_are_counted_only_with_the_gate(gates: str) -> None:
    assert counted(*card("m1"), gates=gates) == {}


def test_a_pool_of_which_nothing_can_be_allocated_is_not_counted() -> None:
    assert counted(*card("m1")[:2]) == {}


def test_a_report_counts_the_pools_whose_devices_it_lists() -> None:
    view = scene(*card("m1"), *card("m2"), claim("some", MIG, "m2", "whole-0")).view()
    for nodes, pools in ((("m1",), {"m1-mig"}), (("m1", "m2"), {"m1-mig", "m2-mig"})):
        assert {each.pool for each in device_report(view, DeviceQuery(nodes=frozenset(nodes))).partitions} == pools
    used = DeviceQuery(states=frozenset(("used",)))
    assert {each.pool for each in device_report(view, used).partitions} == {"m2-mig"}


def test_people_read_the_sum_over_the_pools_and_each_problem() -> None:
    documents = [*card("m1"), *card("m2"), *card("m3", "x/y"), claim("some", MIG, "m2", "quarter-0")]
    assert list(partition_lines(device_report(scene(*documents).view()).partitions)) == [
        f"Partitions with {PROFILE} half: 3 of 4 still allocatable.",
        f"Partitions with {PROFILE} quarter: 7 of 8 still allocatable.",
        f"Partitions with {PROFILE} whole: 1 of 2 still allocatable.",
        f"Partitions of pool {MIG}/m3-mig: not counted, because device whole-0 has no string attribute x/y.",
    ]


@pytest.mark.parametrize(("name", "types"), [("mig", ["half", "quarter", "whole"]), ("gpu", [])])
def test_headroom_counts_the_types_of_the_pools_that_the_class_selects(name: str, types: list[str]) -> None:
    view = scene(*card("m1"), node("a1"), gpus("a1", "A", 1, "1Gi", "1.0.0")).view()
    found = headroom(view, "pods", class_request(view, name)[1])
    assert [each.type for each in found.partitions] == types
    assert [line for line in found.lines() if line.startswith("Partitions")] == list(partition_lines(found.partitions))
    expected = PartitionType(driver=MIG, attribute=PROFILE, type="half", total=2, allocatable=2)
    assert not types or found.partitions[0] == expected
