"""The errors of selectors: place, message and hint."""

import pickle

import pytest

from dra_extender.cel import CelCompileError, CelRuntimeError, DeviceView, Program, Programs, Work

MISTAKES = [
    # expression, line, column, words of the message, words of the hint
    ("true &&\n  nope", 2, 2, "undeclared reference to 'nope'", "the only variable is device"),
    ("device.nope == 1", 1, 6, "undefined field 'nope'", "driver"),
    ('device.capacity["d"].m == "1Gi"', 1, 23, "no matching overload for '_==_'", 'quantity("10Gi")'),
    ('device.capacity["d"].m > quantity("1Gi")', 1, 23, "no matching overload for '_>_'", "isGreaterThan()"),
    ('device.attributes["d"].v > semver("1.0.0")', 1, 25, "no matching overload for '_>_'", "compareTo()"),
    ('device.attributes["d"].x.exists(y, true)', 1, 22, "cannot be range of a comprehension", "DRAListTypeAttributes"),
    ('[1, "a"].size() == 2', 1, 4, "expected type 'int' but found 'string'", "dyn(…)"),
    ('"a".matches("(")', 1, 12, "invalid matches argument", ""),
    ('device.driver = "x"', 1, 14, "unexpected '='", "=="),
    ('device.attributes["d"].`x` == 1', 1, 23, "unexpected '`'", '["name"]'),
    ('"open', 1, 0, "unexpected", "close the string"),
    ("true & false", 1, 5, "unexpected '&'", "&&"),
    ("1 +", 1, 3, "unexpected end", ""),
    ("if == 1", 1, 0, "reserved identifier: if", ""),
    ("has(true)", 1, 4, "invalid argument to has()", "has() takes a selection"),
    ("[1].all(1, true)", 1, 8, "simple name", ""),
    ("device.driver", 1, 0, "must evaluate to bool", "compare it"),
    ('int("x") == 1', 1, 0, "type conversion error", ""),
    ("9223372036854775808 > 0", 1, 0, "invalid int literal", ""),
    ('"%d".format(["a"]) == ""', 1, 13, "%d cannot format", ""),
]


@pytest.mark.parametrize(("expression", "line", "column", "message", "hint"), MISTAKES)
def test_a_mistake_is_described_with_its_place_and_what_to_do(
    expression: str, line: int, column: int, message: str, hint: str
) -> None:
    with pytest.raises(CelCompileError) as caught:
        Program(expression)
    error = caught.value
    assert message in error.message
    assert hint in error.hint
    assert (error.line, error.column) == (line, column)
    pointer = error.excerpt.splitlines()[-1]
    assert pointer == f" | {'.' * column}^"


def test_a_long_line_is_cut_around_the_mistake() -> None:
    with pytest.raises(CelCompileError) as caught:
        Program("true && " * 100 + "nope" + " || true" * 100)
    text, pointer = caught.value.excerpt.splitlines()
    assert len(text) < 120
    assert text[pointer.index("^") :].startswith("nope")


def test_a_failed_compilation_is_remembered_and_raised_again() -> None:
    programs = Programs()
    with pytest.raises(CelCompileError) as first:
        programs.compile("nope")
    with pytest.raises(CelCompileError) as second:
        programs.compile("nope", work=Work(0))
    assert str(first.value) == str(second.value)
    assert first.value is not second.value, "an error that was raised refers to the frames it went through"


FAULTS = [
    ("$.nope == 1", "no such key: nope", "has(…)"),
    ("$.?nope.value() == 1", "optional.none() dereference", "orValue(…)"),
    ("[1][5] == 1", "index out of bounds: 5", "size()"),
    ('$.model.isGreaterThan(semver("1.0.0"))', "no such overload: isGreaterThan(string, kubernetes.Semver)", ""),
    ("$.index", "CEL result of type int could not be converted to bool", "compare it"),
    (
        "lists.range(100000).map(x, x).size() > 0",
        "operation cancelled: actual cost limit exceeded",
        "iterate over less",
    ),
]


@pytest.mark.parametrize(("expression", "message", "hint"), FAULTS)
def test_a_failed_evaluation_has_upstreams_words_and_a_hint(
    view: DeviceView, expression: str, message: str, hint: str
) -> None:
    program = Program(expression.replace("$", 'device.attributes["gpu.example.com"]'))
    with pytest.raises(CelRuntimeError) as caught:
        program.evaluate(view)
    assert caught.value.message == message
    assert hint in caught.value.hint
    assert message in str(caught.value)


def test_errors_can_be_sent_to_another_process() -> None:
    with pytest.raises(CelCompileError) as refused:
        Program("has(device)")
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (str(copy), copy.hint, copy.column) == (str(refused.value), refused.value.hint, refused.value.column)
    assert (copy.upstream, copy.upstream_offset) == ("invalid argument to has() macro", 4)
    failed = pickle.loads(pickle.dumps(CelRuntimeError("no such key: a", "check with has()")))
    assert (failed.message, failed.hint) == ("no such key: a", "check with has()")
