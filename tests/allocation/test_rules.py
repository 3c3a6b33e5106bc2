"""Constraints, taints, counters, capacity and selectors: which devices a claim gets."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.limits import TOLERATIONS_OF_REQUEST
from tests.support.allocation.scenarios import (
    DRIVER,
    A,
    allocated,
    ask,
    claim,
    device,
    outcome,
    request,
    results,
    scenario,
)
from tests.support.allocation.scenarios import resource_slice as sl

Json = dict[str, Any]
MODEL = f"{DRIVER}/model"


# --- constraints ------------------------------------------------------------------------------------------------------

MATCH = [{"matchAttribute": MODEL}]
DISTINCT = [{"distinctAttribute": MODEL}]


def modelled(*values: object) -> list[Json]:
    """Devices dev-0, dev-1, ... with the model, or without one for None."""
    return [device(f"dev-{i}", {} if value is None else {"model": value}) for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "constraints", "count", "expected"),
    [
        (("x", "y", "y"), MATCH, 2, "1 2"),
        ((None, "x", "x"), MATCH, 2, "1 2"),
        ((1, True, "1", 1), MATCH, 2, "0 3"),
        (("x", "y", "z"), MATCH, 2, ""),
        (("x", "x", "y", "z"), DISTINCT, 3, "0 2 3"),
        ((None, "x", "y"), DISTINCT, 2, "1 2"),
        ((1, True, "1"), DISTINCT, 3, "0 1 2"),
        (("x", "x", "x"), DISTINCT, 2, ""),
        # lists: one value in common; values in the intersection only
        ((["a", "b"], ["b", "c"], ["c", "a"], ["b"]), MATCH, 3, "0 1 3"),
        ((["a", "b"], ["b", "c"], ["c", "a"]), MATCH, 3, ""),
        ((["a", "b"], "b", "a"), MATCH, 2, "0 1"),
        ((["a", "b"], ["b", "c"], ["c", "d"]), DISTINCT, 2, "0 2"),
        (([], []), MATCH, 1, ""),
        (([], []), DISTINCT, 1, "0"),
        (([], []), DISTINCT, 2, ""),
    ],
)
def test_attributes_match_or_differ(
    values: tuple[object, ...], constraints: list[Json], count: int, expected: str
) -> None:
    found = outcome(scenario([sl(modelled(*values))], [claim(request("r", count), constraints=constraints)]))
    wanted = [[f"r=dev-{index}" for index in expected.split()]] if expected else "none"
    assert found == wanted


@pytest.mark.parametrize(
    ("values", "constraints", "count", "expected"),
    [
        ((["a"], ["a"]), MATCH, 1, "0"),
        ((["a"], ["a"]), MATCH, 2, ""),
        ((["a"], "a", "a"), MATCH, 2, "1 2"),
        ((["a"], "b"), DISTINCT, 2, "0 1"),
        (("b", ["a"]), DISTINCT, 2, ""),
    ],
)
def test_without_list_attributes_a_list_can_only_be_first(
    values: tuple[object, ...], constraints: list[Json], count: int, expected: str
) -> None:
    case = scenario(
        [sl(modelled(*values))],
        [claim(request("r", count, cls="any"), constraints=constraints)],
        off=["DRAListTypeAttributes"],
    )
    assert outcome(case) == ([[f"r=dev-{index}" for index in expected.split()]] if expected else "none")


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        (["a"], [["a=dev-0", "b/x=dev-1", "c=dev-2"]]),
        (["a", "c"], [["a=dev-0", "b/x=dev-1", "c=dev-3"]]),
        (["a", "b"], [["a=dev-0", "b/x=dev-3", "c=dev-1"]]),
        (["a", "b/x"], [["a=dev-0", "b/x=dev-3", "c=dev-1"]]),
        (["a", "b/y"], [["a=dev-0", "b/x=dev-1", "c=dev-2"]]),
        ([], "none"),
    ],
)
def test_a_constraint_covers_the_requests_and_alternatives_it_names(requests: list[str], expected: object) -> None:
    prioritized = {"name": "b", "firstAvailable": [{"name": "x", **ask()}]}
    item = claim(request("a"), prioritized, request("c"), constraints=[{"matchAttribute": MODEL, "requests": requests}])
    assert outcome(scenario([sl(modelled("p", "q", "q", "p"))], [item])) == expected


def test_constraints_act_within_one_claim_only() -> None:
    claims = [claim(request("r"), constraints=MATCH), claim(request("r"), name="second", constraints=MATCH)]
    assert outcome(scenario([sl(modelled("x", "y"))], claims)) == [["r=dev-0"], ["r=dev-1"]]


def test_every_covered_device_is_compared_also_across_counts_and_alternatives() -> None:
    # upstream remembers one value per request and would take dev-2 as third
    item = claim(request("r", 3), constraints=DISTINCT)
    assert outcome(scenario([sl(modelled("x", "y", "x", "z"))], [item])) == [["r=dev-0", "r=dev-1", "r=dev-3"]]


# --- taints -----------------------------------------------------------------------------------------------------------

TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taint", "toleration", "fits"),
    [
        (TAINT, None, False),
        (TAINT, {"operator": "Exists"}, True),
        (TAINT, {"key": "k", "operator": "Exists"}, True),
        (TAINT, {"key": "other", "operator": "Exists"}, False),
        (TAINT, {"key": "k", "value": "v"}, True),
        (TAINT, {"key": "k", "operator": "Equal", "value": "w"}, False),
        (TAINT, {"operator": "Equal", "value": "v"}, True),
        (TAINT, {"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        (TAINT, {"key": "k", "operator": "Odd", "value": "v"}, False),
        ({**TAINT, "effect": "NoExecute"}, None, False),
        ({**TAINT, "effect": "None"}, None, True),
        ({**TAINT, "effect": "Unknown"}, None, True),
    ],
)
def test_each_active_taint_needs_a_toleration(taint: Json, toleration: Json | None, fits: bool) -> None:
    tolerations = {"tolerations": [toleration]} if toleration else {}
    case = scenario([sl([device("x", taints=[taint])])], [claim(request("r", **tolerations))])
    assert outcome(case) == ([["r=x"]] if fits else "none")
    assert outcome({**case, "features": ["DRAListTypeAttributes"]}) == [["r=x"]]


def test_tolerations_are_copied_into_results() -> None:
    toleration = {"key": "k", "operator": "Exists", "tolerationSeconds": 5}
    case = scenario([sl([device("x", taints=[TAINT])])], [claim(request("r", tolerations=[toleration]))])
    assert results(case)[0]["tolerations"] == [toleration]


def test_one_toleration_per_taint_is_enough_but_all_are_needed() -> None:
    taints = [TAINT, {"key": "l", "effect": "NoExecute"}]
    both = [{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "Exists"}]
    slices = [sl([device("x", taints=taints)])]
    assert outcome(scenario(slices, [claim(request("r", tolerations=both))])) == [["r=x"]]
    assert outcome(scenario(slices, [claim(request("r", tolerations=both[:1]))])) == "none"


# --- counters ---------------------------------------------------------------------------------------------------------


def card(sizes: str, total: str = "4", **fields: Any) -> list[Json]:
    """Devices p0, p1, ... that consume the given slots of one counter set."""
    parts = [device(f"p{i}", counters={"card": {"slots": size}}, **fields) for i, size in enumerate(sizes.split())]
    return [
        sl(parts, name="b", count=2),
        sl(name="a", count=2, counters={"card": {"slots": total}, "spare": {"n": "1"}}),
    ]


@pytest.mark.parametrize(
    ("sizes", "count", "in_use", "expected"),
    [
        ("2 2 2", 2, [], "p0 p1"),
        ("2 2 2", 3, [], ""),
        ("3 2 2", 2, [], "p1 p2"),
        ("500m 3.5 1", 2, [], "p0 p1"),
        ("2 2 2", 1, ["p0", "p2"], ""),
        ("2 2 2", 1, ["gone"], "p0"),
        ("5 1", 1, [], "p1"),
    ],
)
def test_devices_share_the_counters_of_their_card(sizes: str, count: int, in_use: list[str], expected: str) -> None:
    held = [allocated(*in_use)] if in_use else []
    found = outcome(scenario(card(sizes), [claim(request("r", count))], in_use=held))
    assert found == ([[f"r={name}" for name in expected.split()]] if expected else "none")


def test_an_overdrawn_counter_blocks_every_consuming_device_of_the_pool() -> None:
    slices = card("3 3")
    slices[0]["spec"]["devices"] += [device("other", counters={"spare": {"n": "1"}}), device("free")]
    case = scenario(slices, [claim(request("r"))], in_use=[allocated("p0", "p1")])
    assert outcome(case) == [["r=free"]]


def test_a_refused_candidate_leaves_its_counters_alone() -> None:
    # upstream keeps the counters of p0 charged after its taint refused it
    slices = card("4 4")
    slices[0]["spec"]["devices"][0]["taints"] = [TAINT]
    assert outcome(scenario(slices, [claim(request("r"))])) == [["r=p1"]]


def test_equally_named_pools_of_two_drivers_have_counters_of_their_own() -> None:
    first = card("4")
    second = [
        sl([device("q0", counters={"card": {"slots": "4"}})], name="d", count=2, driver="z.example.com"),
        sl(name="c", count=2, driver="z.example.com", counters={"card": {"slots": "4"}}),
    ]
    assert outcome(scenario([*first, *second], [claim(request("r", 2, cls="any"))])) == [["r=p0", "r=q0"]]


def test_admin_access_takes_no_part_in_counters() -> None:
    claims = [claim(request("a", 2, adminAccess=True)), claim(request("b"), name="second")]
    assert outcome(scenario(card("4 4 4"), claims)) == [["a=p0", "a=p1"], ["b=p2"]]


def test_without_partitionable_devices_consuming_devices_are_unusable() -> None:
    slices = [sl([device("p0", counters={"card": {"slots": "1"}}), device("free")])]
    assert outcome(scenario(slices, [claim(request("r"))], off=["DRAPartitionableDevices"])) == [["r=free"]]


def test_the_first_share_pays_the_counters_of_a_device() -> None:
    slices = card("3 2", allowMultipleAllocations=True)
    claims = [claim(request("a"), request("b"), request("c", 2))]
    assert outcome(scenario(slices, claims)) == "none"
    assert outcome(scenario(slices, [claim(request("a"), request("b"))])) == [["a=p0", "b=p0"]]
    in_use = [allocated({"device": "p0", "shareID": "s"})]
    # a share without recorded capacity has paid as well
    assert outcome(scenario(slices, [claim(request("a"))], in_use=in_use)) == [["a=p0"]]
    assert outcome(scenario(slices, [claim(request("a", 2))], in_use=in_use)) == "none"


def test_a_returned_share_has_not_paid() -> None:
    # a gives p0 back because b needs the slots; then p0 must be paid for again
    slices = card("3 4", allowMultipleAllocations=True)
    slices[0]["spec"]["devices"][1]["attributes"] = {"big": {"bool": True}}
    big = f"{A}.?big.orValue(false)"
    claims = [claim(request("a"), request("b", 1, big))]
    assert outcome(scenario(slices, claims)) == [["a=p1", "b=p1"]]


# --- capacity ---------------------------------------------------------------------------------------------------------


def shared(value: str, policy: Json | None = None) -> list[Json]:
    """One device x that can be shared."""
    capacity: Json = {"value": value}
    if policy:
        capacity["requestPolicy"] = policy
    return [sl([{"name": "x", "allowMultipleAllocations": True, "capacity": {"mem": capacity}}])]


RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}


@pytest.mark.parametrize(
    ("policy", "wanted", "consumed"),
    [
        (None, None, "10Gi"),
        (None, "3Gi", "3Gi"),
        (None, "11Gi", None),
        ({"default": "2Gi"}, None, "2Gi"),
        ({"default": "2Gi"}, "3Gi", "3Gi"),
        (RANGE, None, "1Gi"),
        (RANGE, "500Mi", "1Gi"),
        (RANGE, "1.5Gi", "2Gi"),
        (RANGE, "8Gi", "8Gi"),
        (RANGE, "9Gi", None),
        ({"default": "1", "validRange": {"min": "500m", "step": "500m"}}, "700m", "1"),
        ({"default": "1Gi", "validRange": {"min": "1Gi"}}, "1.5Gi", "1.5Gi"),
        ({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}, "2Gi", "4Gi"),
        ({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}, "4Gi", "4Gi"),
        ({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}, "5Gi", None),
    ],
)
def test_a_share_consumes_what_the_policy_makes_of_the_request(
    policy: Json | None, wanted: str | None, consumed: str | None
) -> None:
    capacity = {"capacity": {"requests": {"mem": wanted}}} if wanted else {}
    case = scenario(shared("10Gi", policy), [claim(request("r", **capacity))])
    if consumed is None:
        assert outcome(case) == "none"
    else:
        assert [result["consumedCapacity"] for result in results(case)] == [
            {"mem": consumed.replace("1.5Gi", "1536Mi")}
        ]


def test_shares_add_up_over_requests_claims_and_what_is_held() -> None:
    def mem(amount: str) -> Json:
        return {"capacity": {"requests": {"mem": amount}}}

    held = [allocated({"device": "x", "shareID": "s", "consumedCapacity": {"mem": "4Gi"}})]
    two = [claim(request("a", **mem("3Gi"))), claim(request("b", **mem("3Gi")), name="second")]
    assert outcome(scenario(shared("10Gi"), two, in_use=held)) == [["a=x"], ["b=x"]]
    assert outcome(scenario(shared("9Gi"), two, in_use=held)) == "none"


def test_one_request_takes_a_shared_device_once() -> None:
    mem = {"capacity": {"requests": {"mem": "1Gi"}}}
    assert outcome(scenario(shared("10Gi"), [claim(request("a", 2, **mem))])) == "none"
    assert outcome(scenario(shared("10Gi"), [claim(request("a", **mem), request("b", **mem))])) == [["a=x", "b=x"]]


def test_capacity_is_a_filter_on_exclusive_devices_and_leaves_nothing_in_the_result() -> None:
    content = [
        device("small", capacity={"mem": "4Gi"}),
        device("none"),
        device("big", capacity={"mem": "8Gi", "n": "1"}),
    ]
    case = scenario([sl(content)], [claim(request("r", capacity={"requests": {"mem": "5Gi"}}))])
    assert [(item["device"], item.keys() & {"shareID", "consumedCapacity"}) for item in results(case)] == [
        ("big", set())
    ]


def test_names_of_capacities_have_no_default_domain() -> None:
    content = [device("x", capacity={"mem": "4Gi"})]
    case = scenario([sl(content)], [claim(request("r", capacity={"requests": {f"{DRIVER}/mem": "1Gi"}}))])
    assert outcome(case) == "none"


def test_mode_all_leaves_out_devices_that_cannot_supply_the_capacity() -> None:
    content = [device(f"d{i}", capacity={"mem": f"{i}Gi"}) for i in range(1, 5)]
    case = scenario([sl(content)], [claim(request("r", None, capacity={"requests": {"mem": "3Gi"}}))])
    assert outcome(case) == [["r=d3", "r=d4"]]


def test_a_shared_device_that_became_exclusive_is_refused_for_its_capacity_only() -> None:
    held = [allocated({"device": "x", "shareID": "s", "consumedCapacity": {"mem": "1Gi"}})]
    with_capacity = [sl([device("x", capacity={"mem": "4Gi"})])]
    assert outcome(scenario(with_capacity, [claim(request("r"))], in_use=held)) == "none"
    assert outcome(scenario([sl([device("x")])], [claim(request("r"))], in_use=held)) == [["r=x"]]


def test_with_consumable_capacity_off_sharing_means_owning() -> None:
    held = [allocated({"device": "x", "shareID": "s", "consumedCapacity": {"mem": "1Gi"}})]
    off = ["DRAConsumableCapacity"]
    assert outcome(scenario(shared("10Gi"), [claim(request("r"))], in_use=held, off=off)) == "none"
    found = results(scenario(shared("10Gi"), [claim(request("r"))], off=off))
    assert found[0].keys() & {"shareID", "consumedCapacity"} == set()


# --- selectors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "off", "expected"),
    [
        (f'device.attributes["{DRIVER}"].model.includes("y")', "DRAListTypeAttributes", [["r=dev-1"]]),
        ("!device.allowMultipleAllocations", "DRAConsumableCapacity", [["r=dev-0"]]),
    ],
)
def test_stored_selectors_may_use_what_was_accepted_while_a_feature_was_on(
    selector: str, off: str, expected: object
) -> None:
    slices = [sl(modelled("x", "y"))]
    assert outcome(scenario(slices, [claim(request("r", 1, selector))], off=[off])) == expected


def test_a_request_has_so_many_tolerations_and_no_more() -> None:
    def wanted(count: int) -> Any:
        tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]
        return outcome(scenario([sl([device("x")])], [claim(request("r", tolerations=tolerations))]))

    assert wanted(TOLERATIONS_OF_REQUEST) == [["r=x"]]
    assert "claim default/claim, request r: has more than 128 tolerations" in wanted(2 * TOLERATIONS_OF_REQUEST)
