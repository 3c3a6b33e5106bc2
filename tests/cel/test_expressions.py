"""Expressions about objects: what they may name, what they are, and when their variables are evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.cel import CelCompileError, CelRuntimeError, types
from dra_extender.cel.expressions import Bindings, Expression
from dra_extender.cel.policyvariables import ALWAYS, STRUCTS, VARIABLES
from dra_extender.cel.types import Type

POD = {
    "metadata": {"name": "a", "labels": {"tier": "gold"}},
    "spec": {"priority": 5, "share": 0.5, "node": None, "containers": [{"name": "c"}, {"name": "d", "args": ["x"]}]},
}
VALUES: dict[str, Any] = {
    "has(object.metadata.labels) && !has(object.metadata.annotations)": True,
    "object.spec.containers.exists(c, c.?args.orValue([]).size() == 1)": True,
    "object.spec.containers.map(c, c.name)": ["c", "d"],
    "object.metadata.labels == {'tier': 'gold'}": True,
    "object.spec.priority + 1": 6,
    "object.spec.share < 1.0": True,
    "object.spec.node == null": True,
    "'tier' in object.metadata.labels": True,
    "oldObject == null": True,
    "request.?name.orValue('none')": "none",
    "object.?spec.?nothing.?below.hasValue()": False,
}
FAILURES = {
    "object.spec.nothing": "no such key: nothing",
    "object.spec.priority == 5 && object.metadata.name > 1": "no such overload",
    "object.spec.containers[7].name": "index out of bounds: 7",
}


def compiled(text: str, wanted: Type | None = None, **variables: Expression) -> Expression:
    structs = {**STRUCTS, VARIABLES.name: {name: each.type for name, each in variables.items()}}
    return Expression(text, {**ALWAYS, "variables": VARIABLES}, structs, wanted)


def bound(**variables: Expression) -> Bindings:
    return Bindings({"object": POD, "oldObject": None, "request": {}}, variables)


@pytest.mark.parametrize("text", VALUES)
def test_json_has_the_values_of_the_language(text: str) -> None:
    assert compiled(text).evaluate(bound()) == VALUES[text]


@pytest.mark.parametrize("text", FAILURES)
def test_a_failure_is_in_the_words_of_the_api_server(text: str) -> None:
    with pytest.raises(CelRuntimeError) as raised:
        compiled(text).evaluate(bound())
    assert FAILURES[text] in raised.value.message


@pytest.mark.parametrize(
    ("text", "wanted", "words"),
    [
        ("object.spec.paused", types.BOOL, "must evaluate to bool but got dyn"),
        ("1", types.STRING, "must evaluate to string but got int"),
        ("request.nothing == 1", types.BOOL, "undefined field 'nothing'"),
        ("device.driver == 'a'", types.BOOL, "undeclared reference to 'device' (in container '')"),
    ],
)
def test_what_has_a_type_is_checked(text: str, wanted: Type, words: str) -> None:
    with pytest.raises(CelCompileError) as raised:
        compiled(text, wanted)
    assert words in raised.value.official()


def test_the_names_that_are_read_are_known() -> None:
    assert compiled("object.a == 1 || [1].exists(request, request == 2)").names == {"object"}


def test_a_variable_is_evaluated_when_it_is_read_and_once() -> None:
    bad, chain = compiled("object.spec.nothing"), compiled("object.spec.priority * 2")
    twice = compiled("variables.chain + 1", chain=chain)
    bindings = bound(bad=bad, chain=chain, twice=twice)
    asked = compiled("true || variables.bad == 1", bad=bad)
    assert asked.evaluate(bindings) is True
    assert compiled("variables.twice", chain=chain, twice=twice).evaluate(bindings) == 11


def test_the_error_of_a_variable_names_it() -> None:
    bad = compiled("object.spec.nothing")
    with pytest.raises(CelRuntimeError) as raised:
        compiled("variables.bad == 1", bad=bad).evaluate(bound(bad=bad))
    assert raised.value.message == 'composited variable "bad" fails to evaluate: no such key: nothing'
