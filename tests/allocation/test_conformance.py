"""Every recorded decision, and every hard search within the default step budget."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dra_extender.allocation.plan import STEP_BUDGET
from dra_extender.api.quantity import Quantity
from tests.support.allocation import newgates
from tests.support.allocation.checking import violations
from tests.support.allocation.recorded import COUNT, recorded
from tests.support.allocation.scenarios import answer

VECTORS = Path(__file__).parents[1] / "conformance"
MAX_HARD_STEPS = 500
"""The hardest recorded search takes 222 steps; naive ones take up to 20 million and then give up."""


def load(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / name, "rt") as lines:
        return [json.loads(line) for line in lines]


def comparable(value: Any, key: str = "") -> Any:
    """Without empty fields, amounts by value, any share ID."""
    if key == "consumedCapacity":
        return {name: Quantity.parse(amount).nano for name, amount in value.items()}
    if isinstance(value, dict):
        items = {name: comparable(item, name) for name, item in value.items()}
        return items if key == "parameters" else {name: item for name, item in items.items() if item or item is False}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return "*" if key == "shareID" else value


def agree(expected: dict[str, Any], found: dict[str, Any]) -> bool:
    return bool(
        found["kind"] == expected["kind"]
        and comparable(found["allocations"]) == comparable(expected.get("allocations"))
    )


def share_ids(allocations: list[dict[str, Any]]) -> list[str]:
    return [
        result["shareID"]
        for allocation in allocations
        for result in allocation.get("devices", {}).get("results", ())
        if "shareID" in result
    ]


def test_the_vectors_are_complete() -> None:
    assert (len(load("allocation.jsonl.gz")), len(load("hard.jsonl.gz"))) == (1500, 58)


def test_every_recorded_decision_is_reproduced_with_devices_and_order() -> None:
    differing = []
    for case in load("allocation.jsonl.gz"):
        expected, found = case["expected"], answer(case)
        if not agree(expected, found):
            differing.append((case["name"], expected, found))
    assert differing == []


def takes_part(case: dict[str, Any]) -> bool:
    """False where a known difference decides: devices with admin access consume counters upstream, and its stable
    allocator, without two gates that are on by default, visits pools in any order and has no distinctAttribute.
    """
    gates = case.get("features")
    text = json.dumps([case["claims"], case["allocatedClaims"], case["slices"]])
    stable = gates is not None and not {"DRAConsumableCapacity", "DRADeviceBindingConditions"} & {
        part for name in gates for part in name.split("+")
    }
    return not stable and not ('"adminAccess": true' in text and "sharedCounters" in text)


def test_kubernetes_1_37_answers_the_same_with_devices_and_order() -> None:
    answers = {each["name"]: each for each in load("allocation-1.37.jsonl.gz")}
    cases = [case for case in load("allocation.jsonl.gz") if case["name"] in answers and takes_part(case)]
    differing = []
    for case in cases:
        expected, found = answers[case["name"]], answer({**case, "release": "1.37"})
        if not agree(expected, found):
            differing.append((case["name"], expected, found))
    assert differing == []
    assert len(cases) > 1_000


def test_kubernetes_1_37_answers_random_scenarios_the_same_with_devices_and_order() -> None:
    differing = []
    for number, expected in enumerate(load("pools-1.37.jsonl.gz")):
        case = recorded(number)
        found = answer({**case, "release": "1.37"})
        if not agree(expected, found):
            differing.append((case, expected, found))
    assert differing == []
    assert number == COUNT - 1


def test_kubernetes_1_37_answers_the_same_with_its_new_gates() -> None:
    differing = []
    allocated = 0
    for number, expected in enumerate(load("gates-1.37.jsonl.gz")):
        case = newgates.random_scenario(number)
        found = answer(case)
        error = expected.get("error", "")
        same_text = expected["kind"] != "error" or "compilation failed" in error or found["error"] == error
        if not agree(expected, found) or not same_text:
            differing.append((case, expected, found))
        allocated += found["kind"] == "allocated"
    assert differing == []
    assert (number, allocated > 400) == (newgates.COUNT - 1, True)


def test_share_ids_are_unique_within_an_answer() -> None:
    repeated = [
        case["name"]
        for case in load("allocation.jsonl.gz")
        if any(count > 1 for count in Counter(share_ids(answer(case)["allocations"] or [])).values())
    ]
    assert repeated == []


@pytest.mark.parametrize("case", load("hard.jsonl.gz"), ids=lambda case: case["name"])
def test_hard_searches_end_early_with_a_valid_answer(case: dict[str, Any]) -> None:
    found = answer(case)
    assert found["kind"] == case["expected"]["kind"], found["error"]
    assert found["steps"] <= MAX_HARD_STEPS < STEP_BUDGET
    if found["kind"] == "allocated":
        assert violations(case, found["allocations"]) == []
