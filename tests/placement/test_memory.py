"""What placement remembers of pods that are gone: no more than its limits in bytes."""

from __future__ import annotations

import gc

import pytest

from dra_extender.allocation.requests import FILTER_BYTES
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from dra_extender.placement import freestates, policies
from dra_extender.placement import placement as placements
from dra_extender.placement.policies import PolicyName
from tests.support.placement.gpunodes import NAMESPACE, GpuNodes, gpus

BYTES = 200_000
PODS = 100


def tolerant(number: int) -> ResourceClaim:
    """A claim with a filter that no other claim has."""
    exactly = {
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        "tolerations": [{"key": f"key-{number}", "operator": "Exists"}],
    }  # fmt: skip
    metadata = {"name": f"c{number}", "namespace": NAMESPACE, "uid": f"c{number}"}
    return convert(
        ResourceClaim, {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    )


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "REMEMBERED_BYTES", BYTES)
    monkeypatch.setattr(policies, "REMEMBERED_BYTES", BYTES)


@pytest.mark.usefixtures("few_bytes")
@pytest.mark.parametrize(("policy", "places"), [("pack", 1), ("spread", 1), ("fragmentation", 3)])
def test_filters_of_pods_that_are_gone_are_kept_up_to_a_number_of_bytes(policy: PolicyName, places: int) -> None:
    """Among the shapes; with `fragmentation`, also in the workload and in the weights that follow from it."""
    made = GpuNodes(policy)
    for node in range(3):
        made.add(f"n{node}", 2, cpu=64 + node)
    filters = made.placement._filters
    for number in range(PODS):
        pod, claim = made.pod(f"p{number}"), tolerant(number)
        made.learner.learn(pod, [claim])
        assert made.placement.choose(pod, [claim], made.names) != ""
        assert made.plan(pod, "n0", claim).allocations
    assert len(filters._used) == PODS
    filters.clear()
    gc.collect()
    assert 3 < len(filters._used) <= places * BYTES // FILTER_BYTES


@pytest.mark.usefixtures("few_bytes")
def test_the_most_frequent_shapes_of_the_workload_stay_when_others_are_large() -> None:
    made = GpuNodes("fragmentation")
    made.add("n", 2)
    for number in range(3):
        made.learner.learn(made.pod(f"frequent-{number}"), [tolerant(PODS)])
    for number in range(PODS):
        made.learner.learn(made.pod(f"p{number}"), [tolerant(number)])
        counted = dict(made.learner.workload.frequencies())
        assert sum(shape.size for shape in counted) <= BYTES
    assert max(counted.values()) == 3 * min(counted.values())


def test_sets_of_free_devices_are_kept_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set of many unlike devices is large, and a question makes one for each device."""
    monkeypatch.setattr(freestates, "MOST_BYTES", 10**6)
    made = GpuNodes("pack")
    made.add_node("n", [{"name": f"gpu-{n}", "capacity": {"milli": {"value": str(1000 + n)}}} for n in range(100)])
    states, kept = made.learner.free_states, list[int]()
    for number in range(20):
        assert made.placement.choose(made.pod(f"p{number}"), [gpus()], made.names) == "n"
        kept.append(sum(16 * len(found.groups) for found in states._sets._by_groups.values()))
        made.occupy("n", *[0] * number, 1000)
    assert max(kept) < 10**6
    assert kept[0] < kept[1]
