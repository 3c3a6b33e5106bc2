"""A simulation: which nodes fit a pod, existing and new ones, and how many new nodes more of it needs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from dra_extender.insight.whatif import simulation
from dra_extender.insight.whatif.clustercopy import Placing, copied
from dra_extender.insight.whatif.simulation import Simulation, request_of
from dra_extender.insight.whatif.whatif import Changes
from dra_extender.scheduling.feasibility import NodeAllocation, allocate_pod
from dra_extender.scheduling.turns import PORTION, run_at_once
from tests.insight.whatif.test_properties import state
from tests.support.counting import counted_turns
from tests.support.diagnosis.gpupods import running, waiting
from tests.support.diagnosis.hardware import DEDICATED, device_class, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scenarios import POD, scenes
from tests.support.diagnosis.scene import Scene
from tests.support.examples import examples
from tests.support.questions import diagnose, simulate, what_if

Json = dict[str, Any]
GPUS = device_class("gpu", f'device.driver == "{GPU}"')


def machine(name: str, devices: int, **spec: Any) -> list[Json]:
    return [node(name, **spec), gpus(name, "A", devices, "1Gi", "1.0.0")]


def new(name: str, devices: int, **more: Any) -> Json:
    """A template of nodes with this number of GPUs."""
    return {"node": node(name), "slices": [gpus(name, "A", devices, "1Gi", "1.0.0")], **more}


def template(count: int = 1) -> Json:
    """A ResourceClaimTemplate that is in no cluster."""
    exactly = {"deviceClassName": "gpu", "count": count}
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    return {"kind": "ResourceClaimTemplate", "metadata": {"name": f"gpus-{count}"}, "spec": spec}


def pod(name: str = "w", count: int = 1, **spec: Any) -> Json:
    """A pod that is in no cluster, with a claim for this number of GPUs."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": f"gpus-{count}"}]
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    body = {"containers": [container], "resourceClaims": claims, **spec}
    return {"kind": "Pod", "metadata": {"name": name, "creationTimestamp": None}, "spec": body}


TWO = [*machine("a", 2), *machine("b", 2)]
FULL = [*TWO, *running("p", "a", "gpu-0", "gpu-1"), *running("q", "b", "gpu-0", "gpu-1")]


def ask(documents: list[Json], **body: Any) -> Simulation:
    objects = [template(count) for count in (1, 2, 3)]
    return simulate(Scene([GPUS, *documents], gates=GATES).view(), **{"objects": objects, **body})


def fitting(found: Simulation) -> list[str]:
    return [*found.fit]


# --- where


@pytest.mark.parametrize(
    ("documents", "body", "expected"),
    [
        (TWO, {"pod": pod()}, ["a", "b"]),
        (TWO, {"pod": pod(count=3)}, []),
        (FULL, {"pod": pod()}, []),
        ([*TWO, *waiting("w")], {"pod": "default/w"}, ["a", "b"]),
        (TWO, {"pod": pod(), "nodes": ["b"]}, ["b"]),
        (TWO, {"pod": pod(), "nodes": []}, []),
        (TWO, {"pod": pod(), "placed": [pod("v", 2, nodeName="a")]}, ["b"]),
        (TWO, {"pod": pod(), "placed": [pod("v", 2)]}, ["b"]),
        (TWO, {"pod": pod(count=2), "placed": [pod("u"), pod("v")]}, ["b"]),
        ([*TWO, *waiting("v", 2)], {"pod": pod(), "placed": ["default/v"]}, ["b"]),
        (FULL, {"pod": pod(), "newNodes": [{"like": "a", "count": 2}]}, ["a-like-1", "a-like-2"]),
        (FULL, {"pod": pod(), "newNodes": [new("n", 1), new("m", 4)]}, ["n-like-1", "m-like-1"]),
        (FULL, {"pod": pod(), "newNodes": [new("n", 1)], "placed": [pod("v", nodeName="n-like-1")]}, []),
        (
            FULL,
            {"pod": pod(), "newNodes": [new("n", 1, count=2)], "placed": [pod("v", nodeName="n-like-2")]},
            ["n-like-1"],
        ),
        (FULL, {"pod": pod(), "newNodes": [new("n", 1, count=2)], "placed": [pod("v")]}, ["n-like-2"]),
        (TWO, {"pod": pod(nodeName="a")}, ["a", "b"]),
        ([*TWO, *running("p", "a", "gpu-0", "gpu-1")], {"pod": pod(), "nodes": ["a"]}, []),
    ],
)
def test_the_nodes_that_fit_are_those_of_the_cluster_after_the_changes(
    documents: list[Json], body: Json, expected: list[str]
) -> None:
    found = ask(documents, **body)
    assert fitting(found) == expected
    assert found.complete


