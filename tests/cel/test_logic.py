"""Operators on truth, and how they absorb errors.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ("[1,2].first().value() == 1 && [].last().hasValue() == false", "true"),
    ("int(1.9) == 1 && int(-1.9) == -1", "true"),
    ("int(9223372036854775807.0) == 1 || true", "reject"),
    ("uint(-0.5) == 0u || true", "reject"),
    ('bool("yes") || true', "reject"),
    ('string(b"\\xff") == "" || true', "reject"),
    ("-dyn(true) == true || true", "true"),
    ("-dyn(1u) == 1u || true", "true"),
    ('dyn(1) + dyn("a") == 1 || true', "true"),
    ("dyn(1) + dyn(1.0) == 2 || true", "true"),
    ("-9223372036854775808 / -1 == 0 || true", "true"),
    ("-9223372036854775808 % -1 == 0 || true", "true"),
    ("-(-9223372036854775808) == 0 || true", "true"),
    ("7 / -2 == -3 && 7 % -2 == 1 && -7 % 2 == -1", "true"),
    ("1.0 / 0.0 > 1e308 && -1.0 / 0.0 < 0.0 && (0.0 / 0.0) != (0.0 / 0.0)", "true"),
    ("(0.0 / 0.0) < 1.0 || true", "true"),
    ("dyn(5.0) % dyn(2.0) == 1.0 || true", "true"),
    ('"a" < "b" && b"a" < b"b" && false < true', "true"),
    ('dyn("a") < dyn(1) || true', "true"),
    ("dyn(null) < dyn(null) || true", "true"),
    ("dyn([1]) < dyn([2]) || true", "true"),
    ('"é" > "z" && "\\U0001F600" > "\\uffff"', "true"),
    ("$A.ecc ? true : 1 == 1", "true"),
    ("$A.index ? true : false", "error"),
    ("true ? $A.index == 3 : $A.nope", "true"),
    ("$A.index && true || true", "true"),
    ("false || $A.index", "error"),
    ("true && $A.ecc", "true"),
    ("$A.nope == 1 || true", "true"),
    ("true || $A.nope == 1", "true"),
    ("$A.nope == 1 && false", "false"),
    ("false && $A.nope == 1", "false"),
    ("$A.nope == 1 || false", "error"),
    ("$A.nope == 1 && true", "error"),
    ("$A.index || true", "true"),
    ("$A.index && false", "false"),
    ("!$A.ecc", "false"),
    ("!$A.index", "error"),
    ("!$A.nope || true", "true"),
    ("$A.ecc", "true"),
    ("$A.index", "error"),
    ("$A.nope", "error"),
    ("true ? $A.ecc : $A.nope", "true"),
    ("$A.nope ? true : true", "error"),
    ("$A.index ? true : true", "error"),
    ("dyn(true)", "reject"),
    ("device.driver", "reject"),
    ("true", "true"),
    ("false", "false"),
    ("null", "reject"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_logic_behaves_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
