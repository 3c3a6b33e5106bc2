"""What Kubernetes 1.37 decides differently from 1.36, with the gates that are on by default."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.allocation.scenarios import (
    DRIVER,
    A,
    allocated,
    answer,
    claim,
    device,
    devices,
    request,
    scenario,
)
from tests.support.allocation.scenarios import resource_slice as sl

Json = dict[str, Any]


def told(case: Json, release: str) -> str:
    """The devices, or the kind and the error."""
    found = answer({**case, "release": release})
    if found["kind"] != "allocated":
        return f"{found['kind']}: {found['error']}"
    return " ".join(item["device"] for each in found["allocations"] for item in each["devices"]["results"])


OPAQUE = {"opaque": {"driver": DRIVER, "parameters": {}}}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [(["a"], ["a"]), (["a", "b"], None), ([], None)],
    ids=["one of two requests", "both requests", "no list"],
)
def test_configuration_for_all_requests_has_no_list(requests: list[str], expected: list[str] | None) -> None:
    wanted = claim(request("a"), request("b"), config=[{**OPAQUE, "requests": requests}])
    found = answer({**scenario([sl(devices(2))], [wanted]), "release": "1.37"})
    (entry,) = found["allocations"][0]["devices"]["config"]
    assert entry.get("requests") == expected
    (before,) = answer(scenario([sl(devices(2))], [wanted]))["allocations"][0]["devices"]["config"]
    assert before.get("requests", []) == requests


@pytest.mark.parametrize(
    ("release", "expected"), [("1.36", "b"), ("1.37", "unschedulable: cannot allocate all claims")]
)
def test_all_devices_includes_those_whose_shares_leave_too_little(release: str, expected: str) -> None:
    content = [device(name, capacity={"memory": "10"}, allowMultipleAllocations=True) for name in ("a", "b")]
    held = allocated(
        {"device": "a", "shareID": "00000000-0000-4000-8000-000000000000", "consumedCapacity": {"memory": "8"}}
    )
    wanted = claim(request("r", None, capacity={"requests": {"memory": "5"}}))
    assert told(scenario([sl(content)], [wanted], in_use=[held]), release) == expected


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("1.36", "error: claim default/claim: number of requested devices 40 exceeds the claim limit of 32"),
        (
            "1.37",
            "error: claim default/claim, request b: adding 20 devices exceeds the claim limit of 32, "
            "with 20 already accounted for",
        ),
    ],
)
def test_the_limit_of_a_claim_names_the_request(release: str, expected: str) -> None:
    assert told(scenario([sl(devices(2))], [claim(request("a", 20), request("b", 20))]), release) == expected


@pytest.mark.parametrize(("release", "expected"), [("1.36", "error: "), ("1.37", "x")])
def test_selectors_see_list_attributes_while_their_gate_is_off(release: str, expected: str) -> None:
    content = [device("x", {"tags": ["a", "b"]})]
    wanted = claim(request("r", 1, f"{A}.tags.exists(tag, tag == 'b')"))
    found = told(scenario([sl(content)], [wanted], off=["DRAListTypeAttributes"]), release)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("1.36", "error: claim default/claim: selector #0: CEL compile error: syntax error: unexpected"),
        ("1.37", "x"),
    ],
)
def test_selectors_may_write_fields_in_backticks(release: str, expected: str) -> None:
    wanted = claim(request("r", 1, f"{A}.`a-b` == 1"))
    assert told(scenario([sl([device("x", {"a-b": 1})])], [wanted]), release).startswith(expected)


@pytest.mark.parametrize(("release", "fits"), [("1.36", False), ("1.37", True)])
def test_counters_concern_the_nodes_of_their_slice_only(release: str, *, fits: bool) -> None:
    """Mode All on a node that has no device of the pool, whose slices are not all published yet."""
    slices = [
        sl(devices(1)),
        sl(name="cards", pool="cards", count=2, where={"nodeName": "node-2"}, counters={"card": {"slots": "1"}}),
    ]
    wanted = claim(request("r", None))
    assert told(scenario(slices, [wanted]), release).startswith("dev-0") is fits


def test_a_release_that_is_not_known_is_an_error() -> None:
    found = told(scenario([sl(devices(1))], [claim(request("r"))]), "1.38")
    assert found == "error: release: '1.38' is unknown; known are: 1.36, 1.37"
