"""Arithmetic, order and conversions.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ("9223372036854775807 == 9223372036854775808.0", "reject"),
    ("dyn(1) == true", "false"),
    ("[1, 2] == [1, 3]", "false"),
    ("$A.version != 1", "true"),
    ("$A == $A", "true"),
    ("device.attributes == device.attributes", "true"),
    ("$C == $C", "true"),
    ("uint(1.9) == 1u", "true"),
    ("double(9223372036854775807) == 9223372036854775808.0", "true"),
    ("bool(string($A.ecc))", "true"),
    ('bytes("é") == b"\\xc3\\xa9"', "true"),
    ("[0.0 / 0.0] == [0.0 / 0.0]", "false"),
    ('int("+5") == 5', "true"),
    ('int(" 5") == 5', "reject"),
    ('int("9223372036854775808") == 0', "reject"),
    ('int(string("9223372036854775808")) == 0', "reject"),
    ('uint("-1") == 0u', "reject"),
    ('double("1_0") == 10.0', "true"),
    ('double("0x10") == 16.0', "reject"),
    ('double("0x1p4") == 16.0', "true"),
    ('double("1e400") == 1.0', "reject"),
    ('double("inf") > 1e308', "true"),
    ('string(1e6) == "1e+06"', "true"),
    ('string(123456.0) == "123456"', "true"),
    ('string(0.00001) == "1e-05"', "true"),
    ('string(-0.0) == "-0"', "true"),
    ('string(1.5) == "1.5"', "true"),
    ('bool("T")', "true"),
    ('bool("yes")', "reject"),
    ("0x1F == 31", "true"),
    ("1 + 2.0 == 3.0", "reject"),
    ("$A.index * 1.5 == 4.5", "error"),
    ("$A.index + 1 == 4", "true"),
    ("$A.big + 1 > 0", "error"),
    ("$A.index < 3.5", "true"),
    ("$A.index == 3.0 && $A.index == 3u", "true"),
    ("$A.ecc == 1", "false"),
    ("$A.ecc > false", "true"),
    ("$A.index / $A.zero == 1", "error"),
    ("$A.index % $A.zero == 1", "error"),
    ("18446744073709551615u + 1u == 0u", "error"),
    ("0u - 1u == 0u", "error"),
    ("5u / 2u == 2u", "true"),
    ("1 / 0 == 1", "error"),
    ("1.0 / 0.0 == 1.0 / 0.0", "true"),
    ('int("abc") == 1 || true', "reject"),
    ('int(string("abc")) == 1 || true', "reject"),
    ("int($A.num) == 42", "true"),
    ("int($A.model) == 42", "error"),
    ("-$A.index == -3", "true"),
    ('-$A.model == ""', "error"),
    ("1 == 1.0", "reject"),
    ("dyn(1) == 1.0", "true"),
    ("9223372036854775807 < 9223372036854775808.0", "false"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_numbers_behave_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
