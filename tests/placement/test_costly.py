"""Selectors that cost too much: pods with one get no policy, and others keep theirs."""

from __future__ import annotations

import gc

import pytest

from dra_extender.allocation.requests import FILTER_BYTES, Filters, PreparedClaims, prepare
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from dra_extender.placement import placement as placements
from dra_extender.placement.podshape import filters_of
from dra_extender.placement.policies import MOST_PARTS
from tests.support.placement.gpunodes import NAMESPACE, GpuNodes, gpus

TEN = str(list(range(10)))
HEAVY = f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, a + b + c + d >= 0))))"


def heavy(name: str = "heavy", selector: str = HEAVY) -> ResourceClaim:
    """True for every device, after ten thousand steps."""
    exactly = {
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        "selectors": [{"cel": {"expression": selector}}], "capacity": {"requests": {"milli": "500"}},
    }  # fmt: skip
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return convert(ResourceClaim, {"metadata": metadata, "spec": spec})


def half_used() -> GpuNodes:
    made = GpuNodes("fragmentation")
    made.add("idle", 4)
    made.add("used", 4)
    made.occupy("used", 500)
    for number in range(4):
        made.learner.learn(made.pod(f"whole-{number}"), [gpus()])
        made.learner.learn(made.pod(f"half-{number}"), [gpus(milli=500)])
    return made


def test_a_pod_with_a_selector_that_costs_too_much_gets_no_policy() -> None:
    made = half_used()
    wanted = heavy(selector=f"{HEAVY} && true")  # answers are remembered by selector: these are this test's own
    for _ in range(3):
        assert made.placement.choose(made.pod("p"), [wanted], made.names) == ""
    assert made.placement.chooser(made.pod("p"), [wanted], "used") is None
    assert made.devices(made.pod("p"), "used", wanted) == "gpu-0"


def test_others_keep_their_policy_and_their_weights() -> None:
    made = half_used()
    assert made.placement.choose(made.pod("p"), [gpus(milli=500)], made.names) == "used"
    for number in range(3):
        made.learner.learn(made.pod(f"heavy-{number}"), [heavy(f"heavy-{number}")])
        made.placement.choose(made.pod("h"), [heavy()], made.names)
        version = made.learner.fragmentation.version
        made.learner.learn(made.pod(f"more-{number}"), [gpus()])
        for _ in range(2):  # the first question finds out that the shape has to be forgotten
            chosen = made.placement.choose(made.pod("p"), [gpus(milli=500)], made.names)
        assert chosen == "used"
        assert made.learner.fragmentation.version > version
    learned = [filter for shape, _ in made.learner.workload.frequencies() for filter in filters_of(shape)]
    assert learned
    assert [filter for filter in learned if HEAVY in filter.selectors] == []


def test_what_pods_asked_for_is_remembered_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "REMEMBERED_BYTES", 100_000)
    made = half_used()
    for number in range(50):
        made.placement.choose(made.pod("p"), [heavy(f"c{number}", f"{number} >= 0")], made.names)
    assert 3 < len(made.placement._shapes) <= 100_000 // FILTER_BYTES


def test_a_selector_that_costs_too_much_is_forgotten_with_its_last_claim() -> None:
    made = half_used()
    filters = Filters()
    cluster = made.placement._cluster
    prepared = prepare([heavy()], cluster.classes, cluster.features, filters)
    assert isinstance(prepared, PreparedClaims)
    made.placement.costly.add(prepared.requests[0].asks[0].filter)
    del prepared, filters
    gc.collect()
    assert len(made.placement.costly) == 0


def test_a_pod_with_too_many_requests_does_not_count_as_workload() -> None:
    """40 pods that named 896 requests each took a second of each filter call of anybody."""
    made = half_used()
    known = len(list(made.learner.workload.frequencies()))
    for number in range(3):
        claims = [gpus(name=f"c{number}-{index}") for index in range(MOST_PARTS + 1)]
        made.learner.learn(made.pod(f"large-{number}"), claims)
        made.learner.learn(made.pod(f"small-{number}"), claims[: 2 + number])
    assert len(list(made.learner.workload.frequencies())) == known + 3
