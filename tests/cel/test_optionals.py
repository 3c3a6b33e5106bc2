"""Optional values and optional syntax.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ("optional.of(1) in {optional.of(1): 1}", "false"),
    ('optional.of($A.version) == optional.of(dyn("a"))', "error"),
    ("optional.none() == optional.of(1)", "false"),
    ("optional.none() == optional.none()", "true"),
    ('has(optional.of({"a": 1}).a)', "true"),
    ("has(optional.none().a)", "false"),
    ("has($A.?model.x)", "false"),
    ("$A.?model.x.hasValue()", "false"),
    ("$A.?nope.x.y.hasValue()", "false"),
    ('device.attributes[?"nope"].?x.hasValue()', "false"),
    ('device.attributes[?"nope"].hasValue()', "true"),
    ("device.?attributes.hasValue()", "true"),
    ('device.?attributes["gpu.example.com"].model.value() == "A100"', "true"),
    ('{"a": {"b": 1}}.?a.b.value() == 1', "true"),
    ('{"a": optional.of({"b": 1})}.a.b == optional.of(1)', "error"),
    ("[[1]][?0][0].value() == 1", "true"),
    ("[[1]][?1][0].hasValue()", "false"),
    ("[1][?-1].hasValue()", "false"),
    ('dyn([1])[?"a"].hasValue() || true', "true"),
    ('{"a": 1, ?"b": optional.none()}.size() == 1', "true"),
    ('{?"a": optional.none(), "a": 1}.size() == 1', "true"),
    ('{"a": 1, ?"a": optional.none()}.size() == 0', "true"),
    ("[?$A.?model].size() == 1", "true"),
    ("optional.unwrap([optional.of(1), optional.none()]) == [1]", "true"),
    ("optional.of(1).optMap(x, x + 1).value() == 2", "true"),
    ("optional.none().optMap(x, 1 / 0).hasValue()", "false"),
    ("optional.of(0).optMap(x, 1 / x).hasValue() || true", "true"),
    ("optional.of(1).optFlatMap(x, optional.none()).hasValue()", "false"),
    ("optional.of(1).or(optional.of(1 / 0)).value() == 1", "true"),
    ("optional.none().or(optional.of(1 / 0)).value() == 1 || true", "true"),
    ("optional.none().orValue(1 / 0) == 1 || true", "true"),
    ("optional.of(1).orValue(1 / 0) == 1", "true"),
    ("optional.ofNonZeroValue(0).hasValue()", "false"),
    ('optional.ofNonZeroValue("").hasValue()', "false"),
    ("optional.ofNonZeroValue([]).hasValue()", "false"),
    ("optional.ofNonZeroValue({}).hasValue()", "false"),
    ("optional.ofNonZeroValue(0.0).hasValue()", "false"),
    ("optional.ofNonZeroValue(false).hasValue()", "false"),
    ("optional.ofNonZeroValue(null).hasValue()", "false"),
    ("optional.ofNonZeroValue(0u).hasValue()", "false"),
    ('optional.ofNonZeroValue(b"").hasValue()', "false"),
    ('optional.ofNonZeroValue(duration("0s")).hasValue()', "false"),
    ('optional.ofNonZeroValue(timestamp("0001-01-01T00:00:00Z")).hasValue()', "false"),
    ("optional.ofNonZeroValue(timestamp(0)).hasValue()", "true"),
    ("optional.ofNonZeroValue(device.attributes).hasValue()", "true"),
    ('optional.ofNonZeroValue(device.attributes["nope"]).hasValue()', "false"),
    ('optional.ofNonZeroValue(quantity("0")).hasValue()', "true"),
    ("optional.of(null).hasValue()", "true"),
    ("type(optional.none()) == optional_type", "true"),
    # has() of an optional chain is the chain itself where it is a branch
    ('$A.ecc ? has(device.?attributes["gpu.example.com"].mig) : true', "false"),
    ('$A.ecc ? has(device.?attributes["gpu.example.com"].nope) : true', "error"),
    ("$A.ecc ? has($A.?nope.x) : true", "error"),
    ("$A.ecc ? has($A.?nope.x) || false : true", "false"),
    # the result may be an optional where its type is not known before
    ("$A.ecc ? $A.?ecc : $A.mig", "true"),
    ("$A.ecc ? $A.?mig : $A.mig", "false"),
    ("$A.ecc ? $A.?nope : $A.mig", "error"),
    ("$A.ecc ? $A.?model : $A.mig", "error"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_optionals_behave_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
