"""What is equal to what, and what is in what.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ('$A.version in ["1.3.0"] || true', "error"),
    ('b"a" in [b"a"]', "true"),
    ('dyn(b"a") in ["a"] || true', "error"),
    ('ip("1.2.3.4") in [ip("1.2.3.4")]', "true"),
    ('ip("1.2.3.4") in {ip("1.2.3.4"): 1}', "true"),
    ('{ip("1.2.3.4"): 1} == {ip("1.2.3.4"): 1}', "true"),
    ("null in {null: 1}", "true"),
    ("int in {int: 1}", "true"),
    ("[1] in {[1]: 1}", "false"),
    ("format.uuid() in [format.uuid()]", "true"),
    ('dyn(format.uuid()) in ["a"] || true', "error"),
    ("9223372036854775807 in [9223372036854775808.0]", "reject"),
    ("dyn(9223372036854775807) in [9223372036854775808.0, 1.0]", "false"),
    ("1.0 in [1, 2] && 1u in [1, 2] && 1 in [1u] && 1u in [1.0]", "reject"),
    ("dyn(true) in [1]", "false"),
    ("[dyn(1)] == [true]", "false"),
    ("[1] == [1.0]", "reject"),
    ('[$A.version] == ["1.3.0"]', "true"),
    ('["1.3.0"] == [$A.version]', "false"),
    ('[$A.version] + [$A.version] == ["1.3.0", "1.3.0"]', "error"),
    ('[$A.version] + [] == ["1.3.0"]', "true"),
    ('{"a": $A.version} == {"a": dyn("x")}', "true"),
    ("$A.version == $A.pre", "false"),
    ("$A.version == 1 || true", "true"),
    ("1 == $A.version", "false"),
    ("null == $A.version", "false"),
    ('device.attributes == {"a": {"b": 1}}', "false"),
    ('device.attributes["nope"] == {}', "true"),
    ('{} == device.attributes["nope"]', "true"),
    ("type(1) == type(dyn(1))", "true"),
    ("type(device.attributes) == map", "true"),
    ('string(type(1)) == "int" || true', "reject"),
    ("dyn([1]) + dyn([2]) == [1, 2]", "true"),
    ("1.0 in [0.0 / 0.0, 1.0]", "true"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_equality_behaves_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
