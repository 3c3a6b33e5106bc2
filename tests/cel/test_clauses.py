"""A selector taken apart, and what is said of devices that it does not select."""

from __future__ import annotations

import pytest

from dra_extender.cel import Program, Programs
from dra_extender.cel.trial import brief, clauses, pointed, try_selector, words
from tests.support.simulation.objects import make_slice

MODEL = 'device.attributes["gpu.example.com"].model'
IS = "gpu.example.com/model is A100"


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("a", ["a"]),
        ("a && b && c", ["a", "b", "c"]),
        ("a && (b && c)", ["a", "(b && c)"]),
        ("a || b && c", ["a || b && c"]),
        ("a && b ? c : d", ["a && b ? c : d"]),
        ('a == "x && y" && b', ['a == "x && y"', "b"]),
        ("f(a && b) && [c && d][0]", ["f(a && b)", "[c && d][0]"]),
        ("a &&\n  b // && c", ["a", "b // && c"]),
        ('a == "unclosed && b', ['a == "unclosed && b']),
    ],
)
def test_an_expression_is_divided_at_the_conjunctions_at_its_top(expression: str, parts: list[str]) -> None:
    assert clauses(expression) == tuple(parts)


def test_people_are_spared_the_way_from_the_device_to_what_is_read() -> None:
    assert brief(f"{MODEL} == 'A100'") == "model == 'A100'"
    assert brief("device.driver == 'x'") == "device.driver == 'x'"


def test_a_word_is_pointed_at_where_it_stands_first() -> None:
    assert pointed(f"{MODEL} == 'model'", "model").splitlines()[1] == " | " + "." * (MODEL.index(".model") + 1) + "^"
    assert pointed("a.b", "c") == ""


def test_one_word_at_a_time_is_changed() -> None:
    expression = f'{MODEL} == "A1" && a < 3 && true'
    found = list(words(expression))
    assert [word.text for word in found] == ["attributes", "gpu.example.com", "model", "A1", "3", "true"]
    assert found[3].replaced(expression, 'A1"') == f'{MODEL} == "A1\\"" && a < 3 && true'
    assert found[4].replaced(expression, "4") == f'{MODEL} == "A1" && a < 4 && true'


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f'device.driver == "gpu.example.com" && {MODEL} == "H1"', f'model == "H1" is false: {IS}'),
        ("device.driver == 'other'", "device.driver == 'other' is false: driver is gpu.example.com"),
        (f'{MODEL} == "H1" || {MODEL}.size() > 9', f'model == "H1" || model.size() > 9 is false: {IS}'),
        ("!device.allowMultipleAllocations && false", "false is false"),
    ],
)  # fmt: skip
def test_a_plain_no_names_the_clause_and_the_value(expression: str, problem: str) -> None:
    published = make_slice("n1", [{"name": "a", "attributes": {"model": {"string": "A100"}}}])
    (trial,) = try_selector(Program(expression), [published], Programs())
    assert (trial.matches, trial.problem) == (False, problem)


def test_a_missing_key_is_told_with_the_nearest_that_there_is() -> None:
    published = make_slice("n1", [{"name": "a", "attributes": {"model": {"string": "A100"}}}])
    expression = 'device.attributes["gpu.example.com"].modle == "A100"'
    (trial,) = try_selector(Program(expression), [published], Programs())
    assert trial.matches is None
    assert trial.problem.endswith("; did you mean model?")
