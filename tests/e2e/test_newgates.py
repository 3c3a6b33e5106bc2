"""Features that Kubernetes 1.37 adds: on in the API server, off in kube-scheduler, which needs none of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dra_extender.api.errors import RejectedError
from tests.e2e.case import Case
from tests.e2e.components import offered, release
from tests.e2e.controlplane import DRA_FEATURES, ControlPlane
from tests.e2e.ground import Ground
from tests.e2e.skipping import skip_without
from tests.support.allocation.newgates import NEW

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("it rests on features that are off")]

GATES = dict.fromkeys(
    (*NEW, "DRANodeAllocatableResources", "DRAPartitionableDevicesType", "DRAResourcePoolStatus"), True
)
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
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
        ground.extender.environment["DRA_EXTENDER_FEATURE_GATES"] = ",".join(
            f"{gate}=true" for gate in GATES if gate != "DRAResourcePoolStatus"
        )
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


def cpus(amount: str, count: int) -> list[Json]:
    """Devices that are this number of CPUs each."""
    mapping = {"cpu": {"mapping": {"deviceMultiplier": amount}}}
    return [{"name": f"device-{index}", "nodeAllocatableResources": mapping} for index in range(count)]


def small_node(case: Case, ground: Ground, pods: int = 10) -> str:
    """A node of four CPUs whose kubelet counts what devices take."""
    name = case.node_added(pods)
    declare(ground, name)
    return name


def declare(ground: Ground, node: str) -> None:
    """Without it the API server takes no slice for the node whose devices take something of it.

    The API server reads the feature from a watch of its own: wait until it takes a slice (none is made)."""
    path, feature = f"/api/v1/nodes/{node}/status", "DRANodeAllocatableResources"
    found = ground.get(f"/api/v1/nodes/{node}")["status"].get("declaredFeatures", [])
    ground.patch(path, {"status": {"declaredFeatures": sorted({*found, feature})}})
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "trial.example.com", "nodeName": node, "pool": pool, "devices": cpus("1", 1)}
    trial = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "trial"}, "spec": spec}

    def taken() -> bool:
        try:
            ground.run(
                ground.client.create("/apis/resource.k8s.io/v1/resourceslices?dryRun=All", msgspec.json.encode(trial))
            )
        except RejectedError:
            return False
        return True

    ground.eventually(taken, f"{feature} of {node}")


def using(claim: str, cpu: str = "100m") -> Json:
    """Of a pod whose container uses the claim."""
    resources = {"requests": {"cpu": cpu}, "claims": [{"name": "c0"}]}
    return {"containers": [{"name": "main", "image": "none", "resources": resources}], "resourceClaims": [
        {"name": "c0", "resourceClaimName": claim}
    ]}  # fmt: skip


def amounts_of(case: Case, ground: Ground, pod: str) -> list[Json]:
    found: list[Json] = ground.get(case.pod_path(pod))["status"].get("nodeAllocatableResourceClaimStatuses", [])
    return found


def test_a_device_that_brings_more_cpu_than_the_node_has_left_sends_the_pod_elsewhere(
    case: Case, ground: Ground
) -> None:
    small = small_node(case, ground)
    case.publish(small, cpus("3", 2))
    for name in ("first", "refused", "second"):
        case.claim(name)
    case.pod("first", node=small, **using("first", cpu="1"))
    case.until_bound("first")
    case.pod("refused", node=small, **using("refused", cpu="1"))
    case.until_refused("refused", "Insufficient cpu")
    declare(ground, "node-1")
    case.publish("node-1", cpus("1", 1))
    case.pod("second", **using("second", cpu="1"))
    assert case.until_bound("second") == "node-1"
    mapping = [{"name": "cpu", "quantity": "1"}]
    expected = [{"resourceClaimName": "second", "containers": ["main"], "mapping": mapping}]
    assert amounts_of(case, ground, "second") == expected
    case.delete_pod("first")
    assert case.until_bound("refused") == small


def test_pods_in_flight_never_take_more_of_a_node_than_it_has(case: Case, ground: Ground) -> None:
    small = small_node(case, ground, pods=20)
    case.publish(small, cpus("1500m", 12))
    names = [f"pod-{index}" for index in range(12)]
    for name in names:
        case.claim(name)
    for name in names:
        case.pod(name, **using(name))
    case.until_refused(names[-1], "Insufficient cpu")
    for _ in range(3):
        ground.eventually(lambda: len(case.bound(names)) == 2, "two pods on the node")
        for name in set(names) - set(case.bound(names)):
            case.until_refused(name, "Insufficient cpu")
        assert [len(amounts_of(case, ground, name)) for name in names] == [
            int(name in case.bound(names)) for name in names
        ]
        for name in case.bound(names):
            case.delete_pod(name)
            names.remove(name)


def test_a_claim_that_is_cpu_is_for_one_pod(case: Case, ground: Ground) -> None:
    declare(ground, "node-2")
    case.publish("node-2", cpus("1", 1))
    case.claim("cores")
    case.pod("first", **using("cores"))
    case.until_bound("first")
    case.pod("second", **using("cores"))
    case.until_refused("second", "node allocatable resource claim cores has a mapped device and cannot be shared")
    assert case.bound(["first", "second"]) == ["first"]


def test_pods_pay_the_overhead_of_a_claim_that_they_share(case: Case, ground: Ground) -> None:
    small = small_node(case, ground)
    overhead = {"cpu": {"overhead": {"perPod": "1500m", "perContainer": "250m"}}}
    case.publish(small, [{"name": "device-0", "nodeAllocatableResources": overhead}])
    case.claim("shared")
    for name in ("first", "second"):
        case.pod(name, **using("shared"))
        case.until_bound(name)
        (found,) = amounts_of(case, ground, name)
        assert found["overhead"] == [{"name": "cpu", "perPod": "1500m", "perContainer": "250m"}]
    case.pod("third", **using("shared"))
    case.until_refused("third", "Insufficient cpu")


def test_the_partitions_of_each_type_are_counted(case: Case, ground: Ground) -> None:
    attribute = f"{case.driver}/profile"
    pool = {"name": "parts", "generation": 1, "resourceSliceCount": 2}
    where = {"driver": case.driver, "nodeName": "node-1", "pool": pool}
    parts = [part(f"{kind}-{index}", "x") for kind, index in (("one", 0), ("one", 1), ("two", 0))]
    for item in parts:
        size, consumes = item["name"][:3], item["consumesCounters"][0]
        item["attributes"] = {"profile": {"string": size}}
        consumes["counters"]["slots"]["value"] = "1" if size == "one" else "2"
        del consumes["compatibilityGroups"]
    sets = {"sharedCounters": [{"name": "card", "counters": {"slots": {"value": "2"}}}]}
    contents: dict[str, Json] = {"sets": sets, "parts": {"devices": parts, "partitionTypeAttribute": attribute}}
    for name, content in contents.items():
        meta, spec = {"name": f"{case.name}-{name}"}, {**where, **content}
        case.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec})

    def types() -> dict[str, str]:
        found = ground.extender.ask(f"/insight/headroom?class={case.name}")["partitions"]
        return {each["type"]: f"{each.get('allocatable', 0)} of {each['total']}" for each in found}

    ground.eventually(lambda: types() == {"one": "2 of 2", "two": "1 of 1"}, "the slices")
    case.pod_with_claim("pod")
    case.until_bound("pod")
    ground.eventually(lambda: types() == {"one": "1 of 2", "two": "0 of 1"}, "the claim")
