"""What if: pods that would fit after a change, and pods that would not any more."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.insight.manifests import draft, hypothetical, pods_of
from dra_extender.insight.whatif import whatif
from dra_extender.insight.whatif.whatif import Changes, NodesLike, WhatIf
from tests.support.diagnosis.gangscenes import CLASS, claim, host, member
from tests.support.diagnosis.gpupods import pod, running, waiting
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scene import Scene
from tests.support.questions import what_if

Json = dict[str, Any]
GPUS = device_class("gpu", f'device.driver == "{GPU}"')


def machine(name: str, devices: int, **spec: Any) -> list[Json]:
    return [node(name, **spec), gpus(name, "A", devices, "1Gi", "1.0.0")]


def ask(documents: list[Json], **changes: Any) -> WhatIf:
    return what_if(Scene([GPUS, *documents], gates=GATES).view(), Changes(**changes))


def verdicts(found: WhatIf) -> dict[str, str]:
    return {outcome.pod.removeprefix("default/"): outcome.verdict for outcome in found.outcomes}


TWO = [*machine("a", 2), *machine("b", 2)]
FULL = [*TWO, *running("p", "a", "gpu-0", "gpu-1"), *running("q", "b", "gpu-0", "gpu-1")]
DAEMON = {"ownerReferences": [{"apiVersion": "v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]}


@pytest.mark.parametrize(
    ("documents", "changes", "expected"),
    [
        ([*FULL, *waiting("w")], {}, {"w": "does not fit"}),
        ([*TWO, *waiting("w")], {}, {"w": "fits"}),
        ([*FULL, *waiting("w")], {"without_pods": ("default/p",)}, {"w": "would fit"}),
        ([*FULL, *waiting("w")], {"add_nodes": (NodesLike("a", 1),)}, {"w": "would fit"}),
        (
            [*FULL, *waiting("v", 2), *waiting("w", 2)],
            {"add_nodes": (NodesLike("a", 1),)},
            {"v": "would fit", "w": "does not fit"},
        ),
        (
            [*FULL, *waiting("v", 2), *waiting("w", 2)],
            {"add_nodes": (NodesLike("a", 2),)},
            {"v": "would fit", "w": "would fit"},
        ),
        ([*FULL, *waiting("w", 3)], {"add_nodes": (NodesLike("a", 5),)}, {"w": "does not fit"}),
        (FULL, {"drain": ("a",)}, {"p": "no more"}),
        (FULL, {"drain": ("a", "a")}, {"p": "no more"}),
        (FULL, {"drain": ("a",), "add_nodes": (NodesLike("a", 1),)}, {"p": "fits"}),
        (FULL, {"drain": ("a",), "without_pods": ("default/q",)}, {"p": "fits"}),
        (FULL, {"drain": ("a",), "without_pods": ("default/p",)}, {}),
        ([*TWO, *running("p", "a", "gpu-0")], {"drain": ("a",)}, {"p": "fits"}),
        ([*TWO, *running("p", "a", "gpu-0")], {"drain": ("a", "b")}, {"p": "no more"}),
        ([*TWO, *running("p", "a", "gpu-0", **DAEMON)], {"drain": ("a",)}, {}),
        ([*TWO, *running("p", "a", "gpu-0"), *waiting("w", 2)], {"drain": ("a",)}, {"p": "fits", "w": "no more"}),
        (
            [*TWO, *running("p", "a", "gpu-0"), pod("big", "b", cpu="8", claims="none")],
            {"drain": ("a",)},
            {"p": "no more"},
        ),
    ],
)
def test_who_fits_after_a_change(documents: list[Json], changes: Json, expected: dict[str, str]) -> None:
    assert verdicts(ask(documents, **changes)) == expected


def test_a_node_is_like_the_first_one_of_a_node_pool() -> None:
    label = {"karpenter.sh/nodepool": "large"}
    pool = [*machine("z", 8, labels=label), *machine("y", 1, labels=label)]
    busy = [*running("r", "y", "gpu-0"), *running("s", "z", *(f"gpu-{number}" for number in range(8)))]
    found = ask([*FULL, *pool, *busy, *waiting("w")], add_nodes=(NodesLike("large", 2),))
    assert (found.nodes_added, verdicts(found)) == (("y-like-1", "y-like-2"), {"w": "would fit"})


def test_pods_that_share_a_claim_stay_together() -> None:
    shared = [*running("p", "a", "gpu-0"), pod("r", "a", claims="p")]
    shared[1]["status"]["reservedFor"].append({"resource": "pods", "name": "r", "uid": "uid-r"})
    outcomes = ask([*TWO, *machine("c", 2), *shared], drain=("a",)).outcomes
    assert [(outcome.pod, outcome.node) for outcome in outcomes] == [("default/p", "b"), ("default/r", "b")]


def test_a_pod_of_a_drained_node_gets_another_claim_for_its_extended_resources() -> None:
    extended, claim = running("p", "a", "gpu-0")
    del extended["spec"]["resourceClaims"]
    extended["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    claim["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences": [owner]
    }  # fmt: skip
    providing = device_class("gpu", f'device.driver == "{GPU}"', "example.com/gpu")
    assert verdicts(ask([*TWO, providing, extended, claim], drain=("a",))) == {"p": "fits"}


def test_the_reason_names_what_keeps_the_pod_from_the_nodes() -> None:
    found = ask([*TWO, *machine("c", 8, unschedulable=True), *waiting("w", 3)])
    (outcome,) = found.outcomes
    assert outcome.reason.startswith("2 nodes lack the devices; 1 node: ")


def test_nothing_changes() -> None:
    view = Scene([GPUS, *FULL, *waiting("w")], gates=GATES).view()
    changes = Changes(add_nodes=(NodesLike("a", 1),), drain=("b",), without_pods=("default/p",))
    assert what_if(view, changes) == what_if(view, changes)
    assert view.ledger.holdings((GPU, "a-gpu")) is not None
    assert set(view.cluster.nodes) == {"a", "b"}


def test_more_pods_than_may_be_placed_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whatif, "MOST_PODS", 1)
    view = Scene([GPUS, *TWO, *waiting("v"), *waiting("w")], gates=GATES).view()
    found = what_if(view, Changes())
    assert (len(found.outcomes), found.left_out) == (1, 1)
    assert [*found.lines()][-1] == "Not tried: 1 more pod."


def test_the_text_begins_with_who_would_not_fit_any_more() -> None:
    found = ask([*FULL, *waiting("w"), *waiting("x", 2)], drain=("a",), add_nodes=(NodesLike("b", 1),))
    assert [*found.lines()] == [
        "With 1 more node: b-like-1.",
        "2 pods would still not fit:",
        "  default/w: 2 nodes lack the devices",
        "  default/x: 2 nodes lack the devices",
        "1 pod would still fit:",
        "  default/p: a -> b-like-1",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"drain": ("z",)}, "node z not found"),
        ({"add_nodes": (NodesLike("z", 1),)}, "node z not found"),
        ({"add_nodes": (NodesLike("a", 0),)}, "0 nodes: 1 to 100 can be added"),
        ({"without_pods": ("default/z",)}, "pod default/z not found"),
    ],
)
def test_what_does_not_exist_is_said(changes: Json, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ask(TWO, **changes)


# --- objects and pods of a file


def slice_of(host: str, pool: str, *devices: str) -> Json:
    spec = {
        "driver": GPU, "nodeName": host, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "attributes": {"model": {"string": "A"}}} for name in devices],
    }  # fmt: skip
    return object_of("ResourceSlice", name=pool, spec=spec)


def object_of(kind: str, *, name: str = "n", uid: str = "", **more: Any) -> Json:
    meta = {"name": name, **({"uid": uid} if uid else {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, **more}


def trial(count: int, device_class: str = "gpu") -> list[Json]:
    """A pod that does not exist, and the template of its claim."""
    exactly = {"deviceClassName": device_class, "count": count}
    template = object_of(
        "ResourceClaimTemplate", name="t", spec={"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    )
    spec = {"containers": [{"name": "c"}], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t"}, "spec": spec}, template]


def ask_with(objects: list[Json], pods: list[Json] | None = None) -> WhatIf:
    """Asked on two nodes, where p has the GPUs of one; w waits for two GPUs and x as well."""
    documents = [GPUS, *TWO, *running("p", "a", "gpu-0", "gpu-1"), *waiting("w", 2), *waiting("x", 2)]
    added = [hypothetical(each, "default") for each in objects]
    drafts = None
    if pods is not None:
        found = pods_of("f", pods)
        drafts = [draft(each, found.claims, found.templates) for each in found.pods]
    return what_if(Scene(documents, gates=GATES).view(), Changes(), drafts, added)


NEW = object_of("DeviceClass", name="new", spec={"selectors": []})


@pytest.mark.parametrize(
    ("objects", "pods", "expected"),
    [
        ([slice_of("a", "more", "m-0", "m-1")], None, {"w": "fits", "x": "would fit"}),
        ([slice_of("a", "more", "m-0")], None, {"w": "fits", "x": "does not fit"}),
        ([], trial(2), {"t": "fits"}),
        ([], trial(3), {"t": "does not fit"}),
        ([], trial(2, "new"), {"t": "does not fit"}),
        ([NEW], trial(2, "new"), {"t": "would fit"}),
        ([], trial(1)[:1], {"t": "does not fit"}),
    ],
)
def test_decisions_use_the_objects_and_pods_of_files(
    objects: list[Json], pods: list[Json] | None, expected: dict[str, str]
) -> None:
    assert verdicts(ask_with(objects, pods)) == expected


def test_a_slice_that_cannot_be_used_is_a_problem_of_the_answer() -> None:
    assert "more" in ask_with([slice_of("a", "more", "m-0", "m-0")]).problems[0]


def test_a_claim_cannot_pose_as_another_that_has_devices() -> None:
    thief = object_of("ResourceClaim", name="thief", uid="claim-p", spec={})
    assert verdicts(ask_with([thief])) == {"w": "fits", "x": "does not fit"}, "p keeps its devices"


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (object_of("ResourceClaim", name="p", spec={}), "ResourceClaim default/p exists and is allocated: give the"),
        (object_of("DeviceClass", name="", spec={}), "a DeviceClass has no metadata.name: give it one"),
    ],
)
def test_an_object_that_cannot_be_added_is_refused(item: Json, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ask_with([item])


PAIR = [CLASS, *(item for number in range(2) for item in (claim(f"g-{number}"), member(number, 2)))]


@pytest.mark.parametrize(
    ("documents", "changes", "verdict"),
    [
        (host("n0", 2), {}, "fits"),
        (host("n0", 1), {}, "does not fit"),
        (host("n0", 1), {"add_nodes": (NodesLike("n0", 1),)}, "would fit"),
        ([*host("n0", 2), *host("n1", 1)], {"drain": ("n0",)}, "no more"),
        ([*host("n0", 2), *host("n1", 1), *host("n2", 1)], {"drain": ("n0",)}, "fits"),
    ],
)
def test_the_pods_of_a_gang_fit_together_or_not_at_all(documents: list[Json], changes: Json, verdict: str) -> None:
    assert verdicts(ask([*documents, *PAIR], **changes)) == {"g-0": verdict, "g-1": verdict}
