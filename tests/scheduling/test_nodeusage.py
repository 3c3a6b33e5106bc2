"""What nodes have left counts pods that are there and pods that are expected."""

from __future__ import annotations

from typing import Any

import msgspec

from dra_extender.api.core import Node, Pod, PodStatus
from dra_extender.api.decoding import convert
from dra_extender.scheduling.noderules import ResourcesInUse, Wants
from tests.support.simulation.objects import make_node

NODE = make_node("n1", cpu="8", memory="8Gi", pods="3")


def pod(name: str, cpu: str = "3", **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return convert(Pod, {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container], **spec}})


def fits(occupancy: ResourcesInUse, wanting: Pod, node: Node = NODE) -> bool:
    return not occupancy.keeps_away(Wants(wanting), node)


def test_bound_and_expected_pods_count_until_they_are_gone() -> None:
    occupancy = ResourcesInUse()
    occupancy.put(pod("a", nodeName="n1"))
    occupancy.expect(pod("b"), "n1")
    assert not fits(occupancy, pod("c"))
    assert fits(occupancy, pod("c", "2"))
    occupancy.give_up("b")
    assert fits(occupancy, pod("c"))
    occupancy.drop("a")
    assert fits(occupancy, pod("c", "8"))


def test_a_pod_does_not_count_against_itself() -> None:
    occupancy = ResourcesInUse()
    occupancy.expect(pod("b", "8"), "n1")
    assert fits(occupancy, pod("b", "8"))


def test_a_pod_that_is_bound_where_it_was_expected_stays() -> None:
    occupancy = ResourcesInUse()
    occupancy.expect(pod("a", "8"), "n1")
    occupancy.put(pod("a", "8"))
    assert not fits(occupancy, pod("c"))
    occupancy.put(pod("a", "8", nodeName="n1"))
    occupancy.give_up("a")
    assert not fits(occupancy, pod("c"))
    finished = PodStatus(phase="Failed")
    occupancy.put(msgspec.structs.replace(pod("a", "8", nodeName="n1"), status=finished))
    assert fits(occupancy, pod("c"))


def test_a_pod_that_is_bound_elsewhere_counts_there() -> None:
    occupancy = ResourcesInUse()
    occupancy.expect(pod("a", "8"), "n1")
    occupancy.put(pod("a", "8", nodeName="n2"))
    assert fits(occupancy, pod("c"))
    assert not fits(occupancy, pod("c"), make_node("n2", cpu="8", pods="9"))


def test_nodes_that_kube_scheduler_would_rather_not_take_are_left_out() -> None:
    taint = {"key": "old", "effect": "PreferNoSchedule"}
    body = {"metadata": {"name": "n1"}, "spec": {"taints": [taint]}, "status": {"allocatable": {"cpu": "8"}}}
    node = convert(Node, body)
    assert not fits(ResourcesInUse(), pod("a"), node)
    assert fits(ResourcesInUse(), pod("a", tolerations=[{"operator": "Exists"}]), node)
