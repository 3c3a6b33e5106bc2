"""What nodes have left counts pods that are there and pods that are expected."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.core import Node, Pod, PodStatus
from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.limits import AMOUNTS_OF_POD
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.noderules import ResourcesInUse, Wants, counted, obstacles_together
from tests.support.counting import calls, counted_turns, lines, memory
from tests.support.diagnosis.scene import view_of
from tests.support.simulation.objects import make_node

NODE = make_node("n1", cpu="8", memory="8Gi", pods="3")


def pod(name: str, cpu: str = "3", **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return convert(Pod, {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container], **spec}})


def listening(name: str, ports: Iterable[int], cpu: str = "0", **spec: Any) -> Pod:
    container = {"ports": [{"hostPort": port} for port in ports], "resources": {"requests": {"cpu": cpu}}}
    return pod(name, containers=[container], **spec)


def fits(occupancy: ResourcesInUse, wanting: Pod, node: Node = NODE) -> bool:
    return not occupancy.keeps_away(Wants(wanting), node)


def test_bound_and_expected_pods_count_until_they_are_gone() -> None:
    occupancy = ResourcesInUse()
    occupancy.put(pod("a", nodeName="n1"))
    occupancy.assume(pod("b"), "n1")
    assert not fits(occupancy, pod("c"))
    assert fits(occupancy, pod("c", "2"))
    occupancy.forget("b")
    assert fits(occupancy, pod("c"))
    occupancy.drop("a")
    assert fits(occupancy, pod("c", "8"))


def test_a_pod_that_is_resized_counts_with_what_it_asks_for_now() -> None:
    occupancy = ResourcesInUse()
    for cpu, resized, left in (("3", False, "5"), ("3", False, "5"), ("4", True, "4"), ("1", True, "7")):
        assert occupancy.is_resized(pod("a", cpu, nodeName="n1")) is resized
        occupancy.put(pod("a", cpu, nodeName="n1"))
        assert fits(occupancy, pod("c", left))
        assert not fits(occupancy, pod("c", f"{left}001m"))


def test_a_pod_does_not_count_against_itself() -> None:
    occupancy = ResourcesInUse()
    occupancy.assume(pod("b", "8"), "n1")
    assert fits(occupancy, pod("b", "8"))


def test_pods_that_are_left_out_use_nothing() -> None:
    ports = [{"hostPort": 80}], [{"hostPort": 80, "hostIP": "10.0.0.1"}]
    pods = [pod(f"p{n}", containers=[{"ports": each}], nodeName="n1") for n, each in enumerate(ports)]
    everything = [*pods, pod("a", nodeName="n1"), pod("b", "2", nodeName="n1")]
    occupancy = ResourcesInUse(everything)
    for count in range(len(everything) + 1):
        for chosen in combinations(everything, count):
            left_out = {each.metadata.uid for each in chosen}
            amounts, number, taken = occupancy.used("n1", left_out)
            alone = ResourcesInUse(each for each in everything if each not in chosen).used("n1")
            assert ({name: each for name, each in amounts.items() if each}, number, taken) == alone


def test_what_a_pod_with_many_amounts_uses_is_added_up_once() -> None:
    """Of pods that come and go, and are left out: a user can bind pods with 20,000 amounts to a node."""
    requests = {f"example.com/{number}": "0" for number in range(2_000)}
    many = [pod(f"p{n}", containers=[{"resources": {"requests": requests}}], nodeName="n1") for n in range(10)]
    occupancy = ResourcesInUse(many)
    assert calls(lambda: occupancy.used("n1")) < 500
    occupancy.put(pod("more", nodeName="n1"))
    assert calls(lambda: occupancy.used("n1")) < 500
    assert calls(lambda: occupancy.used("n1", [many[0].metadata.uid])) < 500


def test_the_ports_of_a_pod_with_many_are_read_once() -> None:
    """Of pods that come and go, and are left out: a user can bind pods with 30,000 host ports to a node."""
    many = [listening(f"p{n}", range(1 + 200 * n, 201 + 200 * n), nodeName="n1") for n in range(10)]
    occupancy = ResourcesInUse(many)
    assert lines(lambda: occupancy.used("n1"), 500, "app") > 0
    occupancy.put(pod("more", nodeName="n1"))
    assert lines(lambda: occupancy.used("n1"), 500, "app") > 0
    assert lines(lambda: occupancy.used("n1", [many[0].metadata.uid]), 500, "app") > 0


def test_ports_that_pods_have_taken_are_not_copied_for_pods_that_come_together() -> None:
    occupancy = ResourcesInUse([listening("p", range(1, 20_001), nodeName="n1")])
    together = [Wants(pod(name, "1")) for name in "ab"]
    assert occupancy.suits(NODE, together, ())
    assert memory(lambda: occupancy.suits(NODE, together, ())) < 100_000


PODS = st.lists(st.tuples(st.sampled_from("1234"), st.lists(st.integers(1, 4), max_size=2)), max_size=4)


@given(bound=PODS, there=PODS, coming=PODS)
def test_pods_fit_a_node_together_if_they_fit_it_one_after_the_other(bound: Any, there: Any, coming: Any) -> None:
    def made(prefix: str, listed: Any) -> list[Pod]:
        return [listening(f"{prefix}{n}", ports, cpu) for n, (cpu, ports) in enumerate(listed)]

    occupancy, pods = ResourcesInUse(), made("coming", coming)
    for each in made("bound", bound):
        occupancy.assume(each, "n1")
    found = obstacles_together(map(Wants, pods), NODE, occupancy.used("n1"), map(counted, made("there", there)))
    fit = not list(found)
    for each in made("there", there):
        occupancy.assume(each, "n1")
    for each in pods:
        assert fits(occupancy, each) or not fit
        if not fits(occupancy, each):
            return
        occupancy.assume(each, "n1")
    assert fit


def test_what_large_pods_use_is_added_up_in_turns() -> None:
    requests = {f"example.com/{number}": "0" for number in range(2_000)}
    many = [pod(f"p{n}", containers=[{"resources": {"requests": requests}}], nodeName="n1") for n in range(10)]
    few = counted_turns(diagnosing(view_of([NODE, *many[:1]], FeatureGates(), SchedulingConfig()), pod("c", "9")))
    found = counted_turns(diagnosing(view_of([NODE, *many], FeatureGates(), SchedulingConfig()), pod("c", "9")))
    assert found.result.state == "refused"
    assert found.turns >= few.turns + 1


def test_a_pod_uses_so_many_resources_of_its_node_and_no_more() -> None:
    requests = {f"example.com/{number:05}": "1" for number in range(AMOUNTS_OF_POD)} | {
        "hugepages-2Mi": "2",
        "cpu": "7",
    }
    occupancy = ResourcesInUse([pod("a", containers=[{"resources": {"requests": requests}}], nodeName="n1")])
    amounts = occupancy.used("n1")[0]
    assert list(amounts)[:3] == ["cpu", "hugepages-2Mi", "example.com/00000"]
    assert len(amounts) == AMOUNTS_OF_POD


def test_a_pod_that_is_bound_where_it_was_expected_stays() -> None:
    occupancy = ResourcesInUse()
    occupancy.assume(pod("a", "8"), "n1")
    occupancy.put(pod("a", "8"))
    assert not fits(occupancy, pod("c"))
    occupancy.put(pod("a", "8", nodeName="n1"))
    occupancy.forget("a")
    assert not fits(occupancy, pod("c"))
    finished = PodStatus(phase="Failed")
    occupancy.put(msgspec.structs.replace(pod("a", "8", nodeName="n1"), status=finished))
    assert fits(occupancy, pod("c"))


def test_a_pod_that_is_bound_elsewhere_counts_there() -> None:
    occupancy = ResourcesInUse()
    occupancy.assume(pod("a", "8"), "n1")
    occupancy.put(pod("a", "8", nodeName="n2"))
    assert fits(occupancy, pod("c"))
    assert not fits(occupancy, pod("c"), make_node("n2", cpu="8", pods="9"))


def test_nodes_that_kube_scheduler_would_rather_not_take_are_left_out() -> None:
    taint = {"key": "old", "effect": "PreferNoSchedule"}
    body = {"metadata": {"name": "n1"}, "spec": {"taints": [taint]}, "status": {"allocatable": {"cpu": "8"}}}
    node = convert(Node, body)
    assert not fits(ResourcesInUse(), pod("a"), node)
    assert fits(ResourcesInUse(), pod("a", tolerations=[{"operator": "Exists"}]), node)
