"""What is wrong with claims before any node is looked at, and what belongs to the node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.allocation.scenarios import (
    allocated,
    ask,
    claim,
    devices,
    first_available,
    outcome,
    request,
    scenario,
)
from tests.support.allocation.scenarios import resource_slice as sl

Json = dict[str, Any]
EIGHT = [sl(devices(8))]
NO_CEL = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [{}]}


@pytest.mark.parametrize(
    ("item", "off", "error"),
    [
        (
            first_available("r", ask()),
            "DRAPrioritizedList",
            "claim default/claim, request r: has subrequests, but the DRAPrioritizedList feature is disabled",
        ),
        (
            request("r", capacity={"requests": {"memory": "1"}}),
            "DRAConsumableCapacity",
            "claim default/claim, request r: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        ),
        (
            first_available("r", ask(), ask(capacity={})),
            "DRAConsumableCapacity",
            "claim default/claim, subrequest b: has capacity requests, "
            "but the DRAConsumableCapacity feature is disabled",
        ),
        (
            request("r", adminAccess=False),
            "DRAAdminAccess",
            "claim default/claim, request r: admin access is requested, but the feature is disabled",
        ),
        (
            {"name": "r", "exactly": NO_CEL},
            "",
            "claim default/claim, request r, selector #0: CEL expression empty (unsupported selector type?)",
        ),
        (
            request("r", cls=""),
            "",
            "claim default/claim, request r: missing device class name (unsupported request type?)",
        ),
        (
            first_available("r", ask(), ask(cls="nope")),
            "",
            "claim default/claim, request b: could not retrieve device class nope: "
            'deviceclass.resource.k8s.io "nope" not found',
        ),
        (
            {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}},
            "",
            "claim default/claim, request r: unsupported count mode Some",
        ),
        (
            {"name": "r"},
            "",
            "claim default/claim, request r: has neither exactly nor firstAvailable (unsupported request type?)",
        ),
        (
            request("r", 33),
            "",
            "claim default/claim: number of requested devices 33 exceeds the claim limit of 32",
        ),
    ],
)
def test_a_request_that_cannot_be_served_anywhere_is_an_error(item: Json, off: str, error: str) -> None:
    assert outcome(scenario(EIGHT, [claim(item)], off=[off])) == f"error: {error}"


def test_a_constraint_without_an_attribute_is_an_error() -> None:
    constraints: list[Json] = [{"matchAttribute": "a/b"}, {"requests": ["r"]}]
    expected = "error: claim default/claim, constraint #1: empty constraint (unsupported constraint type?)"
    assert outcome(scenario(EIGHT, [claim(request("r"), constraints=constraints)])) == expected


def test_the_least_of_alternatives_counts_for_the_limit() -> None:
    many = first_available("r", ask(40), ask(2))
    assert outcome(scenario([sl(devices(40))], [claim(request("a", 30), many)])) == [
        [*(f"a=dev-{i}" for i in range(30)), "r/b=dev-30", "r/b=dev-31"]
    ]


def test_mode_all_counts_for_the_limit() -> None:
    error = "error: claim default/claim: number of requested devices 41 exceeds the claim limit of 32"
    assert outcome(scenario([sl(devices(40))], [claim(request("r", None), request("s"))])) == error


INCOMPLETE = sl(devices(1), name="other", pool="other", count=2)
INVALID = sl([*devices(1), *devices(1)], name="other", pool="other")


@pytest.mark.parametrize(
    ("slices", "count", "expected"),
    [
        ([*EIGHT, INCOMPLETE], 2, [["r=dev-0", "r=dev-1"]]),
        ([*EIGHT, INVALID], 2, [["r=dev-0", "r=dev-1"]]),
        ([INCOMPLETE], 1, "none"),
        ([INVALID], 1, "none"),
        (
            [*EIGHT, INCOMPLETE],
            None,
            "error: claim default/claim, request r: asks for all devices, but resource pool gpu.example.com/other "
            "is currently being updated",
        ),
        (
            [*EIGHT, INVALID],
            None,
            "error: claim default/claim, request r: asks for all devices, but resource pool gpu.example.com/other "
            "is currently invalid",
        ),
    ],
)
def test_pools_that_cannot_be_used_are_skipped_unless_all_devices_are_wanted(
    slices: list[Json], count: int | None, expected: object
) -> None:
    assert outcome(scenario(slices, [claim(request("r", count))])) == expected


def test_mode_all_wants_devices_in_use_and_fails_for_them() -> None:
    in_use = [allocated("dev-3")]
    assert outcome(scenario(EIGHT, [claim(request("r", None))], in_use=in_use)) == "none"
    assert outcome(scenario(EIGHT, [claim(request("r", None, adminAccess=True))], in_use=in_use)) == [
        [f"r=dev-{i}" for i in range(8)]
    ]


def test_mode_all_with_nothing_to_take_finds_no_solution() -> None:
    assert outcome(scenario(EIGHT, [claim(request("r", None, "false"))])) == "none"
