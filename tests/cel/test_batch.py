"""Questions of `selector --batch`: every input gets an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.cel.trial import batch_answer

DEVICE = {"driver": "d", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}

ANSWERS = [
    ({"name": "n", "expression": "true", "device": DEVICE}, "true"),
    ({"name": "n", "expression": "device.attributes['d'].a == 2", "device": DEVICE}, "false"),
    ({"name": "n", "expression": "device.attributes['d'].b == 2", "device": DEVICE}, "error"),
    ({"name": "n", "expression": "nope", "device": DEVICE}, "reject"),
    ({"name": "n", "expression": "true"}, "true"),
    ({"name": "n", "expression": "device.driver == ''", "device": {"allowMultipleAllocations": True}}, "true"),
    ({"name": "n", "expression": "true", "device": {"attributes": {"a": {"ints": [1]}}}}, "error"),
    ({"name": "n", "expression": "true", "gates": "lists", "device": {"attributes": {"a": {"ints": [1]}}}}, "true"),
    ({"name": "n", "expression": "true", "device": {"attributes": {"a": {"version": "x"}}}}, "error"),
    ({"name": "n", "expression": "true", "device": {"attributes": {"a": {}}}}, "error"),
    ({"name": "n", "expression": "true", "device": {"attributes": None, "capacity": None}}, "true"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "result"), ANSWERS)
def test_a_case_is_answered(case: dict[str, Any], result: str) -> None:
    found = batch_answer(case)
    assert (found["name"], found["result"]) == ("n", result)
    assert ("message" in found) == (result in ("error", "reject"))


MALFORMED = [
    (5, "object"),
    ({}, "expression"),
    ({"expression": 1}, "expression"),
    ({"expression": "true", "gates": "none"}, "gates"),
    ({"expression": "true", "gates": []}, "gates"),
    ({"expression": "true", "device": 1}, "device"),
    ({"expression": "true", "device": {"driver": 1}}, "$.driver"),
    ({"expression": "true", "device": {"attributes": []}}, "$.attributes"),
    ({"expression": "true", "device": {"attributes": {"a": {"int": "1"}}}}, "$.attributes[...].int"),
    ({"expression": "true", "device": {"capacity": {"m": {}}}}, "$.capacity[...]"),
    ({"expression": "true", "device": {"capacity": {"m": {"value": "1KB"}}}}, "1KB"),
    ({"expression": "true", "device": {"allowMultipleAllocations": "yes"}}, "$.allowMultipleAllocations"),
]


@pytest.mark.parametrize(("case", "word"), MALFORMED)
def test_malformed_input_is_an_error_that_names_the_field(case: Any, word: str) -> None:
    found = batch_answer(case)
    assert found["result"] == "error"
    assert word in found["message"]


json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = {"driver": json, "attributes": json, "capacity": json, "allowMultipleAllocations": json}
almost = st.fixed_dictionaries(
    {"expression": st.sampled_from(["true", "device.attributes['d'].a == 1", "("])},
    optional={"device": st.fixed_dictionaries({}, optional=fields), "gates": json, "name": json},
)


@given(st.one_of(json, almost))
def test_nothing_that_json_can_say_makes_it_raise(case: Any) -> None:
    assert batch_answer(case)["result"] in ("true", "false", "error", "reject")
