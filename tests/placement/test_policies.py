"""Which node and which GPU each policy chooses, in its own terms."""

from __future__ import annotations

import pytest

from dra_extender.allocation.budget import UNLIMITED
from dra_extender.api.events import PartialAllocation, Undecodable
from dra_extender.api.meta import ObjectKey
from dra_extender.placement.policies import PolicyName
from tests.support.placement.gpunodes import DRIVER, NAMESPACE, GpuNodes, gpus
from tests.support.placement.partitionednodes import add_partitioned, part

NodesInUse = dict[str, tuple[int, ...]]


def nodes(policy: PolicyName, in_use: NodesInUse) -> GpuNodes:
    """Nodes with one GPU per number: the milli that are taken of it."""
    made = GpuNodes(policy)
    for name, parts in in_use.items():
        made.add(name, len(parts))
        made.occupy(name, *parts)
    return made


HALF_USED: NodesInUse = {"idle": (0, 0, 0, 0), "half": (1000, 1000, 0, 0), "full": (1000, 1000, 1000, 500)}


@pytest.mark.parametrize(
    ("policy", "milli", "expected"),
    [
        ("first-fit", 500, ""),
        ("pack", 500, "full"),
        ("pack", 1000, "half"),
        ("spread", 500, "idle"),
        ("spread", 1000, "idle"),
    ],
)
def test_pack_takes_the_fullest_node_and_spread_the_emptiest(policy: PolicyName, milli: int, expected: str) -> None:
    made = nodes(policy, HALF_USED)
    assert made.choose(made.pod("p"), gpus(milli=milli)) == expected


@pytest.mark.parametrize(
    ("policy", "milli", "expected"),
    [
        ("first-fit", 200, "gpu-0"),
        ("pack", 200, "gpu-2"),
        ("pack", 400, "gpu-1"),
        ("pack", 700, "gpu-0"),
        ("spread", 200, "gpu-3"),
    ],
)
def test_pack_takes_the_fullest_gpu_of_a_node_and_spread_the_emptiest(
    policy: PolicyName, milli: int, expected: str
) -> None:
    made = nodes(policy, {"n": (300, 500, 800, 0)})
    assert made.devices(made.pod("p"), "n", gpus(milli=milli)) == expected


def test_cpu_and_memory_count_as_much_as_devices() -> None:
    made = GpuNodes("pack")
    made.add("more devices used", 4, cpu=64)
    made.add("more cpu used", 4, cpu=64)
    made.occupy("more devices used", 1000)
    made.run(made.pod("other", cpu=48), "more cpu used")
    assert made.choose(made.pod("p"), gpus()) == "more cpu used"
    assert made.choose(made.pod("no devices")) == "more cpu used"


def seen(made: GpuNodes, *pods: tuple[int, int, int]) -> None:
    """Pods that were seen: number of them, GPUs and milli of each."""
    for number, (times, count, milli) in enumerate(pods):
        for time in range(times):
            made.learner.learn(made.pod(f"seen-{number}-{time}"), [gpus(count, milli=milli)])


def test_fragmentation_leaves_whole_nodes_to_those_who_need_them() -> None:
    made = nodes("fragmentation", {"a whole": (0, 0, 0, 0), "begun": (1000, 0, 0, 0)})
    seen(made, (5, 4, 1000), (5, 1, 1000))
    assert made.choose(made.pod("p"), gpus()) == "begun"


def test_fragmentation_keeps_the_rest_of_a_gpu_useful() -> None:
    """500 milli after 500 leave nothing; after 300 they leave 200, which no pod asks for."""
    made = nodes("fragmentation", {"a": (300,), "b": (500,)})
    seen(made, (9, 1, 500))
    assert made.choose(made.pod("p"), gpus(milli=500)) == "b"


def test_fragmentation_keeps_models_that_some_pods_demand() -> None:
    made = GpuNodes("fragmentation")
    made.add("a rare", 2, model="rare")
    made.add("common", 2, model="common")
    for number in range(5):
        made.learner.learn(made.pod(f"any-{number}"), [gpus()])
        made.learner.learn(made.pod(f"rare-{number}"), [gpus(model="rare")])
    assert made.choose(made.pod("p"), gpus()) == "common"


def test_fragmentation_does_not_starve_gpus_of_cpu() -> None:
    """On the first node the pod would leave GPUs without the CPU that other pods need."""
    made = GpuNodes("fragmentation")
    made.add("a few cores", 4, cpu=32)
    made.add("many cores", 4, cpu=128)
    for number in range(5):
        made.learner.learn(made.pod(f"seen-{number}", cpu=8), [gpus()])
    assert made.choose(made.pod("hungry", cpu=16), gpus()) == "many cores"
    assert made.choose(made.pod("without devices", cpu=16)) == "many cores"


def test_equal_nodes_are_told_apart_by_name() -> None:
    made = nodes("pack", {"b": (0,), "a": (0,), "c": (0,)})
    assert made.choose(made.pod("p"), gpus()) == "a"


def test_the_pod_and_then_its_class_say_which_policy_is_in_force() -> None:
    made = nodes("pack", HALF_USED)
    assert made.choose(made.pod("p"), gpus()) == "half"
    assert made.choose(made.pod("p", policy="spread"), gpus()) == "idle"
    assert made.choose(made.pod("p", policy="no such policy"), gpus()) == "half"
    made.put_class("gpu", policy="spread")
    assert made.choose(made.pod("p"), gpus()) == "idle"
    assert made.choose(made.pod("p", policy="pack"), gpus()) == "half"
    assert made.choose(made.pod("p", policy="first-fit"), gpus()) == ""


@pytest.mark.parametrize("partitioned", [False, True])
def test_devices_that_are_withheld_are_worth_nothing_to_anybody(*, partitioned: bool) -> None:
    """A claim that cannot be read has some of them: a node where none can be given away has no GPUs to keep free."""
    made = GpuNodes("fragmentation")
    for name in ("a free", "z withheld"):
        if partitioned:
            add_partitioned(made, name, 4)
        else:
            made.add(name, 4)
    wanted = part("1g") if partitioned else gpus()
    for number in range(5):
        made.learner.learn(made.pod(f"seen-{number}"), [wanted])
    assert made.choose(made.pod("no devices", cpu=62)) == "a free"
    partial = PartialAllocation(uid="u", pools=((DRIVER, "z withheld"),))
    made.cluster.apply(Undecodable(ObjectKey("ResourceClaim", f"{NAMESPACE}/unreadable"), "cannot be read", partial))
    assert made.learner.free_states.beside("z withheld", {}, UNLIMITED).devices.free == 0
    assert made.choose(made.pod("no devices", cpu=62)) == "z withheld"
