"""Who gave a device away twice, told from small stories of what was stored in which order."""

from __future__ import annotations

from typing import Any

import pytest

from tools.contention.history import (
    IN_TREE,
    OURS,
    STOCK,
    ClaimVersion,
    History,
    Overlap,
    PodVersion,
    Version,
    claim_version,
    pod_version,
    writer,
)

GPU = "gpu.example.com/node-1/gpu-0"
OTHER = "gpu.example.com/node-1/gpu-1"


def allocated(version: int, name: str, by: str, *devices: str, pod: str = "") -> ClaimVersion:
    consumers = frozenset((f"uid-{pod or name}",))
    return ClaimVersion(version, f"uid-{name}-claim", f"ns/{name}", frozenset(devices or (GPU,)), by, consumers)


def free(version: int, name: str, *, gone: bool = False) -> ClaimVersion:
    return ClaimVersion(version, f"uid-{name}-claim", f"ns/{name}", gone=gone)


def bound(
    version: int, name: str, phase: str = "Pending", *, claim: str = "", scheduler: str = "scheduler"
) -> PodVersion:
    return PodVersion(version, f"uid-{name}", f"ns/{name}", scheduler, (f"ns/{claim or name}",), "node-1", phase)


def told(*versions: Version) -> History:
    history = History()
    history.replay(versions)
    return history


def only(history: History) -> Overlap:
    (overlap,) = history.overlaps
    return overlap


STORIES: dict[str, tuple[list[Version], tuple[str, str, str], dict[str, Any]]] = {
    "the later one of ours takes its write back": (
        [allocated(1, "a", OURS), allocated(2, "b", OURS), bound(3, "a"), free(4, "b")],
        ("ns/a", "ns/b", "taken back"),
        {"stood": False, "shared": False, "until": 4},
    ),
    "the later one of ours is bound": (
        [allocated(1, "a", OURS), allocated(2, "b", OURS), bound(3, "b"), free(4, "a")],
        ("ns/a", "ns/b", "gave way"),
        {"stood": True, "shared": False},
    ),
    "the in-tree scheduler binds a pod with the later one of ours, which nobody can take back any more": (
        [allocated(1, "a", OURS), allocated(2, "b", OURS), bound(3, "c", claim="b", scheduler=STOCK), free(4, "a")],
        ("ns/a", "ns/b", "gave way"),
        {"stood": False, "joined": True, "shared": False},
    ),
    "so does one of ours": (
        [
            allocated(1, "a", OURS),
            allocated(2, "b", OURS),
            bound(3, "c", claim="b", scheduler=STOCK),
            bound(4, "d", claim="b"),
            free(5, "a"),
        ],
        ("ns/a", "ns/b", "gave way"),
        {"stood": True, "joined": False},
    ),
    "both of ours are bound": (
        [allocated(1, "a", OURS), bound(2, "a"), allocated(3, "b", OURS), bound(4, "b"), free(5, "b")],
        ("ns/a", "ns/b", "ran out"),
        {"stood": True, "shared": True},
    ),
    "the earlier one gives way, and only then the later one is bound": (
        [allocated(1, "a", OURS), allocated(2, "b", OURS), free(3, "a"), bound(4, "b")],
        ("ns/a", "ns/b", "gave way"),
        {"stood": False, "shared": False, "until": 3},
    ),
    "the in-tree scheduler writes second onto ours": (
        [allocated(1, "a", OURS), bound(2, "a"), allocated(3, "b", IN_TREE), bound(4, "b"), free(5, "a")],
        ("ns/a", "ns/b", "ran out"),
        {"stood": True, "shared": True, "first_writer": OURS, "second_writer": IN_TREE},
    ),
    "ours writes second onto the in-tree scheduler's": (
        [allocated(1, "a", IN_TREE), allocated(2, "b", OURS), free(3, "b"), bound(4, "a")],
        ("ns/a", "ns/b", "taken back"),
        {"stood": False, "shared": False, "first_writer": IN_TREE, "second_writer": OURS},
    ),
    "the pod of the earlier one is over before the later one is written": (
        [allocated(1, "a", OURS), bound(2, "a", "Succeeded"), allocated(3, "b", IN_TREE), bound(4, "b"), free(5, "a")],
        ("ns/a", "ns/b", "ran out"),
        {"stood": True, "shared": False},
    ),
    "a claim that goes lets its device go": (
        [allocated(1, "a", OURS), allocated(2, "b", OURS), free(3, "b", gone=True)],
        ("ns/a", "ns/b", "taken back"),
        {"until": 3},
    ),
    "nobody lets go": (
        [allocated(1, "a", OURS), allocated(2, "b", IN_TREE)],
        ("ns/a", "ns/b", "open"),
        {"until": 0, "stood": False},
    ),
}


@pytest.mark.parametrize(("versions", "expected", "more"), STORIES.values(), ids=STORIES)
def test_an_overlap_is_told_with_its_writers_and_its_end(
    versions: list[Version], expected: tuple[str, str, str], more: dict[str, Any]
) -> None:
    overlap = only(told(*versions))
    assert (overlap.first, overlap.second, overlap.ending) == expected
    assert {name: getattr(overlap, name) for name in more} == more