def test_each_node_has_its_plan_or_all_reasons() -> None:
    tainted = [*machine("c", 2, taints=[DEDICATED]), *running("r", "c", "gpu-0", "gpu-1")]
    found = ask([*TWO, *tainted], pod=pod(count=2, nodeSelector={"kubernetes.io/hostname": "a"}), nodes=["a", "c"])
    assert found.fit == {"a": (f"{GPU}/a-gpu/gpu-0", f"{GPU}/a-gpu/gpu-1")}
    assert found.refused == {
        "c": (
            "the node has the taint dedicated=ml:NoSchedule, which the pod does not tolerate",
            "the node does not match nodeSelector kubernetes.io/hostname=a (it has kubernetes.io/hostname=c)",
        )
    }


def test_a_pod_that_no_node_can_help_has_its_reason_on_every_node() -> None:
    gated = pod(schedulingGates=[{"name": "quota"}])
    found, gate = ask(TWO, pod=gated), ("the pod is not scheduled until its scheduling gate quota is removed",)
    assert (found.fit, found.refused) == ({}, {"a": gate, "b": gate})


def test_devices_that_are_kept_for_a_preemptor_are_not_free() -> None:
    view = Scene([GPUS, *TWO, *waiting("v", 2), *waiting("w", 2)], gates=GATES).view()
    preemptor = view.pods.named("default", "v")
    assert preemptor is not None
    plan = allocate_pod(view, preemptor, "a")
    assert isinstance(plan, NodeAllocation)
    kept = list(zip(plan.pending, plan.allocations, strict=True))
    asked = type(view)(**{name: getattr(view, name) for name in view.__struct_fields__} | {"kept": lambda pod: kept})
    assert fitting(simulate(asked, pod="default/w")) == ["b"]


# --- how many


@pytest.mark.parametrize(
    ("documents", "body", "fits_on", "least"),
    [
        (TWO, {"pod": pod(), "count": 4}, (4,), 0),
        (TWO, {"pod": pod(), "count": 5}, (4,), None),
        (TWO, {"pod": pod(), "count": 5.0, "newNodes": [{"like": "a", "count": 9}]}, (4, 5), 1),
        (FULL, {"pod": pod(), "count": 5, "newNodes": [{"like": "a", "count": 9}]}, (0, 2, 4, 5), 3),
        (FULL, {"pod": pod(), "count": 5, "newNodes": [{"like": "a", "count": 2}]}, (0, 2, 4), None),
        (FULL, {"pod": pod(count=3), "count": 2, "newNodes": [{"like": "a", "count": 9}]}, (0,), None),
        (FULL, {"pod": pod(count=3), "count": 2, "newNodes": [{"like": "a"}, new("n", 3, count=2)]}, (0, 1, 2), 2),
        (FULL, {"pod": pod(), "count": 3, "newNodes": [new("n", 2), new("m", 1)]}, (0, 2, 3), 2),
        ([*FULL, *waiting("w")], {"pod": "default/w", "count": 1, "newNodes": [{"like": "a"}]}, (0, 1), 1),
        (FULL, {"pod": pod(), "newNodes": [new("n", 1, count=3)], "placed": [pod("v")]}, (0, 0, 1), 2),
        # gangs: all pods or none
        (TWO, {"gang": [pod("u", 2), pod("v", 2)]}, (1,), 0),
        (TWO, {"gang": [pod("u", 2), pod("v", 3)]}, (0,), None),
        (TWO, {"gang": [pod("u", 2), pod("v", 3)], "newNodes": [new("n", 3, count=3)]}, (0, 1), 1),
        (FULL, {"gang": [pod("u", 2), pod("v", 2)], "count": 2, "newNodes": [{"like": "a", "count": 9}]},
         (0, 0, 1, 1, 2), 4),
        (FULL, {"gang": [pod("u", 2), pod("v", 3)], "newNodes": [{"like": "a", "count": 9}, new("n", 3)]},
         (0, 0, 1), 2),
    ],
)  # fmt: skip
def test_new_nodes_are_added_until_all_fit(
    documents: list[Json], body: Json, fits_on: tuple[int, ...], least: int | None
) -> None:
    found = ask(documents, **body)
    assert (found.fits_on, found.least) == (fits_on, least)
    assert found.complete


