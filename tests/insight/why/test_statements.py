"""What statements say of the cluster is so: cases that `test_truth` has found."""

from __future__ import annotations

from typing import Any

from dra_extender.insight.why.redaction import redacted
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import shortly
from dra_extender.scheduling.reader import Reader
from tests.support.diagnosis.hardware import CORDONED, ROOT, device_class, node, partitions, pool
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]

GPU = "gpu.example.com"
CLASSES = [device_class(name, f'device.driver == "{name}.example.com"') for name in ("gpu", "nic", "mig")]
ALL: Json = {"deviceClassName": "gpu", "allocationMode": "All"}
LARGE: Json = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": f'device.attributes["{GPU}"].model == "large"'}}],
}


def device(name: str, root: str = "", **more: Any) -> Json:
    return {"name": name, "attributes": {ROOT: {"string": root}} if root else {}, **more}


def claim(*requests: Json, constraint: str = "", name: str = "c") -> Json:
    asked = [{"name": f"r{number}", "exactly": request} for number, request in enumerate(requests)]
    devices = {"requests": asked, "constraints": [{constraint: ROOT}] if constraint else []}
    return {"kind": "ResourceClaim", "metadata": {"name": name}, "spec": {"devices": devices}}


def pod(name: str, *claims: str) -> Json:
    entries = [{"name": each, "resourceClaimName": each} for each in claims]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [], "resourceClaims": entries}}


def diagnosed(*documents: Json, gates: str = "") -> Diagnosis:
    return Scene([*CLASSES, *documents, pod("p", "c")], gates=gates).diagnose("p")


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_selector_that_fails_for_a_device_of_one_node_keeps_the_pod_from_all_nodes() -> None:
    large = device("d0", attributes={"model": {"string": "large"}})
    pools = [pool("n0", GPU, [device("d0")]), pool("n1", GPU, [large])]
    found = diagnosed(node("n0"), node("n1"), *pools, claim(LARGE))
    assert (found.state, found.fits, found.rule) == ("refused", 0, "error")
    assert "add a node like n1" not in [remedy.short for remedy in found.remedies]


def test_the_scheduler_evaluates_no_selector_for_a_node_that_it_excludes_before() -> None:
    large = device("d0", attributes={"model": {"string": "large"}})
    pools = [pool("n0", GPU, [device("d0")]), pool("n1", GPU, [large])]
    found = diagnosed(node("n0", unschedulable=True, taints=[CORDONED]), node("n1"), *pools, claim(LARGE))
    assert (found.state, found.examples) == ("fits", ("n1",))


def test_an_incomplete_pool_of_one_node_keeps_a_pod_that_wants_all_devices_from_all_nodes() -> None:
    pools = [pool("n0", GPU, [device("d0")], count=2), pool("n1", GPU, [device("d0")])]
    found = diagnosed(node("n0"), node("n1"), *pools, claim(ALL))
    problem = f"asks for all devices, but resource pool {GPU}/n0-gpu is currently being updated"
    assert (found.state, found.summary) == ("refused", f"claim default/c, request r0: {problem}")


def test_an_error_of_the_search_is_not_called_unsatisfiable() -> None:
    """The first NIC has another root than the GPU; the search ends there, although the second has the same."""
    pools = [
        pool("n0", GPU, [device("d0", "b")]),
        pool("n0", "nic.example.com", [device("d0", "a"), device("d1", "b")]),
    ]
    found = diagnosed(node("n0"), *pools, claim({"deviceClassName": "nic"}, ALL, constraint="matchAttribute"))
    problem = f"cannot add device {GPU}/n0-gpu/d0 because a claim constraint would not be satisfied"
    assert found.summary == f"claim default/c, request r1: {problem}"


