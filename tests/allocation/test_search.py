"""The documented order of the search, as far as results show it."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.allocation.plan import INVALID_POOLS
from tests.support.allocation.scenarios import (
    DRIVER,
    A,
    allocated,
    answer,
    ask,
    claim,
    device,
    devices,
    first_available,
    outcome,
    request,
    scenario,
)
from tests.support.allocation.scenarios import resource_slice as sl

Json = dict[str, Any]
FOUR = [sl(devices(4))]
MATCH = [{"matchAttribute": f"{DRIVER}/model"}]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([claim(request("a"), request("b", 2))], [["a=dev-0", "b=dev-1", "b=dev-2"]]),
        ([claim(request("a")), claim(request("a", 2), name="second")], [["a=dev-0"], ["a=dev-1", "a=dev-2"]]),
        # a later request makes an earlier one move on
        ([claim(request("a"), request("b", 1, f"{A}.index == 0"))], [["a=dev-1", "b=dev-0"]]),
        # a later claim too
        (
            [claim(request("a", 2)), claim(request("b", 1, f"{A}.index < 1"), name="second")],
            [["a=dev-1", "a=dev-2"], ["b=dev-0"]],
        ),
        # the last choice is changed first
        (
            [claim(first_available("a", ask(2), ask(1)), first_available("b", ask(3), ask(2)))],
            [["a/a=dev-0", "a/a=dev-1", "b/b=dev-2", "b/b=dev-3"]],
        ),
        (
            [claim(first_available("a", ask(2), ask(1)), first_available("b", ask(3)))],
            [["a/b=dev-0", "b/a=dev-1", "b/a=dev-2", "b/a=dev-3"]],
        ),
        ([claim(request("a", 5))], "none"),
        ([claim(first_available("a", ask(5), ask(6)))], "none"),
        ([claim()], [[]]),
    ],
)
def test_the_first_solution_in_order_wins(claims: list[Json], expected: object) -> None:
    assert outcome(scenario(FOUR, claims)) == expected


def test_pools_of_two_drivers_are_searched_by_driver_name() -> None:
    slices = [sl(devices(1), name="a", driver="z.example.com"), sl(devices(1), name="b", driver="a.example.com")]
    found = answer(scenario(slices, [claim(request("r", 2, cls="any"))]))
    drivers = [result["driver"] for result in found["allocations"][0]["devices"]["results"]]
    assert drivers == ["a.example.com", "z.example.com"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # admin access takes devices in use, and those of other claims of the pod
        ({}, {"adminAccess": True}, [["r=dev-0"], ["r=dev-0"]]),
        # but what it took is not available to later normal requests
        ({"adminAccess": True}, {}, "none"),
        ({"adminAccess": True}, {"adminAccess": True}, [["r=dev-0"], ["r=dev-0"]]),
    ],
)
def test_the_order_of_admin_and_normal_claims_matters(first: Json, second: Json, expected: object) -> None:
    claims = [claim(request("r", **first)), claim(request("r", **second), name="second")]
    assert outcome(scenario([sl(devices(1))], claims)) == expected


def test_admin_access_sees_which_devices_other_claims_hold() -> None:
    """Whether `s` and `c` are free does not tell what is left for `y`: it can have what the first claim holds."""
    content = [device("s", capacity={"units": "1"}, allowMultipleAllocations=True), *map(device, "abc")]
    claims = [claim(request("x"), request("y", 2, adminAccess=True), name=name) for name in ("second", "third")]
    expected = [["x=a", "x=b"], ["x=s", "y=a", "y=b"], ["x=c", "y=a", "y=b"]]
    assert outcome(scenario([sl(content)], [claim(request("x", 2)), *claims])) == expected


def test_admin_access_does_not_give_a_claim_the_same_device_twice() -> None:
    both = claim(request("a", adminAccess=True), request("b", adminAccess=True))
    in_use = [allocated("dev-0", "dev-1")]
    assert outcome(scenario([sl(devices(2))], [both], in_use=in_use)) == [["a=dev-0", "b=dev-1"]]
    assert outcome(scenario([sl(devices(1))], [both])) == "none"


def test_giving_up_an_admin_device_leaves_it_with_the_claim_that_had_it() -> None:
    # b first tries dev-0 with admin access, which claim one holds; c then needs dev-0 exclusively and must not get it
    claims = [
        claim(request("a", 1, f"{A}.index == 0")),
        claim(request("b", adminAccess=True), request("c", 1, f"{A}.index < 2"), name="second"),
    ]
    assert outcome(scenario([sl(devices(3))], claims)) == [["a=dev-0"], ["b=dev-0", "c=dev-1"]]
    claims[1] = claim(request("b", adminAccess=True), request("c", 1, f"{A}.index < 1"), name="second")
    assert outcome(scenario([sl(devices(3))], claims)) == "none"


def broken(index: int) -> Json:
    """A device on which the selector below fails."""
    return device(f"odd-{index}")


MODEL_X = f'{A}.model == "x"'
MIXED = [*devices(2, model=["x", "x"]), broken(0), *devices(0)]
ERROR = "error: claim default/claim: selector #0: CEL runtime error: no such key: model"


@pytest.mark.parametrize(
    ("content", "count", "in_use", "expected"),
    [
        # satisfied before the odd device is reached
        (MIXED, 2, [], [["r=dev-0", "r=dev-1"]]),
        # reached while looking for a third
        (MIXED, 3, [], ERROR),
        ([broken(0), *devices(2, model=["x", "x"])], 1, [], ERROR),
        # a device in use is not looked at
        (MIXED, 3, ["odd-0"], "none"),
        ([broken(0), *devices(2, model=["x", "x"])], 1, ["odd-0"], [["r=dev-0"]]),
        # mode All looks at everything
        (MIXED, None, ["odd-0"], ERROR),
    ],
)
def test_an_error_counts_when_the_order_reaches_it(
    content: list[Json], count: int | None, in_use: list[str], expected: object
) -> None:
    found = outcome(
        scenario([sl(content)], [claim(request("r", count, MODEL_X))], in_use=[allocated(*in_use)] if in_use else [])
    )
    assert (found if not str(found).startswith("error") else found.split(" (")[0]) == expected


def test_a_dead_end_later_on_makes_an_earlier_request_meet_the_error() -> None:
    # r is content with dev-0; s has nothing at all, so r goes on to the odd device
    claims = [claim(request("r", 1, MODEL_X), request("s", 1, "false"))]
    assert outcome(scenario([sl(MIXED)], claims)).startswith(ERROR)
    # but when s comes first, r is never looked at
    claims = [claim(request("s", 1, "false"), request("r", 1, MODEL_X))]
    assert outcome(scenario([sl(MIXED)], claims)) == "none"


def test_a_device_held_by_the_attempt_is_not_evaluated() -> None:
    claims = [claim(request("all", 3), request("r", 1, MODEL_X))]
    assert outcome(scenario([sl(MIXED)], claims)) == "none"


REFUSED = (
    "error: claim default/claim, request r: cannot add device gpu.example.com/pool/dev-1 "
    "because a claim constraint would not be satisfied"
)


@pytest.mark.parametrize(
    ("item", "in_use", "expected"),
    [
        (request("r", None), [], REFUSED),
        (request("r", None), ["dev-1"], "none"),
        (first_available("r", ask(None), ask(1)), [], REFUSED.replace("request r:", "request a:")),
        (first_available("r", ask(1), ask(None)), [], [["r/a=dev-0"]]),
        (request("r", None, f"{A}.index == 1"), [], [["r=dev-1"]]),
    ],
)
def test_a_constraint_that_refuses_a_device_of_mode_all_is_an_error(
    item: Json, in_use: list[str], expected: object
) -> None:
    slices = [sl(devices(2, model=["x", "y"]))]
    held = [allocated(*in_use)] if in_use else []
    assert outcome(scenario(slices, [claim(item, constraints=MATCH)], in_use=held)) == expected


def test_the_node_is_told_about_invalid_pools_when_nothing_was_found() -> None:
    slices = [*FOUR, sl([*devices(1), *devices(1)], name="other", pool="other")]
    assert answer(scenario(slices, [claim(request("r", 5))]))["error"] == INVALID_POOLS


def test_a_claim_gets_at_most_32_devices() -> None:
    sizes = [first_available(f"r{i}", ask(16), ask(4)) for i in range(5)]
    found = outcome(scenario([sl(devices(64))], [claim(*sizes)]))[0]
    assert [sum(entry.startswith(f"r{i}/") for entry in found) for i in range(5)] == [16, 4, 4, 4, 4]


def test_when_steps_run_out_the_node_is_undecided() -> None:
    found = answer(scenario(FOUR, [claim(request("r", 4))]), step_budget=3)
    assert (found["kind"], found["error"], found["steps"]) == ("unschedulable", "undecided within 3 steps", 4)
    assert answer(scenario(FOUR, [claim(request("r", 4))]), step_budget=5)["kind"] == "allocated"


def test_a_pod_with_very_many_requests_is_no_problem() -> None:
    claims = [claim(*(request(f"r{i}") for i in range(32)), name=f"c{number}") for number in range(40)]
    slices = [sl(devices(128), name=f"slice-{number:02}", pool=f"pool-{number:02}") for number in range(10)]
    found = answer(scenario(slices, claims))
    assert [len(item["devices"]["results"]) for item in found["allocations"]] == [32] * 40
    claims[-1] = claim(request("r", 32), request("s", 1, "false"), name="last")
    assert outcome(scenario(slices, claims)).startswith("error: claim default/last: number of requested devices 33")
    claims[-1] = claim(request("r", 31), request("s", 1, "false"), name="last")
    assert outcome(scenario(slices, claims)) == "none"
