"""Features that Kubernetes 1.37 adds: on in the API server, off in kube-scheduler, which needs none of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.case import Case
from tests.e2e.components import offered, release
from tests.e2e.controlplane import DRA_FEATURES, ControlPlane
from tests.e2e.ground import Ground
from tests.e2e.skipping import skip_without
from tests.support.allocation.newgates import NEW

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("it rests on features that are off")]

GATES = dict.fromkeys(NEW, True)
Json = dict[str, Any]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A second control plane: what is off by default stays out of all other tests."""
    skip_without(GATES, offered(GATES), "v{}.{}".format(*release()))
    with ControlPlane(tmp_path_factory.mktemp("newgates"), feature_gates=offered({**DRA_FEATURES, **GATES})) as plane:
        plane.feature_gates = offered(DRA_FEATURES)  # those of kube-scheduler, which starts later
        yield plane


@pytest.fixture(scope="module")
def ground(plane: ControlPlane) -> Iterator[Ground]:
    with Ground(plane) as ground:
        ground.extender.stop()
        ground.extender.environment["DRA_EXTENDER_FEATURE_GATES"] = ",".join(f"{gate}=true" for gate in NEW)
        ground.extender.start()
        yield ground


def devices_of(case: Case, claim: str) -> list[str]:
    return [result["device"] for result in case.results(claim)]


def test_a_range_of_fractions(case: Case) -> None:
    policy = {"default": "200m", "validRange": {"min": "200m", "max": "1", "step": "100m"}}
    capacity = {"cores": {"value": "1", "requestPolicy": policy}}
    case.publish("node-1", [{"name": "core", "allowMultipleAllocations": True, "capacity": capacity}])
    case.claim("part", case.request(capacity={"requests": {"cores": "250m"}}))
    case.pod("pod", "part")
    case.until_runs("pod")
    assert [result["consumedCapacity"] for result in case.results("part")] == [{"cores": "300m"}]


def part(name: str, group: str) -> Json:
    consumes = {"counterSet": "card", "counters": {"slots": {"value": "1"}}, "compatibilityGroups": [group]}
    return {"name": name, "consumesCounters": [consumes]}


def test_compatibility_groups(case: Case, ground: Ground) -> None:
    pool = {"name": "cards", "generation": 1, "resourceSliceCount": 2}
    where = {"driver": case.driver, "nodeName": "node-1", "pool": pool}
    sets = [{"name": "card", "counters": {"slots": {"value": "8"}}}]
    parts = [part("compute-0", "compute"), part("display-0", "display"), part("compute-1", "compute")]
    for name, content in {"sets": {"sharedCounters": sets}, "parts": {"devices": parts}}.items():
        meta = {"name": f"{case.name}-{name}"}
        case.apply(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": meta,
                "spec": {**where, **content},
            }
        )
    case.claim("two", case.request(count=2))
    case.pod("pod", "two")
    case.until_runs("pod")
    assert devices_of(case, "two") == ["compute-0", "compute-1"]
    case.claim("other")
    case.pod("waits", "other")
    case.until_refused("waits", "cannot allocate all claims")


def test_derived_attributes(case: Case) -> None:
    case.publish("node-1", [{"name": f"d{index}", "attributes": {"slot": {"int": index}}} for index in range(4)])
    side = {"name": f"{case.driver}/side", "expression": f'device.attributes["{case.driver}"].slot % 2'}
    request = case.request(count=2, derivedAttributes=[side])
    case.claim("pair", request, constraints=[{"requests": ["r"], "matchAttribute": f"{case.driver}/side"}])
    case.pod("pod", "pair")
    case.until_runs("pod")
    assert devices_of(case, "pair") == ["d0", "d2"]


def test_optional_node_operations(case: Case, ground: Ground) -> None:
    for node in ground.nodes[:2]:
        case.publish(node, 1, skipNodeOperations=["*"])
    status = {"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    ground.patch(f"/api/v1/nodes/{ground.nodes[1]}/status", status)
    case.claim("one")
    case.pod("pod", "one")
    assert case.until_bound("pod") == ground.nodes[1]
    assert [result["skipNodeOperations"] for result in case.results("one")] == [["*"]]