@pytest.mark.parametrize(
    "versions",
    [
        [allocated(1, "a", OURS), free(2, "a"), allocated(3, "b", OURS)],
        [allocated(1, "a", OURS), free(2, "a", gone=True), allocated(3, "b", IN_TREE)],
        [allocated(1, "a", OURS), allocated(2, "b", OURS, OTHER)],
        [allocated(1, "a", OURS), allocated(1, "a", OURS), allocated(2, "a", OURS)],
        [allocated(1, "a", OURS), allocated(3, "a", OURS, OTHER), allocated(4, "b", IN_TREE)],
    ],
    ids=["let go before", "deleted before", "another device", "the same claim again", "moved to another device"],
)
def test_a_device_that_one_claim_has_at_a_time_is_no_overlap(versions: list[Version]) -> None:
    assert told(*versions).overlaps == []


def test_versions_may_come_in_any_order() -> None:
    versions: list[Version] = [allocated(1, "a", OURS), allocated(2, "b", OURS), bound(3, "a"), free(4, "b")]
    assert told(*reversed(versions)).overlaps == told(*versions).overlaps


def test_each_device_and_each_pair_of_claims_counts() -> None:
    history = told(
        allocated(1, "a", OURS, GPU, OTHER), allocated(2, "b", IN_TREE, GPU, OTHER), allocated(3, "c", IN_TREE)
    )
    found = [(overlap.device, overlap.first, overlap.second) for overlap in history.overlaps]
    assert found == [(GPU, "ns/a", "ns/b"), (OTHER, "ns/a", "ns/b"), (GPU, "ns/a", "ns/c"), (GPU, "ns/b", "ns/c")]
    assert [overlap.device for overlap in history.by(IN_TREE, OURS)] == [GPU, OTHER, GPU]
    assert history.by(OURS) == []


def test_a_device_is_taken_again_after_another_claim_has_let_it_go() -> None:
    history = told(
        allocated(1, "a", IN_TREE), allocated(2, "b", OURS), free(3, "b"), allocated(4, "c", IN_TREE), free(5, "a")
    )
    assert [(overlap.second, overlap.again) for overlap in history.overlaps] == [("ns/b", False), ("ns/c", True)]


def test_a_claim_that_is_allocated_anew_begins_anew() -> None:
    history = told(
        allocated(1, "a", OURS), allocated(2, "b", OURS), free(3, "b"), free(4, "a"), allocated(5, "a", IN_TREE)
    )
    history.replay([allocated(6, "b", OURS)])
    assert [(overlap.first_writer, overlap.again) for overlap in history.overlaps] == [(OURS, False), (IN_TREE, False)]
    assert dict(history.allocations) == {OURS: 3, IN_TREE: 1}
    assert history.held == ["ns/a", "ns/b"]


def test_a_pod_is_bound_and_runs_only_with_its_claims() -> None:
    history = told(
        bound(1, "no-claim"),
        free(2, "empty"),
        bound(3, "empty", "Running"),
        allocated(4, "foreign", OURS, pod="somebody"),
        bound(5, "foreign"),
        allocated(6, "good", OURS, OTHER),
        bound(7, "good"),
        bound(8, "good", "Running"),
        bound(9, "good", "Succeeded"),
    )
    assert history.wrong == [
        "pod ns/no-claim is bound although claim ns/no-claim is not allocated",
        "pod ns/empty is bound although claim ns/empty is not allocated",
        "pod ns/empty is running although claim ns/empty is not allocated",
        "pod ns/foreign is bound although claim ns/foreign is not reserved for it",
    ]
    assert sorted(history.ran) == ["ns/empty", "ns/good"]
    assert history.bound["ns/good"].version == 7


# --- what the API server says -----------------------------------------------------------------------------------------


def managed(manager: str, *status: str) -> dict[str, Any]:
    fields: dict[str, Any] = {f"f:{name}": {} for name in status}
    return {"manager": manager, "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": fields}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([managed(OURS, "allocation", "reservedFor")], OURS),
        ([managed(IN_TREE, "allocation"), managed("kube-controller-manager", "reservedFor")], IN_TREE),
        ([managed(OURS, "reservedFor"), managed(IN_TREE, "allocation")], IN_TREE),
        ([{"manager": OURS, "fieldsV1": {"f:metadata": {"f:finalizers": {}}}}], ""),
        ([], ""),
    ],
    ids=["ours", "theirs, reserved by the controller", "theirs, reserved by ours", "only the finalizer", "nobody"],
)
def test_the_writer_is_who_manages_the_allocation(fields: list[dict[str, Any]], expected: str) -> None:
    assert writer({"metadata": {"managedFields": fields}}) == expected


def test_a_claim_is_read_from_an_answer_of_the_api_server() -> None:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    claim = {
        "metadata": {
            "resourceVersion": "17", "uid": "u", "name": "c", "namespace": "ns",
            "managedFields": [managed(OURS, "allocation")],
        },
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": "p"}]},
    }  # fmt: skip
    assert claim_version(claim) == ClaimVersion(17, "u", "ns/c", frozenset((GPU,)), OURS, frozenset(("p",)))
    meta = {"resourceVersion": "18", "uid": "u", "name": "c", "namespace": "ns"}
    assert claim_version({"metadata": meta}, gone=True) == ClaimVersion(18, "u", "ns/c", gone=True)


def test_a_pod_is_read_with_the_claims_that_it_names_and_those_that_were_made_for_it() -> None:
    entries = [{"name": "own", "resourceClaimName": "c"}, {"name": "made", "resourceClaimTemplateName": "t"}]
    pod = {
        "metadata": {"resourceVersion": "9", "uid": "u", "name": "p", "namespace": "ns"},
        "spec": {"schedulerName": "s", "nodeName": "node-1", "resourceClaims": entries},
        "status": {"phase": "Running", "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-t-x"}]},
    }
    assert pod_version(pod) == PodVersion(9, "u", "ns/p", "s", ("ns/c", "ns/p-t-x"), "node-1", "Running")
