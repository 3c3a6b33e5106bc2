"""Every selector whose answer was observed on a real API server and scheduler 1.36.2."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dra_extender.cel.trial import batch_answer

VECTORS = Path(__file__).parents[1] / "conformance" / "cel.jsonl.gz"


@cache
def load() -> list[dict[str, Any]]:
    with gzip.open(VECTORS, "rt") as lines:
        return [json.loads(line) for line in lines]


def agrees(case: dict[str, Any], result: str) -> bool:
    """What the API server refuses for its estimated cost may be refused, or answered as if it had been stored."""
    if case["expected"] != "cost-reject":
        return bool(result == case["expected"])
    stored = case.get("expectedIfStored")
    return result == "reject" or result in ((stored,) if stored else ("true", "false", "error"))


def test_there_are_as_many_vectors_as_were_observed() -> None:
    assert len(load()) == 3703


@pytest.mark.parametrize("family", ["default", "lists"])
def test_every_observed_selector_gets_the_observed_answer(family: str) -> None:
    differing = [
        (case["name"], case["expression"], case["expected"], batch_answer(case))
        for case in load()
        if case["gates"] == family and not agrees(case, batch_answer(case)["result"])
    ]
    assert differing == []


ODD: list[dict[str, Any]] = [
    {"int": -1}, {"bool": True}, {"string": ""}, {"string": "1.2.3"}, {"version": "1.2.3"}, {"ints": [1]},
    {"strings": []}, {"versions": ["1.0.0"]}, {},
]  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=str)
def test_no_class_of_values_is_a_surprise_to_an_observed_selector(value: dict[str, Any]) -> None:
    """An exception that is not one of the language fails this test."""
    asked = 0
    for case in load():
        device = case.get("device") or {}
        attributes = dict.fromkeys(device.get("attributes") or (), value)
        odd = device | {"attributes": attributes if value else {}, "capacity": device.get("capacity") if value else {}}
        asked += batch_answer(case | {"device": odd})["result"] != "reject"
    assert asked > 2000
