"""What the feature gates of Kubernetes 1.37 do to allocation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.allocation.newgates import NEW
from tests.support.allocation.scenarios import (
    GATES,
    allocated,
    answer,
    claim,
    device,
    request,
    resource_slice,
    scenario,
)

Json = dict[str, Any]
STEPS = {"default": "200m", "validRange": {"min": "200m", "max": "1", "step": "100m"}}


def told(case: Json, *gates: str) -> str:
    """The devices, or the kind and the error, with these gates and those of 1.36."""
    found = answer({**case, "release": "1.37", "features": [*GATES, *gates]})
    if found["kind"] != "allocated":
        return f"{found['kind']}: {found['error']}"
    return " ".join(item["device"] for each in found["allocations"] for item in each["devices"]["results"])


def shared(policy: Json, value: str = "1") -> Json:
    """A device with this policy of its memory."""
    return device("a", allowMultipleAllocations=True) | {
        "capacity": {"memory": {"value": value, "requestPolicy": policy}}
    }


def memory(amount: str) -> Json:
    return claim(request("r", 1, capacity={"requests": {"memory": amount}}))


# --- capacity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gates", "expected"), [(("DRAFractionalCapacityRange",), "300m"), ((), "1")], ids=["thousandths", "whole numbers"]
)
def test_a_range_of_fractions_is_computed_in_thousandths(gates: tuple[str, ...], expected: str) -> None:
    case = scenario([resource_slice([shared(STEPS)])], [memory("250m")])
    found = answer({**case, "release": "1.37", "features": [*GATES, *gates]})
    (result,) = found["allocations"][0]["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": expected}


CANNOT = (
    "error: claim default/claim, request r: checking capacity for device gpu.example.com/pool/a: "
    'capacity "memory": capacity request cannot be represented in the device\'s range arithmetic: '
)


@pytest.mark.parametrize(
    ("policy", "amount", "gates", "expected"),
    [
        ({"validRange": {"min": "1", "step": "1"}}, "9223372036854775808", (), "exceeds MaxInt64"),
        ({"validRange": {"min": "2", "step": "9223372036854775806"}}, "3", (), "up to the next step passes MaxInt64"),
        (STEPS, "250u", ("DRAFractionalCapacityRange",), "a"),
        (STEPS, "250100u", ("DRAFractionalCapacityRange",), "is not a representable milli value"),
    ],
)
def test_an_amount_that_cannot_be_computed_ends_the_attempt(
    policy: Json, amount: str, gates: tuple[str, ...], expected: str
) -> None:
    found = told(scenario([resource_slice([shared(policy, "10E")])], [memory(amount)]), *gates)
    assert found == expected or (found.startswith(CANNOT) and found.endswith(expected)), found


def test_with_the_rules_of_1_36_an_amount_too_large_leaves_the_device_out() -> None:
    case = scenario(
        [resource_slice([shared({"validRange": {"min": "1", "step": "1"}})])], [memory("9223372036854775808")]
    )
    assert answer(case)["kind"] == "unschedulable"


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_a_negative_amount_frees_nothing_that_others_hold(release: str) -> None:
    content = device("a", capacity={"memory": "10"}, allowMultipleAllocations=True)
    case = {**scenario([resource_slice([content])], [memory("-1000")]), "release": release}
    assert answer(case)["kind"] == ("unschedulable" if release == "1.36" else "error")
    held = [
        allocated(
            {"device": "a", "shareID": f"00000000-0000-4000-8000-00000000000{index}", "consumedCapacity": taken},
            name=f"held-{index}",
        )
        for index, taken in enumerate(({"memory": "8"}, {"memory": "-1000"}))
    ]
    case = {**scenario([resource_slice([content])], [memory("4")], in_use=held), "release": release}
    assert answer(case)["kind"] == "unschedulable"


def test_a_negative_amount_ends_the_attempt() -> None:
    found = told(scenario([resource_slice([shared({"validRange": {"min": "-4", "step": "1"}})])], [memory("-4")]))
    assert found.endswith('capacity "memory": capacity value is negative')


# --- compatibility groups ---------------------------------------------------------------------------------------------


def part(name: str, *groups: str, card: str = "card") -> Json:
    """A device that consumes one slot of a card."""
    found = device(name, counters={card: {"slots": "1"}})
    if groups:
        found["consumesCounters"][0]["compatibilityGroups"] = list(groups)
    return found


def cards(*parts: Json) -> list[Json]:
    """The devices, and two cards with eight slots each."""
    sets = {"card": {"slots": "8"}, "card2": {"slots": "8"}}
    return [resource_slice(name="0", count=2, counters=sets), resource_slice(parts, name="1", count=2)]


@pytest.mark.parametrize(
    ("parts", "count", "expected"),
    [
        ([part("a", "x"), part("b", "y"), part("c", "x")], 2, "a c"),
        ([part("a", "x"), part("b"), part("c", "x")], 2, "a c"),
        ([part("a"), part("b", "x"), part("c")], 2, "a c"),
        ([part("a", "x", "y"), part("b", "y", "z"), part("c", "z"), part("d", "y")], 3, "a b d"),
        ([part("a", "x"), part("b", "y", card="card2")], 2, "a b"),
        ([part("a", "x"), part("b", "y"), part("c", "y")], 2, "b c"),
    ],
    ids=["a group in common", "groups and none", "none and groups", "what all share", "other card", "goes back"],
)
def test_devices_of_a_card_need_a_group_in_common(parts: list[Json], count: int, expected: str) -> None:
    case = scenario(cards(*parts), [claim(request("r", count))])
    assert told(case, "DRADeviceCompatibilityGroups") == expected


def test_devices_in_use_decide_who_may_join() -> None:
    case = scenario(cards(part("a", "x"), part("b", "y"), part("c", "x")), [claim(request("r"))])
    assert told({**case, "allocatedClaims": [allocated("a")]}, "DRADeviceCompatibilityGroups") == "c"
    apart = {**case, "allocatedClaims": [allocated("a"), allocated("b", name="second")]}
    assert told(apart, "DRADeviceCompatibilityGroups") == "unschedulable: cannot allocate all claims"


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_without_the_gate_a_slice_with_groups_counts_as_missing(release: str) -> None:
    case = {**scenario(cards(part("a", "x")), [claim(request("r", None))]), "release": release}
    assert answer(case)["error"] == (
        "claim default/claim, request r: asks for all devices, "
        "but resource pool gpu.example.com/pool is currently being updated"
    )


# --- operations of the kubelet ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "gates", "expected"),
    [
        (True, ("DRAOptionalNodeOperations",), "a"),
        (False, ("DRAOptionalNodeOperations",), "b"),
        (True, (), "b"),
    ],
    ids=["the node allows it", "it does not", "the gate is off"],
)
def test_devices_that_skip_operations_are_for_nodes_that_declare_it(
    declared: bool, gates: tuple[str, ...], expected: str
) -> None:
    skipping = resource_slice([device("a")], name="1", count=2)
    skipping["spec"]["skipNodeOperations"] = ["*"]
    case = scenario([skipping, resource_slice([device("b")], name="2", count=2)], [claim(request("r"))])
    if declared:
        case["node"]["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    assert told(case, *gates) == expected
    found = answer({**case, "release": "1.37", "features": [*GATES, *gates]})
    (result,) = found["allocations"][0]["devices"]["results"]
    assert result.get("skipNodeOperations") == (["*"] if expected == "a" else None)


@pytest.mark.parametrize("gate", NEW)
def test_the_gates_are_unknown_in_1_36(gate: str) -> None:
    case = scenario([resource_slice([shared(STEPS)])], [memory("250m")])
    assert answer({**case, "features": [*GATES, gate]})["error"].startswith(f"features: {gate} unknown in 1.36;")


# --- derived attributes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_without_the_gate_a_request_with_derived_attributes_is_refused(release: str) -> None:
    wanted = claim(request("r", 1, derivedAttributes=[{"name": "gpu.example.com/made", "expression": "1"}]))
    case = {**scenario([resource_slice([device("a")])], [wanted]), "release": release}
    assert answer(case)["error"] == (
        "claim default/claim, request r: cannot handle request with derived attributes, the feature is disabled"
    )


SIDE = 'device.attributes["gpu.example.com"].numa == 0 ? "left" : "right"'
DERIVED = [{"name": "gpu.example.com/side", "expression": SIDE}]


def pair(*more: Json, derived: list[Json] = DERIVED, kind: str = "matchAttribute") -> Json:
    """A claim for two devices with this constraint on the side."""
    return claim(request("r", 2, derivedAttributes=derived), *more, constraints=[{kind: "gpu.example.com/side"}])


def sided(*numas: int, **attributes: object) -> list[Json]:
    return [resource_slice([device(f"d{index}", {"numa": numa, **attributes}) for index, numa in enumerate(numas)])]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (pair(), "d0 d2"),
        (pair(kind="distinctAttribute"), "d0 d1"),
        (pair(request("published")), "unschedulable: cannot allocate all claims"),
    ],
    ids=["match", "distinct", "other requests see what is published"],
)
def test_a_constraint_sees_the_derived_attribute(wanted: Json, expected: str) -> None:
    assert told(scenario(sided(0, 1, 0), [wanted]), "DRADerivedAttributes") == expected


def test_a_derived_attribute_hides_the_published_one() -> None:
    case = scenario(sided(0, 1, 0, side="published"), [pair(request("published"))])
    assert told(case, "DRADerivedAttributes") == "unschedulable: cannot allocate all claims"
    same = [{"name": "gpu.example.com/side", "expression": '"published"'}]
    assert told(scenario(sided(0, 1, 0, side="published"), [pair(request("p"), derived=same)]), "DRADerivedAttributes")


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ('device.attributes["gpu.example.com"].no', "evaluate derived attribute A on device D failed: no such key: no"),
        ("dyn(1.5)", "evaluate derived attribute A on device D failed: unsupported CEL return type: float64"),
        ('[dyn(1), dyn("a")]', "evaluate derived attribute A on device D failed: "
            "expected list element at index 1 to be int, got string"),
        ("1.5", "compile derived attribute A failed: must evaluate to a primitive scalar (string, integer, boolean, "
            "semver) or a list of these scalars, not double"),
    ],
)  # fmt: skip
def test_an_attribute_that_cannot_be_derived_ends_the_attempt(expression: str, problem: str) -> None:
    case = scenario(sided(0, 1), [pair(derived=[{"name": "gpu.example.com/side", "expression": expression}])])
    problem = problem.replace(" A ", " gpu.example.com/side ").replace(" D ", " gpu.example.com/pool/d0 ")
    assert told(case, "DRADerivedAttributes") == f"error: {problem}"


def test_only_devices_that_a_constraint_looks_at_have_to_have_a_value() -> None:
    expression = 'device.attributes["gpu.example.com"].numa == 1 ? device.attributes["gpu.example.com"].no : "x"'
    derived = [{"name": "gpu.example.com/side", "expression": expression}]
    case = scenario(sided(1, 0, 0, 1), [pair(derived=derived)])
    assert "no such key: no" in told(case, "DRADerivedAttributes")
    assert told({**case, "allocatedClaims": [allocated("d0")]}, "DRADerivedAttributes") == "d1 d2"


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("lists.range(200)", True),
        ("lists.range(300)", False),
        ('["x"].map(x, x + x)', True),
        ("lists.range(300000)", False),
    ],
)
def test_a_derived_attribute_has_a_largest_size(expression: str, fits: bool) -> None:
    case = scenario(sided(0, 1), [pair(derived=[{"name": "gpu.example.com/side", "expression": expression}])])
    found = told(case, "DRADerivedAttributes")
    assert (found == "d0 d1") is fits
    assert fits or "the value is larger than 4096 characters" in found
