"""The cause of a refusal is the one that a person has to act on, and a suggestion is one that can help."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import event_of, shortly
from tests.support.diagnosis.hardware import device_class, node, pool
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]

GPU = "gpu.example.com"
RESOURCE = "example.com/gpu"
BOUND = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
ID = {"driver": GPU, "pool": "n0-gpu", "device": "d0"}


def claim(requests: list[Json], **devices: Any) -> Json:
    spec = {"devices": {"requests": requests, **devices}}
    return {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}


def exactly(name: str = "r", **more: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **more}}


def pod(claims: bool = True, **more: Any) -> Json:
    spec = {"containers": [{"name": "main"}], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}] * claims}
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec | more}


def scene(*documents: Json, resource: str = "", gates: str = "") -> Scene:
    return Scene([node("n0"), device_class("gpu", f'device.driver == "{GPU}"', resource), *documents], gates=gates)


def attaching(*conditions: Json, since: str = "2026-01-01T00:00:00Z") -> Diagnosis:
    """Of a pod whose claim is allocated, with what the driver says about the device."""
    made = claim([exactly()])
    result = {"request": "r", **ID, **BOUND}
    made["status"] = {
        "allocation": {"devices": {"results": [result]}, "allocationTimestamp": since},
        "devices": [{**ID, "conditions": list(conditions)}],
    }
    return scene(pool("n0", GPU, [{"name": "d0", **BOUND}]), made, pod()).diagnose("p")


def test_a_device_that_could_not_be_attached_is_the_cause_with_what_its_driver_says() -> None:
    found = attaching({"type": "broken", "status": "True", "reason": "NoCable", "message": "port 7 is down"})
    problem = "device binding failed: claim=c, reason=NoCable, message=port 7 is down"
    text = f"the devices of claim c did not become ready: {problem}"
    assert (found.rule, found.summary, found.claim) == ("claim failed", text, "default/c")
    assert "deallocates the claim and tries again" in shortly(found, 500)
    event = event_of(found)
    assert event is not None and event.note == text


def test_a_device_that_was_not_attached_in_time_is_the_cause() -> None:
    found = attaching(since="2025-12-31T00:00:00Z")
    assert found.summary == "the devices of claim c did not become ready: device binding timeout: claim=c"
    assert attaching().state == "fits", "there is time"


def test_a_pod_that_fits_and_was_not_bound_has_the_error_of_the_last_attempt() -> None:
    error = "device binding failed: claim=c, reason=NoCable, message=port 7 is down"
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": error}
    waits = pod() | {"status": {"conditions": [condition]}}
    found = scene(pool("n0", GPU, [{"name": "d0"}]), claim([exactly()]), waits).diagnose("p")
    assert (found.state, found.summary) == ("fits", f"the last attempt to bind it failed: {error}")
    assert f"But the last attempt to bind it failed: {error}." in shortly(found, 500)
    refused = condition | {"reason": "Unschedulable", "message": "0/1 nodes are available"}
    waits = pod() | {"status": {"conditions": [refused]}}
    assert scene(pool("n0", GPU, [{"name": "d0"}]), claim([exactly()]), waits).diagnose("p").summary == ""


def test_a_resource_of_a_class_needs_the_feature_gate_and_no_driver() -> None:
    container = {"name": "main", "resources": {"requests": {RESOURCE: "1"}}}
    devices = pool("n0", GPU, [{"name": "d0"}])
    waits = pod(claims=False, containers=[container])
    found = scene(devices, waits, resource=RESOURCE, gates="DRAExtendedResource=false").diagnose("p")
    text = f"only device class gpu provides {RESOURCE}, and the feature gate DRAExtendedResource is off"
    assert (found.rule, found.summary) == ("feature gate", text)
    told = shortly(found, 500)
    assert "enable the feature gate" in told
    assert "install" not in told
    plugin = node("n1")
    plugin["status"]["allocatable"][RESOURCE] = "4"
    gates = "DRAExtendedResource=false"
    found = scene(devices, plugin, waits, resource=RESOURCE, gates=gates).diagnose("p")
    assert found.examples == ("n1",), "a device plugin provides it there"


def test_devices_on_two_nodes_are_suggested_for_two_pods() -> None:
    nics = [node("n1"), pool("n1", "nic.example.com", [{"name": "d0"}])]
    classes = device_class("nic", 'device.driver == "nic.example.com"')
    both = claim([exactly(), {"name": "n", "exactly": {"deviceClassName": "nic"}}])
    found = scene(pool("n0", GPU, [{"name": "d0"}]), *nics, classes, both, pod()).diagnose("p")
    assert (found.rule, found.remedies) == ("no node has all", ())
    assert "use several pods, each with claims of its own" in shortly(found, 500)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (("9.0.0", "12.4.0", "10.1.0"), "9.0.0, 10.1.0, 12.4.0"),
        (("L4", "H100", "A100"), "L4, H100, A100"),
    ],
    ids=["versions", "strings"],
)
def test_versions_are_told_from_the_oldest_to_the_newest(values: tuple[str, ...], told: str) -> None:
    kind = "version" if told.count(".") == 6 else "string"
    devices = [{"name": f"d{at}", "attributes": {"rank": {kind: value}}} for at, value in enumerate(values)]
    wanted = f'device.attributes["{GPU}"].rank == ' + ('semver("99.0.0")' if kind == "version" else '"none"')
    asked = exactly(selectors=[{"cel": {"expression": wanted}}])
    found = scene(pool("n0", GPU, devices), claim([asked]), pod()).diagnose("p")
    assert f"(the values are {told})" in found.summary


def test_no_attribute_is_suggested_in_which_all_devices_agree() -> None:
    """All have one driver version: with it the constraint would ask for nothing."""
    devices = [
        {"name": f"d{at}", "attributes": {"root": {"int": at}, "half": {"int": at // 2}, "version": {"int": 1}}}
        for at in range(4)
    ]
    asked = claim([exactly(count=2)], constraints=[{"matchAttribute": f"{GPU}/root"}])
    found = scene(pool("n0", GPU, devices), asked, pod()).diagnose("p")
    shorts = [remedy.short for remedy in found.remedies]
    assert f"matchAttribute {GPU}/half" in shorts
    asked = claim([exactly(count=4)], constraints=[{"matchAttribute": f"{GPU}/root"}])
    found = scene(pool("n0", GPU, devices), asked, pod()).diagnose("p")
    assert not any(remedy.short == f"matchAttribute {GPU}/version" for remedy in found.remedies)
    asked = claim([exactly(count=4)], constraints=[{"matchAttribute": f"{GPU}/versin"}])
    found = scene(pool("n0", GPU, devices), asked, pod()).diagnose("p")
    assert found.remedies[0].short == f"matchAttribute {GPU}/version", "a mistake is corrected"


def test_no_change_helps_that_makes_the_decision_on_a_node_an_error() -> None:
    """All devices of another class cannot be asked for while a pool is incomplete, whatever node is added."""
    wanted = {"name": "r", "exactly": {"deviceClassName": "gpus", "allocationMode": "All"}}
    incomplete = [node("n1"), pool("n1", "nic.example.com", [{"name": "d0"}], count=2)]
    found = scene(pool("n0", GPU, [{"name": "d0"}]), *incomplete, claim([wanted]), pod()).diagnose("p")
    assert (found.rule, [remedy.text for remedy in found.remedies]) == ("class missing", [])


def test_the_remedies_do_not_depend_on_the_order_in_which_nodes_became_known() -> None:
    """A command lists nodes by name, the service sees them come: both have to say the same."""
    nodes = [node(f"m{number:02}") for number in range(12)]
    devices = pool("m01", GPU, [{"name": "d0"}])
    waits = pod(nodeSelector={"kubernetes.io/hostname": "m11"})
    found = [scene(*known, devices, claim([exactly()]), waits).diagnose("p") for known in (nodes, nodes[::-1])]
    assert found[0].remedies == found[1].remedies
    assert "nodeSelector kubernetes.io/hostname=m01" in [remedy.short for remedy in found[0].remedies]


def test_few_of_many_scheduling_gates_are_named() -> None:
    gates = [{"name": f"example.com/gate-{number}"} for number in range(1_000)]
    found = scene(pool("n0", GPU, [{"name": "d0"}]), claim([exactly()]), pod(schedulingGates=gates)).diagnose("p")
    assert "example.com/gate-7 and 992 other gates is removed" in found.summary
    assert "gate-8" not in found.remedies[0].text
