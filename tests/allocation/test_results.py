"""What an allocation says beyond its devices: admin access, conditions, where it can be used, configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.allocation.scenarios import (
    DRIVER,
    answer,
    ask,
    claim,
    device,
    device_class,
    devices,
    first_available,
    outcome,
    request,
    results,
    scenario,
)
from tests.support.allocation.scenarios import resource_slice as sl

Json = dict[str, Any]


def test_admin_access_is_told_only_when_true() -> None:
    claims = [claim(request("a", adminAccess=True), request("b", adminAccess=False))]
    assert [item.get("adminAccess") for item in results(scenario([sl(devices(2))], claims))] == [True, None]


def test_binding_conditions_are_copied_and_need_their_feature() -> None:
    content = [device("x", bindingConditions=["ready"], bindingFailureConditions=["broken"]), device("y")]
    slices = [sl(content)]
    found = results(scenario(slices, [claim(request("r", 2))]))
    assert [(item.get("bindingConditions"), item.get("bindingFailureConditions")) for item in found] == [
        (["ready"], ["broken"]),
        (None, None),
    ]
    assert outcome(scenario(slices, [claim(request("r"))], off=["DRAResourceClaimDeviceStatus"])) == [["r=y"]]


ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
ZONE_REVERSED = {"key": "zone", "operator": "In", "values": ["b", "a"]}
GPU = {"key": "gpu", "operator": "Exists"}


def terms(*expressions: Json) -> Json:
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [item]} for item in expressions]}}


def selecting(*requirements: Json) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}


ON_NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([{"allNodes": True}], None),
        ([{"nodeName": "node-1"}], ON_NODE),
        ([terms(ZONE)], selecting(ZONE)),
        ([terms(ZONE), terms(ZONE_REVERSED)], selecting(ZONE)),
        ([terms(ZONE), terms(GPU)], selecting(ZONE, GPU)),
        ([terms(ZONE), {"nodeName": "node-1"}], ON_NODE),
        ([{"allNodes": True}, terms(GPU)], selecting(GPU)),
        ([{"nodeName": "node-1"}, terms(GPU, GPU)], ON_NODE),
    ],
)
def test_the_node_selector_is_what_all_devices_agree_on(where: list[Json], expected: Json | None) -> None:
    slices = [sl([device(f"d{i}")], name=f"s{i}", pool=f"p{i}", where=place) for i, place in enumerate(where)]
    case = scenario(slices, [claim(request("r", len(where)))], labels={"zone": "a", "gpu": ""})
    assert answer(case)["allocations"][0].get("nodeSelector") == expected


def test_several_terms_cannot_be_put_into_one_node_selector() -> None:
    slices = [sl([device("x")], where=terms(ZONE, GPU))]
    assert outcome(scenario(slices, [claim(request("r"))], labels={"gpu": ""})) == (
        "error: create NodeSelector for claim claim: unsupported ResourceSlice.NodeSelector with 2 terms"
    )


def test_a_device_that_binds_to_its_node_fixes_the_node() -> None:
    slices = [sl([device("x", bindsToNode=True)], where={"allNodes": True})]
    assert answer(scenario(slices, [claim(request("r"))]))["allocations"][0]["nodeSelector"] == ON_NODE


def test_with_per_device_selection_the_devices_say_where_they_can_be_used() -> None:
    content = [device("far", nodeName="node-2"), device("any", allNodes=True), device("near", nodeName="node-1")]
    slices = [sl(content, where={"perDeviceNodeSelection": True})]
    found = answer(scenario(slices, [claim(request("r"))]))
    assert outcome(scenario(slices, [claim(request("r", 2))])) == [["r=any", "r=near"]]
    assert found["allocations"][0].get("nodeSelector") is None


def test_a_devices_node_selector_that_cannot_be_parsed_is_an_error_when_it_is_reached() -> None:
    broken = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In"}]}]}
    slices = [
        sl([device("any", allNodes=True), device("odd", nodeSelector=broken)], where={"perDeviceNodeSelection": True})
    ]
    assert outcome(scenario(slices, [claim(request("r"))])) == [["r=any"]]
    assert outcome(scenario(slices, [claim(request("r", 1, "false"))])) == "none"
    assert outcome(scenario(slices, [claim(request("r", 2))])).startswith(
        "error: claim default/claim, request r: failed to perform node selection for device odd"
    )


def opaque(text: str) -> Json:
    return {"opaque": {"driver": DRIVER, "parameters": {"is": text}}}


def test_configuration_is_put_together_once_per_entry() -> None:
    classes = [
        device_class("gpu", config=[opaque("gpu-1"), opaque("gpu-2")]),
        device_class("any", config=[opaque("any")]),
    ]
    config = [
        opaque("all"),
        {"requests": ["a", "b"], **opaque("both")},
        {"requests": ["b/a"], **opaque("not chosen")},
        {"requests": ["b/b", "c"], **opaque("chosen")},
    ]
    item = claim(
        request("a"), first_available("b", ask(9), ask(cls="any")), request("c", cls="any"), request("d"), config=config
    )
    found = answer(scenario([sl(devices(4))], [item], classes=classes))["allocations"][0]["devices"]["config"]
    assert [(entry["source"], entry.get("requests", []), entry["opaque"]["parameters"]["is"]) for entry in found] == [
        ("FromClass", ["a", "d"], "gpu-1"),
        ("FromClass", ["a", "d"], "gpu-2"),
        ("FromClass", ["b/b", "c"], "any"),
        ("FromClaim", [], "all"),
        ("FromClaim", ["a", "b"], "both"),
        ("FromClaim", ["b/b", "c"], "chosen"),
    ]
