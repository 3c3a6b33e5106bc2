"""How many more pods fit: counted by deciding, and never more than would fit."""

from __future__ import annotations

from itertools import count as count_up
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_extender.allocation.decisions import Decisions
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.headroom import GangShape, Headroom, HeadroomGroup, class_request, measuring
from dra_extender.insight.requests import UnknownObjectError
from tests.support.diagnosis.hardware import RESOURCE, device_class, gpus, node, partitions, pool, shares
from tests.support.diagnosis.heldcluster import GATES, GPU, claim
from tests.support.diagnosis.scene import Scene
from tests.support.examples import examples
from tests.support.questions import headroom

Json = dict[str, Any]
GPUS = device_class("gpu", f'device.driver == "{GPU}"')
ANY = device_class("any", "true")


def counted(documents: list[Json], name: str = "gpu", count: int = 1, **more: Any) -> Headroom:
    view = Scene([GPUS, ANY, *documents], gates=GATES).view()
    assert isinstance(view.cluster, Cluster)
    ids = (f"00000000-0000-4000-8000-{number:012}" for number in count_up())
    view = msgspec.structs.replace(view, decisions=Decisions(view.cluster, share_ids=lambda: next(ids)))
    return headroom(view, "pods", class_request(view, name, count)[1], **more)


def machine(name: str, devices: int, **spec: Any) -> list[Json]:
    return [node(name, **spec), gpus(name, "A", devices, "1Gi", "1.0.0")]


NET = {
    "apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": "net"},
    "spec": {
        "driver": GPU, "allNodes": True, "devices": [{"name": "d0"}, {"name": "d1"}, {"name": "d2"}],
        "pool": {"name": "net", "generation": 1, "resourceSliceCount": 1},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("documents", "name", "count", "fits", "nodes"),
    [
        ([*machine("a", 8), *machine("b", 8)], "gpu", 1, 16, 2),
        ([*machine("a", 8), *machine("b", 8)], "gpu", 3, 4, 2),
        ([*machine("a", 8), *machine("b", 2)], "gpu", 3, 2, 1),
        ([*machine("a", 8), *machine("b", 8, unschedulable=True)], "gpu", 1, 8, 1),
        ([*machine("a", 2), claim("x", GPU, "a", "gpu-0")], "gpu", 1, 1, 1),
        ([*machine("a", 2)], "gpu", 3, 0, 0),
        ([node("a"), *partitions("a")], "any", 1, 1, 1),  # the whole card is the first that fits
        ([node("a"), shares("a", 2)], "any", 1, 8, 1),  # 10Gi of 40Gi each
        ([node("a"), node("b"), NET], "gpu", 1, 3, 1),
        ([node("a"), node("b"), NET], "gpu", 2, 1, 1),
        ([*machine("a", 1), *machine("b", 1), NET], "gpu", 1, 5, 2),
        ([node("a"), pool("a", GPU, [{"name": "d"}], count=2)], "gpu", 1, 0, 0),
    ],
)
def test_what_fits_is_counted(documents: list[Json], name: str, count: int, fits: int, nodes: int) -> None:
    found = counted(documents, name, count)
    assert (found.fits, found.nodes, found.complete) == (fits, nodes, True)


def test_equal_nodes_are_decided_once() -> None:
    many = [item for number in range(300) for item in machine(f"n{number:03}", 8)]
    found = counted([*many, claim("x", GPU, "n007", "gpu-0")])
    assert (found.fits, found.nodes, found.decisions) == (300 * 8 - 1, 300, 9 + 8)
    assert found.groups == (
        HeadroomGroup(8, 299, ("n000", "n001", "n002", "n003", "n004")),
        HeadroomGroup(7, 1, ("n007",)),
    )  # fmt: skip


def test_when_no_more_may_be_decided_it_is_at_least_so_many() -> None:
    found = counted(machine("a", 8), most=3)
    assert (found.fits, found.complete, found.decisions) == (3, False, 3)
    assert next(found.lines()) == "Pods: at least 3 more fit, on 1 of 1 node."


def test_every_decision_is_a_step_of_its_own() -> None:
    view = Scene([GPUS, *machine("a", 8)], gates=GATES).view()
    assert sum(1 for _ in measuring(view, *class_request(view, "gpu"))) == 8 + 1


def test_a_question_about_no_class_is_a_problem_and_changes_nothing() -> None:
    view = Scene([GPUS, *machine("a", 2)], gates=GATES).view()
    with pytest.raises(UnknownObjectError, match="DeviceClass gqu not found"):
        class_request(view, "gqu")
    assert headroom(view, *class_request(view, "gpu")) == headroom(view, *class_request(view, "gpu"))
    assert not view.ledger.holdings((GPU, "a-gpu"))


@settings(max_examples=examples(40))
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5), count=st.integers(1, 4), taken=st.integers(0, 3))
def test_whole_devices_of_single_nodes_are_divided_without_a_rest(sizes: list[int], count: int, taken: int) -> None:
    """Brute force is a division here: devices of one kind, each of one node."""
    documents = [item for number, size in enumerate(sizes) for item in machine(f"n{number}", size)]
    held = [f"gpu-{index}" for index in range(min(taken, sizes[0]))]
    documents += [claim("x", GPU, "n0", *held)] if held else []
    left = [sizes[0] - len(held), *sizes[1:]]
    assert counted(documents, "gpu", count).fits == sum(size // count for size in left)


@pytest.mark.parametrize(
    ("gang", "gangs", "text"),
    [
        (GangShape(2), 5, "5 more gangs of 2."),
        (GangShape(4), 2, "2 more gangs of 4."),
        (GangShape(11), 0, "0 more gangs of 11."),
        (GangShape(3, "rack"), 2, "2 more gangs of 3, each on nodes with one value of label rack."),
        (GangShape(5, "rack"), 1, "1 more gangs of 5, each on nodes with one value of label rack."),
        (GangShape(1, "no-such-label"), 0, "0 more gangs of 1, each on nodes with one value of label no-such-label."),
    ],
)
def test_gangs_are_counted_within_one_value_of_the_label_that_they_need(gang: GangShape, gangs: int, text: str) -> None:
    racks = [("a", 4, "left"), ("b", 2, "left"), ("c", 2, "right"), ("d", 2, "")]
    documents = [
        item for name, devices, rack in racks for item in machine(name, devices, labels={"rack": rack} if rack else {})
    ]
    found = counted(documents, gang=gang)
    assert (found.fits, found.gangs) == (10, gangs)
    assert f"Together: {text}" in list(found.lines())
