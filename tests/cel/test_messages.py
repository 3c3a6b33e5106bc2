"""Protocol buffer messages, and functions that compile but never work.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ('$A.name("x").errored() || true', "reject"),
    ('$A.check("x").allowed() || true', "reject"),
    ('$A.path("x") == 1 || true', "reject"),
    ('authorizer.path("x").check("get").allowed()', "reject"),
    ("google.protobuf.Int64Value{value: 5} == 5", "true"),
    ("google.protobuf.Int64Value{} == 0", "true"),
    ("google.protobuf.BoolValue{value: true} == true", "true"),
    ("google.protobuf.UInt32Value{value: 4294967296u} == 1u || true", "true"),
    ("google.protobuf.Int32Value{value: 2147483648} == 1 || true", "true"),
    ("google.protobuf.FloatValue{value: 0.1} == 0.1", "false"),
    ('google.protobuf.StringValue{value: "a"}.startsWith("a")', "true"),
    ('google.protobuf.Duration{seconds: 1, nanos: 5} > duration("1s")', "true"),
    ("google.protobuf.Int64Value{value: null} == 1 || true", "reject"),
    ("google.protobuf.Int64Value{value: 5} == null", "false"),
    ("google.protobuf.Int64Value{?value: optional.of(5)} == 5", "true"),
    ("[google.protobuf.Int64Value{value: 5}, 5].size() == 2", "true"),
    ("google.protobuf.Int64Value{value: 5} + 1 == 6", "true"),
    ("google.protobuf.Nope{} == 1", "reject"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_messages_and_authorizers_behave_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
