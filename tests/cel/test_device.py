"""A device as selectors see it."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.semver import VersionText
from dra_extender.cel import CelGates, CelRuntimeError, compile_selector
from tests.support.cel.devices import view_of

LISTS = CelGates(list_attributes=True)


def evaluate(expression: str, attributes: dict[str, Any], gates: CelGates = CelGates()) -> bool:
    view = view_of("d.example.com", attributes, {"memory": "1Gi"}, False, gates)
    return compile_selector(expression, gates).evaluate(view)


@pytest.mark.parametrize("order", [("x", "d.example.com/x"), ("d.example.com/x", "x")])
def test_a_bare_name_wins_over_one_with_the_drivers_domain(order: tuple[str, str]) -> None:
    attributes = {name: "bare" if name == "x" else "qualified" for name in order}
    assert evaluate("device.attributes['d.example.com'].x == 'bare'", attributes)


def test_a_name_is_split_at_its_first_slash() -> None:
    assert evaluate("device.attributes['a.example.com']['b/c'] == 1", {"a.example.com/b/c": 1})


def test_a_domain_that_nobody_uses_is_empty_but_not_there() -> None:
    assert evaluate("!('x' in device.attributes['nope']) && !('nope' in device.attributes)", {"y": 1})


@pytest.mark.parametrize(
    ("attributes", "gates", "words"),
    [
        ({"v": VersionText("99999999999999999999.0.0")}, CelGates(), "v"),
        ({"list": [1, 2]}, CelGates(), "list"),
        ({"odd": None}, LISTS, "odd"),
    ],
)
def test_a_value_that_cannot_be_used_fails_every_selector(
    attributes: dict[str, Any], gates: CelGates, words: str
) -> None:
    with pytest.raises(CelRuntimeError, match=words):
        evaluate("true", attributes, gates)


def test_lists_can_be_read_when_their_gate_is_on() -> None:
    assert evaluate("device.attributes['d.example.com'].list.includes(2)", {"list": [1, 2]}, LISTS)


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), ("1", 1), ("1.0.0", VersionText("1.0.0"))])
def test_values_of_different_types_are_read_as_different(one: Any, other: Any) -> None:
    program = compile_selector("device.attributes['d.example.com'].x == 1")
    keys = {
        view_of("d.example.com", {"x": value}, {}, False, CelGates()).read_key(program.reads) for value in (one, other)
    }
    assert len(keys) == 2