def test_copies_of_a_pod_with_a_gang_are_members_of_it() -> None:
    annotations = {"dra-extender.dev/gang": "g", "dra-extender.dev/gang-size": "4"}
    member = pod(count=2)
    member["metadata"]["annotations"] = annotations
    found = ask(TWO, pod=member, count=4, newNodes=[{"like": "a", "count": 9}])
    assert (found.fits_on, found.least) == ((0, 0, 4), 2)
    assert (alone := ask(TWO, pod=member, count=4)).fits_on == (0,)
    assert alone.pods["default/w"].reason.startswith("gang default/g: ")


def test_the_pods_of_a_gang_are_on_nodes_with_one_value_of_the_label() -> None:
    racks = [[node(name, labels={"rack": rack}), gpus(name, "A", 1, "1Gi", "1.0.0")] for name, rack in ("ax", "by")]
    members = [pod(name) for name in ("u", "v")]
    for each in members:
        each["metadata"]["annotations"] = {"dra-extender.dev/topology-required": "rack"}
    documents = [item for rack in racks for item in rack]
    assert ask(documents, gang=members).least is None
    found = ask(documents, gang=members, newNodes=[{"like": "b"}])
    assert (found.least, {placed.node for placed in found.pods.values()}) == (1, {"b", "b-like-1"})


def test_a_pod_of_the_cluster_and_its_copies_have_claims_of_their_own() -> None:
    templated = pod("p", nodeName="a")
    held = running("p-gpu", "a", "gpu-0")[1]
    held["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-p", "controller": True}
    ]
    documents = [*machine("a", 4), templated, held, template() | {"metadata": {"name": "gpus-1"}}]
    found = ask(documents, pod="default/p", count=4, objects=[])
    assert found.fits_on == (3,)
    assert [*found.pods] == [f"default/p ({number})" for number in range(1, 5)]


def test_claims_of_nodes_that_do_not_count_are_not_copied() -> None:
    others = [
        item
        for number in range(20)
        for item in [*machine(f"n{number}", 1), *running(f"r{number}", f"n{number}", "gpu-0")]
    ]
    shared = running("s", "n0", "gpu-0")[1]
    sharing = waiting("v")[0] | {
        "spec": {"containers": [], "resourceClaims": [{"name": "c", "resourceClaimName": "s"}]}
    }
    view = Scene([GPUS, *FULL, *others, shared, sharing, *waiting("w")], gates=GATES).view()
    claims = {claim.metadata.name for claim in run_at_once(copied(view, {"a"})).cluster.ledger.claims()}
    assert claims == {"p", "s", "w"}, "that of a device of the node, and those of pods that wait"
    assert len([*run_at_once(copied(view)).cluster.ledger.claims()]) == 24


# --- no effect, and the answer of the real thing


@given(scene=scenes(), devices=st.integers(0, 3), data=st.data())
@settings(max_examples=examples(60))
def test_a_simulation_decides_what_is_decided_when_the_nodes_and_pods_are_real(
    scene: Scene, devices: int, data: st.DataObject
) -> None:
    view = scene.view()
    before, names = state(view), sorted(view.cluster.nodes)
    like = data.draw(st.sampled_from(names))
    only = data.draw(st.none() | st.lists(st.sampled_from(names), unique=True))
    fresh = [node("new-like-1"), gpus("new-like-1", "A", devices, "1Gi", "1.0.0")]
    slices = [gpus("new", "A", devices, "1Gi", "1.0.0")] if devices else []
    templates = [{"node": node("new"), "slices": slices}, {"like": like}]
    found = simulate(view, pod=f"default/{POD}", newNodes=templates, **({} if only is None else {"nodes": only}))
    assert state(view) == before
    real = scene.with_more(fresh if devices else fresh[:1])
    after = real.view()
    asked = after.pods.named("default", POD)
    assert asked is not None
    known = names if only is None else sorted(only)
    assert sorted((*found.fit, *found.refused)) == sorted([*known, "new-like-1", f"{like}-like-1"])
    error = bool(known) and diagnose(view, asked, known).rule == "error"
    for name in [*known, "new-like-1"]:
        decided = allocate_pod(after, asked, name)
        fits = isinstance(decided, NodeAllocation) and diagnose(after, asked, [name]).state == "fits" and not error
        event(f"fits: {fits}")
        assert (name in found.fit) == fits, (name, found, decided)
        if isinstance(decided, NodeAllocation) and fits:
            plan = [each.id for allocation in decided.allocations for each in allocation.devices.results]
            own = ["/".join(each).replace("new-like-1-gpu", "new-gpu-like-1") for each in plan]
            assert found.fit[name] == tuple(own)


