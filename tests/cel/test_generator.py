"""The fast way: taken for common selectors, and never different from the interpreter."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import VersionText
from dra_extender.cel import CelGates, CelRuntimeError, DeviceView, Program, compile_selector
from dra_extender.cel.fallbacks import FALLBACKS
from tests.support.unexpected import Reports, raises_unexpected

LISTS = CelGates(list_attributes=True)

COMMON = [
    'device.driver == "d"',
    "$A.model == 'a' && $A.index >= 2",
    "$A.model in ['a', 'b'] || !$A.flag",
    "$A.index in [1, 2]",
    "$A.flag == true",
    "$A.index != 1",
    "'a' == $A.model",
    "$A.version.isGreaterThan(semver('1.0.0'))",
    "$A.version.compareTo(semver('1.0.0')) <= 0",
    "$A.version == semver('1.0.0')",
    "$A.version.major() == 1",
    "$C.memory.compareTo(quantity('10Gi')) >= 0",
    "$C.memory == quantity('10Gi')",
    "$C.memory.isLessThan($C.other)",
    "has($A.model) && $A.model.startsWith('a')",
    "'model' in $A && $A.model.contains('a') && $A.model.endsWith('a')",
    "$A.model.matches('^a+$')",
    "$A.?index.orValue(7) == 7",
    "$C.?memory.orValue(quantity('0')) == quantity('0')",
    "$C.?memory.optMap(m, m.isInteger()).orValue(false)",
    "$A[?'model'].hasValue()",
    "$A.flag ? $A.index == 1 : $A.model == 'a'",
    "cel.bind(a, $A, a.flag || a.index == 1)",
    "cel.bind(i, $A.index, i == 1 || i == 2)",
    "$A.all(k, k.size() < 7)",
    "$A.exists(k, v, v == 1)",
    "$A.index < 2 || $A.model < 'b'",
    "$A.model.size() == 1",
    "$A.list.exists(e, e == 1)",
    "$A.list.all(e, e == 1 || e == 'a')",
    "$A.list.map(e, e) == [1]",
    "1 in $A.list",
    "$A.list.includes(1)",
    "$A.model.split('a')[0] == ''",
    "$A.nope == 1 || $A.model == 'a'",
    "$A.flag",
    "$A.model == $A.other",
    "device.allowMultipleAllocations == false",
]


def expand(expression: str) -> str:
    return expression.replace("$A", 'device.attributes["d"]').replace("$C", 'device.capacity["d"]')


@pytest.mark.parametrize("expression", COMMON)
def test_common_selectors_go_the_fast_way(expression: str) -> None:
    assert compile_selector(expand(expression), LISTS).is_fast


scalars = st.one_of(
    st.integers(-1, 3),
    st.just(2**63 - 1),
    st.booleans(),
    st.sampled_from(["", "a", "aa", "b", "é"]),
    st.sampled_from([VersionText("1.0.0"), VersionText("1.2.0"), VersionText("1.0.0-rc"), VersionText("x")]),
)
devices = st.builds(
    lambda driver, attributes, capacity: DeviceView.build(driver, attributes, capacity, False, LISTS),
    st.sampled_from(["d", "e"]),
    st.dictionaries(
        st.sampled_from(["model", "index", "flag", "version", "other", "list", "d/model", "e/model"]),
        st.one_of(scalars, st.lists(scalars, max_size=3)),
        max_size=8,
    ),
    st.dictionaries(
        st.sampled_from(["memory", "other", "d/memory"]),
        st.sampled_from(["10Gi", "10240Mi", "0", "1500m", "1e400"]).map(Quantity.parse),
        max_size=3,
    ),
)


def outcome(evaluate: Callable[[], bool]) -> str:
    try:
        return str(evaluate())
    except CelRuntimeError as error:
        return error.message


@given(st.sampled_from(COMMON), devices)
def test_the_fast_way_answers_as_the_interpreter(expression: str, view: DeviceView) -> None:
    program = compile_selector(expand(expression), LISTS)
    assert outcome(lambda: program.evaluate(view)) == outcome(lambda: program.evaluate_exactly(view)[0])


def test_what_the_compiled_form_leaves_open_is_answered_by_the_interpreter_and_counted() -> None:
    before = dict(FALLBACKS)
    program = compile_selector(expand("$A.nope == 1 || $A.model == 'a'"), LISTS)
    assert program.evaluate(DeviceView.build("d", {"model": "a"}, {}))
    assert before | {"interpreted": before["interpreted"] + 1} == FALLBACKS


def broken() -> Program:
    """A program whose compiled form has a bug."""
    program = Program("device.driver == 'd'", LISTS)
    program._fast = lambda view: view.nope  # type: ignore[attr-defined]
    return program


def test_a_bug_of_the_compiled_form_raises_in_tests() -> None:
    with raises_unexpected("selector"):
        broken().evaluate(DeviceView.build("d", {}, {}))


def test_a_bug_of_the_compiled_form_is_counted_in_production_and_the_interpreter_answers(tolerated: Reports) -> None:
    before = dict(FALLBACKS)
    assert broken().evaluate(DeviceView.build("d", {}, {}))
    assert [(place, type(problem)) for place, problem in tolerated] == [("selector", AttributeError)]
    assert before | {"unexpected": before["unexpected"] + 1} == FALLBACKS


def test_devices_beyond_the_limits_of_the_api_are_evaluated_exactly() -> None:
    huge = DeviceView.build("d", {"model": "a" * 100_000}, {})
    program = compile_selector(expand("$A.model.matches('^(a|b)*$')"))
    assert not huge.modest
    assert program.evaluate(huge)
    many = DeviceView.build("d", {f"a{i}": i for i in range(1000)}, {})
    assert not many.modest
    assert compile_selector(expand("$A.all(k, k.startsWith('a'))")).evaluate(many)
