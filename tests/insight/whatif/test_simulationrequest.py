"""What a simulation refuses, by object, field, problem and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dra_extender.insight.requests import InvalidRequestError, UnknownObjectError
from dra_extender.insight.whatif.whatif import MOST_NAMES
from tests.insight.whatif.test_properties import state
from tests.insight.whatif.test_simulation import FULL, GPUS, TWO, ask, fitting, machine, new, pod, template
from tests.support.diagnosis.gpupods import waiting
from tests.support.diagnosis.hardware import DEDICATED, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scene import Scene
from tests.support.questions import simulate

Json = dict[str, Any]


def changed(body: Json, change: Callable[[Json], object]) -> Json:
    found = json.loads(json.dumps(body))
    change(found)
    return dict(found)


def slices_with(**spec: Any) -> Json:
    return changed(new("n", 2), lambda item: item["slices"][0]["spec"].update(spec))


def with_amounts(allocatable: Json, capacity: Json) -> Json:
    return node("n") | {"status": {"allocatable": allocatable, "capacity": capacity}}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"pod": None}, "pod: Expected `str | object`, got `null`: give a Pod, or NAMESPACE/NAME of an existing one"),
        ({"gang": [pod()]}, "pod: needs one of pod and gang: give a Pod"),
        ({"pod": "w"}, "pod: pod w not found: it does not exist or has finished: give a Pod, or NAMESPACE/NAME"),
        ({"pod": "default/z"}, "pod: pod default/z not found"),
        ({"pod": 5}, "pod: Expected `str | object`, got `int`: give a Pod"),
        ({"pod": {"kind": "Deployment", "metadata": {"name": "d"}}},
         "pod: pod contains no object of kind Pod: give a Pod"),
        ({"pod": {"metadata": {"name": "w"}, "spec": {"containers": 1}}},
         "pod.spec.containers: Pod w: Expected `array`, got `int`: give a Pod"),
        ({"pods": []}, "the body: Object contains unknown field `pods`: give an object with any of pod, gang"),
        ({"count": 0}, "count: Expected `int` >= 1: give a whole number from 1 to 1,000"),
        ({"count": -1}, "count: Expected `int` >= 1"),
        ({"count": 1.5}, "count: Expected `int` that's a multiple of 1"),
        ({"count": 10**30}, "count: Expected `int` <= 1000"),
        ({"count": "2"}, "count: Expected `int`, got `str`"),
        ({"placed": [pod(f"p{number}") for number in range(10_000)]},
         "placed: Expected `array` of length <= 1000: give a Pod"),
        ({"placed": [pod("v"), pod("v")]}, "pod default/v is given twice: rename it, or leave it out"),
        ({"placed": [pod()]}, "pod default/w is given twice"),
        ({"placed": [pod("v", nodeName="z")]}, "placed[0].spec.nodeName: node z not found: name a node that counts"),
        ({"placed": [pod("v", nodeName="b")], "nodes": ["a"]}, "placed[0].spec.nodeName: node b not found"),
        ({"nodes": ["z"]}, "nodes: node z not found: name existing nodes"),
        ({"newNodes": [{"like": "z"}]},
         "newNodes[0].like: node z not found: name a node, or a NodePool that has nodes"),
        ({"newNodes": [{}]}, "newNodes[0]: needs like or node, and slices only without like: change it"),
        ({"newNodes": [{"like": "a", "slices": new("n", 1)["slices"]}]}, "newNodes[0]: needs like or node"),
        ({"newNodes": [{"like": "a", "count": 0}]}, "newNodes[0].count: Expected `int` >= 1: give a list such as"),
        ({"newNodes": [{"like": "a", "count": 600}] * 2}, "count: more than 1,000 pods or new nodes, all together"),
        ({"newNodes": [{"node": {"spec": {}}}]}, "newNodes[0].node: Node (unnamed): Object missing required field"),
        ({"newNodes": [{"node": {"metadata": {}}}]}, "newNodes[0].node: has no metadata.name: give it one"),
        ({"newNodes": [{"like": "a", "node": with_amounts({"cpu": "-1"}, {})}]},
         "newNodes[0].node.status.allocatable: cpu is negative: correct it"),
        ({"newNodes": [{"node": with_amounts({"memory": "1Gi", "cpu": "9"}, {"cpu": "8"})}]},
         "newNodes[0].node.status.allocatable: cpu is more than status.capacity: correct it"),
        ({"newNodes": [{"node": with_amounts({}, {"cpu": "much"})}]},
         "newNodes[0].node.status.capacity"),
        ({"newNodes": [slices_with(sharedCounters=[{"name": "s", "counters": {"c": {"value": "1"}}}])]},
         "newNodes[0].slices[0]: has devices and sharedCounters: divide it"),
        ({"newNodes": [slices_with(nodeName="m")]},
         "newNodes[0].slices[0]: is not of node n alone: correct it, or leave it out"),
        ({"newNodes": [slices_with(nodeName=None, allNodes=True)]}, "newNodes[0].slices[0]: is not of node n alone"),
        ({"newNodes": [slices_with(devices=[{"name": f"d{number}"} for number in range(129)])]},
         "newNodes[0].slices[0]: has more than 128 devices: divide it"),
        ({"newNodes": [{"node": node("n"), "slices": [GPUS]}]},
         "newNodes[0].slices[0].spec: ResourceSlice gpu: Object contains unknown field"),
        ({"newNodes": [{"node": node("n"), "slices": [{"metadata": {"name": "s"}}]}]},
         "newNodes[0].slices[0]: ResourceSlice s: Object missing required field `spec`"),
        ({"objects": [gpus("n", "A", 1, "1Gi", "1.0.0")]}, "objects: has other objects, or two of one name"),
        ({"objects": [template(), template()]}, "objects: has other objects, or two of one name"),
        ({"objects": [{"kind": "ResourceClaim", "apiVersion": "v1"}]},
         "objects: ResourceClaim (unnamed): apiVersion v1 is not supported: use resource.k8s.io/v1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_object_field_problem_and_remedy(body: Json, told: str) -> None:
    view = Scene([GPUS, *FULL], gates=GATES).view()
    before = state(view)
    given = {"objects": [template()], **({} if "pod" in body else {"pod": pod()}), **body}
    with pytest.raises(InvalidRequestError) as refused:
        simulate(view, **given)
    assert refused.value.sentence[: len(told)] == told
    assert len(refused.value.sentence) < 1_000
    assert isinstance(refused.value, UnknownObjectError) == ("not found" in told)
    assert state(view) == before


def test_a_simulation_has_so_many_parts_and_no_more() -> None:
    gang = [pod(f"g{number}") for number in range(6)]
    with pytest.raises(InvalidRequestError, match="more than 1,000 pods or new nodes, all together: ask for fewer"):
        ask(TWO, gang=gang, count=200)
    found = ask([*machine("a", 8)], pod=pod(), count=MOST_NAMES)
    assert (found.fits_on, found.complete) == ((8,), True)


def test_a_pod_without_its_template_is_refused_by_every_node() -> None:
    missing = ("claim gpu has not been created from template gpus-1, which may not exist",)
    assert ask(TWO, pod=pod(), objects=[]).refused == {"a": missing, "b": missing}


def test_a_claim_that_exists_counts_as_it_is() -> None:
    sharing = pod("v") | {"spec": {"containers": [], "resourceClaims": [{"name": "c", "resourceClaimName": "p"}]}}
    assert ask(FULL, pod=sharing, objects=[waiting("p")[1]]).fit == {"a": (), "b": ()}, "default/p is allocated already"


def test_nodes_are_like_the_first_one_of_a_node_pool() -> None:
    label = {"karpenter.sh/nodepool": "large"}
    pool = [node("z", labels=label), gpus("z", "A", 8, "1Gi", "1.0.0"), *machine("y", 1, labels=label)]
    found = ask([*FULL, *pool], pod=pod(), nodes=[], newNodes=[{"like": "large", "count": 2}])
    assert fitting(found) == ["y-like-1", "y-like-2"]


def test_a_template_may_have_the_devices_of_an_existing_node() -> None:
    request = {"pod": pod(count=2), "nodes": [], "newNodes": [{"like": "a", "node": node("n")}]}
    assert ask(TWO, **request).fit == {"n-like-1": tuple(f"{GPU}/a-gpu-like-1/gpu-{number}" for number in (0, 1))}
    request["newNodes"] = [{"like": "a", "node": node("n", taints=[DEDICATED])}]
    assert ask(TWO, **request).refused == {
        "n-like-1": ("the node has the taint dedicated=ml:NoSchedule, which the pod does not tolerate",)
    }


def test_a_template_may_be_a_copy_of_an_existing_node() -> None:
    given = {"node": node("a"), "slices": [gpus("a", "A", 2, "1Gi", "1.0.0")]}
    found = ask(FULL, pod=pod(), newNodes=[given, {"like": "a"}])
    assert (fitting(found), found.problems) == (["a-like-1", "a-like-2"], ())


def test_slices_that_cannot_be_used_or_of_unknown_drivers_are_problems_of_the_answer() -> None:
    partial = slices_with(pool={"name": "n", "generation": 1, "resourceSliceCount": 2})
    unknown = changed(new("m", 1), lambda item: item["slices"][0]["spec"].update(driver="gpu.exmaple.com"))
    found = ask(FULL, pod=pod(), newNodes=[partial, unknown])
    assert fitting(found) == []
    assert found.problems == (
        "ResourceSlice newNodes[0].slices[0]-like-1: pool gpu.example.com/n-like-1 has 1 slice of generation 1, but "
        "spec.pool.resourceSliceCount is 2",
        "newNodes[1]: no slice of the cluster has driver gpu.exmaple.com",
    )