@given(scene=scenes(), count=st.integers(1, 4))
@settings(max_examples=examples(30))
def test_the_pod_is_placed_as_in_a_what_if(scene: Scene, count: int) -> None:
    view = scene.view()
    (outcome,) = what_if(view, Changes()).outcomes
    found = simulate(view, pod=f"default/{POD}", count=count)
    assert found.pods[f"default/{POD}"].node == outcome.node
    assert found.fits_on[-1] <= count and (found.least == 0) == (found.fits_on[-1] == count)


# --- work


def large(nodes: int) -> Scene:
    return Scene([GPUS, *(item for number in range(nodes) for item in machine(f"n{number:04}", 4))], gates=GATES)


def asked(**body: Any) -> Any:
    return request_of(json.dumps({"pod": pod(), "objects": [template()], **body}).encode())


@pytest.mark.slow
def test_a_turn_is_no_larger_in_a_cluster_that_is_four_times_as_large() -> None:
    body = asked(count=50, newNodes=[{"like": "n0000", "count": 20}], placed=[pod(f"p{n}") for n in range(100)])
    small = counted_turns(simulation.simulation(large(250).view(), body))
    bigger = counted_turns(simulation.simulation(large(1_000).view(), body))
    assert bigger.largest < 1.5 * small.largest
    assert bigger.largest < 50_000, "some ten milliseconds"
    assert bigger.turns > small.turns


def test_nodes_that_do_not_count_are_not_copied() -> None:
    body = asked(nodes=["n0000"], newNodes=[new("n", 4)])
    views = large(10).view(), large(200).view()
    small, bigger = (counted_turns(simulation.simulation(view, body)) for view in views)
    assert bigger.result == small.result
    assert bigger.turns == small.turns
    assert bigger.total < 1.5 * small.total


def test_a_new_node_that_does_not_help_costs_a_few_turns() -> None:
    body = asked(pod=pod(count=3), objects=[template(3)], count=5, newNodes=[new("n", 2, count=999), new("m", 3)])
    found = counted_turns(simulation.simulation(large(1).view(), body))
    assert found.result.fits_on == (1, 2)
    assert found.turns < 5 * 1_000


def test_too_much_work_leaves_an_answer_that_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "Placing", partial(Placing, most=3 * PORTION))
    found = ask([item for number in range(PORTION + 1) for item in machine(f"n{number:03}", 1)], pod=pod(), count=300)
    assert not found.complete
    assert found.fits_on == (3,) and found.least is None
    assert found.pods["default/w (4)"].reason == "not decided yet whether devices fit"


def test_a_turn_decides_on_one_new_node() -> None:
    body = asked(pod=pod(count=3), objects=[template(3)], newNodes=[new("n", 2, count=10)])
    few = counted_turns(simulation.simulation(large(1).view(), body))
    many = counted_turns(simulation.simulation(large(1).view(), asked(
        pod=pod(count=3), objects=[template(3)], newNodes=[new("n", 2, count=500)]
    )))  # fmt: skip
    assert many.largest < 1.5 * few.largest


def test_each_new_node_without_slices_is_looked_at_in_a_turn_of_its_own() -> None:
    """Slices of other nodes may have selectors, and each node evaluates them."""
    body = asked(pod=pod(), newNodes=[{"node": {"metadata": {"name": "bare"}}, "count": 50}])
    assert counted_turns(simulation.simulation(large(1).view(), body)).turns >= 50
