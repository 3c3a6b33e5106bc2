"""The features of device allocation, each by its sample, with a look at what the API server stores in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.errors import RejectedError
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import GROUP, ResourceClaim
from dra_extender.kube.resources import RESOURCE_CLAIMS, discover
from embedded_cluster import hardware, manifests
from tests.e2e.case import Case
from tests.e2e.ground import NODES, Ground
from tests.e2e.space import Space

pytestmark = pytest.mark.e2e
needs = pytest.mark.needs

SAMPLES = Path(__file__).parents[2] / "manifests" / "samples"
NAMESPACE = "dra-samples"
ATTACHED, FAILED = "fabric.example.com/attached", "fabric.example.com/failed"

Apply = Callable[[str], "Sample"]


class Sample(Space):
    """The objects of a sample, and what became of them."""

    def __init__(self, ground: Ground, name: str) -> None:
        self.documents = manifests.read(SAMPLES / f"{name}.yaml")
        for document in self.documents:
            if document["kind"] == "DeviceTaintRule":
                served = ground.run(discover(ground.client))
                document["apiVersion"] = f"{GROUP}/{served.taint_rules}"
        namespaces = (d["metadata"]["namespace"] for d in self.documents if "namespace" in d["metadata"])
        super().__init__(ground, next(namespaces, NAMESPACE))

    def apply(self) -> None:
        self.ground.apply(*(d for d in self.documents if d["kind"] == "Namespace"))
        account = f"/api/v1/namespaces/{self.name}/serviceaccounts"
        self.ground.eventually(lambda: self.ground.get(account)["items"], "the service account")
        self.ground.apply(*(d for d in self.documents if d["kind"] != "Namespace"))

    def remove(self) -> None:
        """Delete everything but the namespace."""
        for document in reversed(self.documents):
            if document["kind"] != "Namespace":
                more = {"gracePeriodSeconds": 0} if document["kind"] == "Pod" else {}
                self.ground.delete(manifests.path_of(document), **more)

    def until_gone(self) -> None:
        """Until the claims are gone, and with them their hold on devices."""
        self.ground.eventually(lambda: not self.ground.claims(self.name), f"the end of claims in {self.name}")

    def all_results(self) -> list[dict[str, Any]]:
        names = [claim.metadata.name for claim in self.ground.claims(self.name) if claim.allocation is not None]
        return [result for name in names for result in self.results(name)]


@pytest.fixture(scope="module", autouse=True)
def gpus(ground: Ground) -> Iterator[None]:
    """Eight GPUs per node, small ones on the last, as in the embedded cluster."""
    device_class = {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}
    meta = {"name": "gpu.example.com"}
    ground.apply({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": meta, "spec": device_class})
    for index in range(NODES):
        ground.run(ground.driver.publish(hardware.gpus(index, 8)))
    yield
    for node in ground.nodes:
        ground.run(ground.driver.withdraw(hardware.GPU_DRIVER, node))
    ground.delete("/apis/resource.k8s.io/v1/deviceclasses/gpu.example.com")


@pytest.fixture
def sample(ground: Ground) -> Iterator[Apply]:
    """Applies a sample; everything is removed at the end, the last first."""
    applied: list[Sample] = []

    def apply(name: str) -> Sample:
        applied.append(Sample(ground, name))
        applied[-1].apply()
        return applied[-1]

    yield apply
    for made in reversed(applied):
        made.remove()
    for made in applied:
        made.until_gone()


def test_a_prioritized_list_takes_the_best_there_is(sample: Apply, ground: Ground) -> None:
    made = sample("prioritized")
    made.until_runs("prioritized")
    (result,) = made.results("best-available")
    assert result["request"] == "gpu/big"
    (call,) = ground.calls.calls("prioritize", f"{NAMESPACE}/prioritized")
    scores = {score["Host"]: score["Score"] for score in call.answer}
    assert scores[made.node("prioritized")] == max(scores.values()) > scores["node-4"]


def test_admin_access_takes_nothing_away(sample: Apply, ground: Ground, case: Case) -> None:
    made = sample("admin-access")
    made.until_runs("monitor")
    results = made.results("watch-all")
    assert [result["adminAccess"] for result in results] == [True] * 8
    node = made.node("monitor")
    case.claim("all", {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All"}})
    case.pod("user", "all", node=node)
    case.until_runs("user")
    assert {result["device"] for result in case.results("all")} == {result["device"] for result in results}
    request = {"deviceClassName": "gpu.example.com", "allocationMode": "All", "adminAccess": True}
    with pytest.raises(RejectedError, match="admin-access"):
        case.claim("not-allowed", {"name": "r", "exactly": request})


@needs("DRAPartitionableDevices")
def test_partitions_share_what_the_whole_has(sample: Apply, ground: Ground) -> None:
    made = sample("partitionable")
    made.until_runs("half-a", "half-b")
    made.until_refused("whole", "Unschedulable:")
    assert sorted(result["device"] for result in made.all_results()) == ["gpu-0-half-0", "gpu-0-half-1"]
    for name in ("half-a", "half-b"):
        ground.delete(made.pod_path(name), gracePeriodSeconds=0)
    made.until_runs("whole")
    assert [result["device"] for result in made.all_results()] == ["gpu-0"]


@needs("DRAConsumableCapacity")
def test_bandwidth_is_shared_until_it_is_used_up(sample: Apply, ground: Ground) -> None:
    made = sample("consumable-capacity")
    ground.eventually(lambda: len(made.all_results()) == 2, "two shares")
    pods = ("traffic-a", "traffic-b", "traffic-c")
    ground.eventually(lambda: [made.phase(name) for name in pods].count("Running") == 2, "two pods")
    results = made.all_results()
    consumed = [Quantity.parse(result["consumedCapacity"]["bandwidth"]) for result in results]
    assert consumed == [Quantity.parse("40G")] * 2
    assert len({result["shareID"] for result in results}) == 2
    (last,) = (name for name in pods if made.phase(name) != "Running")
    made.until_refused(last, "Unschedulable:")


@needs("DRADeviceTaints")
def test_a_tainted_device_is_for_those_who_tolerate_it(sample: Apply) -> None:
    made = sample("taints")
    made.until_runs("tolerant")
    made.until_refused("careful", "Unschedulable:")
    (result,) = made.results("tolerant")
    assert result["tolerations"][0]["key"] == "flaky.example.com/errors"


@needs("DRADeviceTaintRules")
def test_a_taint_rule_evicts_and_keeps_away_until_it_is_deleted(sample: Apply, ground: Ground) -> None:
    made = sample("features/taint-rule")
    made.until_runs("worker")
    rule = sample("features/taint-rule-out-of-use")
    ground.eventually(lambda: not made.phase("worker"), "the eviction")
    ground.eventually(lambda: not made.all_results(), "the end of the allocation")
    again = [document for document in made.documents if document["kind"] == "Pod"]
    ground.apply(*again)
    made.until_refused("worker", "Unschedulable:")
    for document in rule.documents:
        ground.delete(manifests.path_of(document))
    made.until_runs("worker")
    assert [result["device"] for result in made.results("worker")] == ["accelerator-0"]


def claim_of(ground: Ground, namespace: str, name: str) -> ResourceClaim:
    """The claim as stored: a watch may still show what was deallocated."""
    return convert(ResourceClaim, ground.get(RESOURCE_CLAIMS.path(namespace, name)))


def report(ground: Ground, namespace: str, name: str, condition: str) -> str:
    """As the driver of a fabric reports on the device that the claim has been given; returns the device."""

    def allocated() -> bool:
        return claim_of(ground, namespace, name).allocation is not None

    ground.eventually(allocated, "the allocation")
    claim = claim_of(ground, namespace, name)
    assert claim.allocation is not None
    device = claim.allocation.devices.results[0].id
    ground.run(ground.driver.report(claim, device, {condition: "True"}))
    return "/".join(device)


@needs("DRADeviceBindingConditions")
def test_a_pod_is_bound_when_its_device_is_attached(sample: Apply, ground: Ground) -> None:
    made = sample("binding-conditions")
    ground.eventually(lambda: made.results("attached"), "the allocation")
    (result,) = made.results("attached")
    assert result["bindingConditions"] == [ATTACHED]
    assert made.stored_claim("attached")["status"]["allocation"]["allocationTimestamp"]
    assert made.node("attached") == ""
    report(ground, NAMESPACE, "attached", ATTACHED)
    made.until_runs("attached")


def fabric(case: Case, *nodes: str) -> None:
    for node in nodes:
        conditions = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED]}
        case.publish(node, [{"name": "device-0", "bindsToNode": True, **conditions}])


@needs("DRADeviceBindingConditions")
def test_a_device_that_fails_to_attach_is_given_back_and_the_pod_tries_again(case: Case, ground: Ground) -> None:
    fabric(case, "node-1")
    case.pod_with_claim("one")
    report(ground, case.name, "one", FAILED)
    case.until_free("one")
    assert case.node("one") == ""
    report(ground, case.name, "one", ATTACHED)
    case.until_runs("one")


@needs("DRADeviceBindingConditions")
def test_a_device_that_never_attaches_is_given_back_in_time(case: Case, ground: Ground) -> None:
    fabric(case, "node-1")
    ground.extender.stop()
    ground.extender.environment["DRA_EXTENDER_BINDING_CONDITIONS_TIMEOUT"] = "3"
    try:
        ground.extender.start()
        case.pod_with_claim("one")
        ground.eventually(lambda: case.results("one"), "the allocation")
        case.until_free("one")
        assert case.node("one") == ""
    finally:
        del ground.extender.environment["DRA_EXTENDER_BINDING_CONDITIONS_TIMEOUT"]
        ground.extender.stop()
        ground.extender.start()
    report(ground, case.name, "one", ATTACHED)
    case.until_runs("one")


@needs("DRAExtendedResource")
def test_an_extended_resource_becomes_a_claim(sample: Apply, ground: Ground) -> None:
    made = sample("extended-resource")
    made.until_runs("extended")
    stored = made.stored_pod("extended")["status"]["extendedResourceClaimStatus"]
    assert [mapping["resourceName"] for mapping in stored["requestMappings"]] == ["example.com/gpu"]
    assert len(made.results(stored["resourceClaimName"])) == 2


def test_every_replica_gets_a_claim_and_a_device_of_its_own(sample: Apply, ground: Ground) -> None:
    made = sample("deployment")
    ground.eventually(lambda: len(made.all_results()) == 3, "three claims")
    devices = {(result["pool"], result["device"]) for result in made.all_results()}
    assert len(devices) == 3


def test_two_pods_share_one_device_on_one_node(sample: Apply) -> None:
    made = sample("shared")
    made.until_runs("shared-a", "shared-b")
    assert made.node("shared-a") == made.node("shared-b")
    assert made.reserved("shared-gpu") == {"shared-a", "shared-b"}


def test_a_matched_pair_sits_behind_one_pcie_root(sample: Apply) -> None:
    made = sample("matched-pair")
    made.until_runs("matched-pair")
    first, second = sorted(int(result["device"].rpartition("-")[2]) for result in made.results("pair"))
    assert (first // 2, first + 1) == (second // 2, second)


def test_mode_all_takes_every_matching_device_of_a_node(sample: Apply) -> None:
    made = sample("all")
    made.until_runs("takes-all")
    taken = {(result["pool"], result["device"]) for result in made.results("all-small-gpus")}
    assert taken == {("node-4", f"gpu-{index}") for index in range(8)}
