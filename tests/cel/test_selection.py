"""Reading the device, maps and lists.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ("has($A.model.x)", "false"),
    ("has($A.nope.x)", "error"),
    ("has(device.attributes.nope.x)", "false"),
    ("has(device.attributes.nope)", "true"),
    ("has(device.driver)", "true"),
    ("has(dyn(device).nope)", "false"),
    ('has({"a": 1}.a) && !has({"a": 1}.b)', "true"),
    ("has(dyn([1]).a)", "error"),
    ("has(dyn(1).a)", "false"),
    ('has({"a": null}.a)', "true"),
    ('dyn([1])["a"] == 1 || true', "true"),
    ("dyn([1])[0.0] == 1", "true"),
    ("dyn([1])[0.5] == 1 || true", "true"),
    ("dyn([1])[0u] == 1", "true"),
    ('dyn({"a": 1})[1] == 1 || true', "true"),
    ("dyn(1)[0] == 1 || true", "true"),
    ('dyn({1: "a"})[1u] == "a"', "true"),
    ('dyn({1u: "a"})[1] == "a"', "true"),
    ('dyn({1: "a"})[1.0] == "a"', "true"),
    ('dyn({1.0: "a"})[1] == "a" || true', "true"),
    ('dyn({true: "a"})[1] == "a" || true', "true"),
    ('device.driver == "gpu.example.com"', "true"),
    ("device.allowMultipleAllocations", "false"),
    ("device.nope == 1", "reject"),
    ('device["driver"] == "x"', "reject"),
    ("foo == 1", "reject"),
    ('.device.driver == "gpu.example.com"', "true"),
    ('$A["model"] == "A100"', "true"),
    ('$A["mo" + "del"] == "A100"', "true"),
    ("$A.model.x == 1", "error"),
    ('$A["nope"] == 1', "error"),
    ('device.attributes["nope"].x == 1', "error"),
    ("device.attributes.nope == {}", "true"),
    ('device.attributes["other.example.com"].zone == "z1"', "true"),
    ("device.attributes[1].x == 1", "reject"),
    ('"model" in $A', "true"),
    ('"nope" in $A', "false"),
    ('"nope" in device.attributes', "false"),
    ('"gpu.example.com" in device.attributes', "true"),
    ("1 in $A", "reject"),
    ("dyn(1) in $A", "false"),
    ("$A.version in $A", "false"),
    ("device.attributes.size() == 2", "true"),
    ('device.attributes["nope"].size() == 0', "true"),
    ("device == device", "true"),
    ('dyn(device)["driver"] == "gpu.example.com"', "true"),
    ("dyn(device).size() == 4", "true"),
    ("dyn(device).nope == 1", "error"),
    ('cel.bind(d, device, d.driver) == "gpu.example.com"', "true"),
    ("$A.size() == 12", "true"),
    ("[1, 2, 3][-1] == 1", "error"),
    ("[1][1] == 1", "error"),
    ('{"a": 1}.a == 1', "true"),
    ('{"a": 1}.b == 1', "error"),
    ('{"a": 1}["a"] == 1', "true"),
    ("{null: 1}[null] == 1", "reject"),
    ('[1][quantity("1")] == 1', "reject"),
    ('$A.model["x"] == 1', "error"),
    ('$A.model[0] == "A"', "error"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_reading_behaves_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