def test_of_a_resource_that_nobody_provides_it_is_said_what_provides_it() -> None:
    container = {"name": "m", "resources": {"requests": {"nvidia.com/gpu": "2"}}}
    waits = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    found = Scene([node("n0"), node("n1", taints=[CORDONED]), *CLASSES, waits]).diagnose("p")
    assert "install the driver whose DeviceClass has extendedResourceName nvidia.com/gpu" in shortly(found, 500)
    some = node("n0")
    some["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    found = Scene([some, node("n1"), waits]).diagnose("p")
    assert "install" not in shortly(found, 500)


# --- devices ----------------------------------------------------------------------------------------------------------


def test_devices_with_binding_conditions_count_for_their_own_class_only() -> None:
    off = device("d0", bindingConditions=["ready"], bindingFailureConditions=["broken"])
    cluster = [node("n0"), pool("n0", GPU, [off])]
    found = diagnosed(*cluster, claim({"deviceClassName": "nic"}), gates="DRADeviceBindingConditions=false")
    assert found.summary == "claim c: no node has a device of class nic"
    found = diagnosed(*cluster, claim({"deviceClassName": "gpu"}), gates="DRADeviceBindingConditions=false")
    assert "node n0 has 1 of class gpu: 1 has binding conditions, which are turned off" in found.summary


def test_devices_that_requests_share_are_not_counted_for_each_of_them() -> None:
    """The only GPU has room for both requests; it is the NIC that is missing."""
    memory = {"memory": {"value": "40Gi", "requestPolicy": {"default": "10Gi", "validRange": {"min": "1Gi"}}}}
    pools = [
        pool("n0", GPU, [device("d0", "a", allowMultipleAllocations=True, capacity=memory)]),
        pool("n0", "nic.example.com", [device("d0", "b")]),
    ]
    gpu, nic = {"deviceClassName": "gpu"}, {"deviceClassName": "nic"}
    found = diagnosed(node("n0"), *pools, claim(gpu, gpu, nic, constraint="matchAttribute"))
    assert found.rule != "together", found.summary


def test_the_claim_for_extended_resources_has_no_name_yet() -> None:
    pools = [pool("n0", "nic.example.com", [device("d0"), device("d1")])]
    resource = device_class("resource", 'device.driver == "nic.example.com"', "example.com/nic")
    waits = pod("p", "c")
    waits["spec"]["containers"] = [{"name": "m", "resources": {"requests": {"example.com/nic": "1"}}}]
    nics = claim({"deviceClassName": "nic", "count": 2})
    found = Scene([*CLASSES, resource, node("n0"), *pools, nics, waits]).diagnose("p")
    text = "claim c and the extended resources need 3 devices together, node n0 has 2 that can be allocated"
    assert found.summary == text


def test_the_counter_that_is_short_is_named_with_its_users() -> None:
    def profile(name: str, count: int = 1) -> Json:
        expression = f'device.attributes["mig.example.com"].profile == "{name}"'
        return {"deviceClassName": "mig", "count": count, "selectors": [{"cel": {"expression": expression}}]}

    busy = [claim(profile("half"), name="of-busy"), pod("busy", "of-busy")]
    scene = Scene([*CLASSES, node("n0"), *partitions("n0"), *busy]).settled()
    found = scene.with_more([claim(profile("quarter", 3)), pod("p", "c")]).diagnose("p")
    text = (
        "claim c cannot be satisfied on node n0: counter card/memory has 40Gi left, "
        "the requested devices need at least 60Gi in total, whichever are chosen"
    )
    assert found.summary == f"{text} (used by default/busy)"
    assert redacted(found, Reader("other")).summary == f"{text} (used by 1 claim of another namespace)"


def test_devices_that_suffice_without_the_constraint_are_not_called_too_few() -> None:
    """Both requests need the only root with two devices."""
    devices = [device("d0", "a"), device("d1", "a"), device("d2", "b")]
    pairs = claim({"deviceClassName": "gpu", "count": 2}, {"deviceClassName": "gpu"}, constraint="matchAttribute")
    found = diagnosed(node("n0"), pool("n0", GPU, devices), pairs)
    assert (
        found.summary == "claim c: 3 devices with the same pcieRoot requested, node n0 has at most 2 such devices free"
    )
