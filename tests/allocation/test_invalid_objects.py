"""A undecodable object is named in the answer where it matters, and nothing else notices it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.allocation.scenarios import (
    DRIVER,
    NODE,
    A,
    answer,
    claim,
    device,
    device_class,
    devices,
    outcome,
    request,
    scenario,
)
from tests.support.allocation.scenarios import resource_slice as sl

Json = dict[str, Any]

GOOD = sl(devices(2), name="good", pool="good", driver="nic.example.com")
CLASSES = [
    device_class("gpu", f'device.driver == "{DRIVER}"'),
    device_class("nic", 'device.driver == "nic.example.com"'),
]

NESTED = "(" * 32 + "device.driver == 'x'" + ")" * 32
DEEP = "(" * 1000 + "true" + ")" * 1000
LONG = f'"{"x" * 10240}" == ""'
TWICE = sl([device("x"), device("x")])
NO_SETS = sl([device("x", counters={"gone": {"slots": "1"}})])
UNPARSABLE = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In"}]}]}}


SELECTORS_FAIL = "claim default/claim: selector #0: CEL"
NO_SOLUTION = "cannot allocate all claims"
INVALID = "invalid resource pools were encountered"


def case(content: Json, item: Json) -> Json:
    return scenario([content, GOOD], [claim(item)], classes=CLASSES, off=["DRAListTypeAttributes"])


@pytest.mark.parametrize(
    ("content", "selector", "kind", "told"),
    [
        (sl(devices(2)), "device.driver ==", "error", f"{SELECTORS_FAIL} compile error"),
        (sl(devices(2)), f"{A}.nosuch == 1", "error", f"{SELECTORS_FAIL} runtime error: no such key"),
        (sl(devices(2)), "quantity('one') == quantity('1')", "error", SELECTORS_FAIL),
        (sl(devices(2)), DEEP, "error", f"{SELECTORS_FAIL} compile error"),
        (sl(devices(2)), LONG, "error", f"{SELECTORS_FAIL} compile error"),
        (sl(devices(2)), NESTED, "unschedulable", NO_SOLUTION),
        (TWICE, "true", "unschedulable", INVALID),
        (NO_SETS, "true", "unschedulable", INVALID),
    ],
)
def test_an_invalid_object_is_named_and_leaves_other_pods_alone(
    content: Json, selector: str, kind: str, told: str
) -> None:
    found = answer(case(content, request("r", 1, selector)))
    assert found["kind"] == kind
    assert told in found["error"]
    assert outcome(case(content, request("r", cls="nic"))) == [["r=dev-0"]]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (sl([device("x", {"list": [1, 2]})]), "attribute list: unsupported attribute value"),
        (sl([{"name": "x", "attributes": {"odd": {}}}]), "attribute odd: unsupported attribute value"),
        (sl([{"name": "x", "attributes": {"v": {"version": "1"}}}]), "attribute v"),
        (sl([device("x")], where=UNPARSABLE), "failed to perform node selection for slice slice"),
    ],
)
def test_what_upstream_cannot_read_of_a_device_is_an_error_on_the_nodes_that_see_it(content: Json, told: str) -> None:
    found = answer(case(content, request("r")))
    assert (found["kind"], told in found["error"]) == ("error", True)
    far = {**content, "spec": {**content["spec"], "nodeName": "node-2", "nodeSelector": None}}
    assert outcome(case(far, request("r", cls="nic"))) == [["r=dev-0"]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"slices": [sl([device("x", capacity={"mem": "lots"})])]}, "quantity 'lots'"),
        ({"slices": [sl([device("x", counters={"s": {"c": ""}})])]}, "is empty"),
        ({"claims": [claim({"name": "r", "exactly": {"count": "two"}})]}, "claim"),
        ({"node": {"metadata": []}}, "Node"),
        ({"features": ["DRAMagic"]}, "features: DRAMagic unknown"),
        ({"features": 5}, "not iterable"),
        ({"classes": [3]}, "DeviceClass"),
    ],
)
def test_an_object_that_cannot_be_decoded_is_an_error_of_its_scenario(change: Json, told: str) -> None:
    found = answer({**scenario([], []), **change})
    assert (found["kind"], found["name"], found["steps"]) == ("error", "case", 0)
    assert told in found["error"]


def test_an_empty_scenario_is_decided() -> None:
    assert answer({})["kind"] == "allocated"
    assert answer({"name": "n", "node": {"metadata": {"name": NODE}}, "claims": None})["allocations"] == []
