"""How large, how deep and how costly a selector may be."""

from collections.abc import Callable

import pytest

from dra_extender.cel import CelCompileError, CelGates, CelRuntimeError, DeviceView, Program
from dra_extender.cel.cost import CALLS
from dra_extender.cel.environment import environment
from dra_extender.limits import FRAMES
from tests.support.cel.expressions import bound
from tests.support.frames import frames

Shape = Callable[[int], str]

DEPTHS: list[tuple[str, Shape, int]] = [
    # name, expression of a depth, the deepest that is allowed
    ("parentheses", lambda n: "(" * n + "true" + ")" * n, 249),
    ("sums", lambda n: "0" + "+1" * n + " > 0", 249),
    ("conditionals", lambda n: "false ? true : " * n + "true", 249),
    ("lists", lambda n: "[" * n + "]" * n + " == []", 250),
    ("keys of maps", lambda n: "{" * n + "1" + ": 1}" * n + " == {}", 249),
    ("calls", lambda n: "dyn(" * n + "1" + ")" * n + " == 1", 249),
    ("methods", lambda n: '"a"' + ".trim()" * n + ' == "a"', 249),
    ("relations", lambda n: "true" + " == true" * n, 250),
    ("sums to the right", lambda n: "1 + (" * n + "1" + ")" * n + " > 0", 124),
    ("products to the right", lambda n: "1 + 1 * (" * n + "1" + ")" * n + " > 0", 83),
    ("quantifiers", lambda n: "[1].all(x, false || true && " * n + "true" + ")" * n, 249),
    ("negations", lambda n: "!(false || true && " * n + "true" + ")" * n, 249),
    ("selections", lambda n: 'dyn({"a": ' * n + "true" + "}).a" * n + " == true", 124),
    ("members", lambda n: "true in [false || true && " * n + "true" + "]" * n, 124),
]


@pytest.mark.parametrize(("shape", "deepest"), [pytest.param(*rest, id=name) for name, *rest in DEPTHS])
def test_nesting_is_limited_where_upstream_limits_it(view: DeviceView, shape: Shape, deepest: int) -> None:
    with frames(FRAMES - 500):  # the rest is for the callers
        assert Program(shape(deepest)).evaluate(view) in (True, False)
    with pytest.raises(CelCompileError, match="nested"):
        Program(shape(deepest + 1))


def test_a_process_without_enough_frames_refuses_a_deep_selector_and_says_so(view: DeviceView) -> None:
    with frames(900), pytest.raises(CelCompileError, match=f"needs a recursion limit of {FRAMES:,}"):
        Program("(" * 240 + "true" + ")" * 240)


def test_chains_of_and_and_or_are_not_nested(view: DeviceView) -> None:
    assert Program(" && ".join(["true"] * 1000)).evaluate(view)


def test_the_length_is_limited_in_bytes(view: DeviceView) -> None:
    assert Program("true //" + "x" * (10240 - 7)).evaluate(view)
    with pytest.raises(CelCompileError, match="10241 bytes"):
        Program("true //" + "x" * (10241 - 7))
    with pytest.raises(CelCompileError, match="bytes"):
        Program('"' + "é" * 5120 + '" == ""')


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(CelCompileError, match="Unicode"):
        Program('"\ud800" == ""')


COSTS = [
    # expression, cost as upstream counts it
    ("true", 0),
    ('device.driver == "gpu.example.com"', 4),
    ('device.attributes["gpu.example.com"].model == "A100"', 5),
    ("[1, 2, 3].all(x, x > 0)", 16),
    ("[device.driver].exists(x, x == x)", 21),
    ("lists.range(100).all(x, x >= 0)", 612),
    ("lists.range(100).map(x, x).size() == 100", 1414),
    ("lists.range(100).filter(x, x > 50).size() > 0", 951),
    ("[3, 1, 2].sort()[0] == 1", 32),
    ('device.driver.matches("^gpu")', 4),
    ('has(device.attributes["gpu.example.com"].model)', 3),
    ('device.attributes["gpu.example.com"].?model.orValue("") == "A100"', 5),
    ("true ? device.driver.size() == 15 : false", 4),
    ('{"a": device.driver}.a == ""', 34),
    ("[1, 2, 1].distinct().size() == 2", 31),
]


@pytest.mark.parametrize(("expression", "cost"), COSTS)
def test_the_cost_is_counted_in_upstreams_units(view: DeviceView, expression: str, cost: int) -> None:
    assert Program(expression).evaluate_with_cost(view)[1] == cost


def test_costs_are_those_of_functions_that_exist() -> None:
    declared = environment(CelGates(list_attributes=True)).functions
    assert set(CALLS) <= set(declared)


def test_exceeding_the_cost_is_an_error_that_nothing_absorbs(view: DeviceView) -> None:
    program = Program("true || lists.range(1000000).all(x, x >= 0)")
    assert program.evaluate(view)
    program = Program("lists.range(700).all(x, lists.range(700).all(y, y >= 0)) || true")
    with pytest.raises(CelRuntimeError, match="cost limit"):
        program.evaluate(view)


EXPLOSIONS = [
    bound('"0123456789"', lambda v: f"{v} + {v}", 60, lambda v: f"{v}.size() > 0"),
    bound("[1]", lambda v: f"{v} + {v}", 40, lambda v: f"{v}.size() > 0"),
    bound("[1]", lambda v: f"{v} + {v}", 40, lambda v: f"{v} == {v}"),
    bound("[1]", lambda v: f"{v} + {v}", 40, lambda v: f"[{v}].size() == 1"),
    bound('"aaaaaaaaaa"', lambda v: f'{v}.replace("a", {v})', 40, lambda v: f"{v}.size() > 0"),
    bound('"x"', lambda v: f"[{v}, {v}].join({v})", 60, lambda v: f"{v}.size() > 0"),
    bound('"%s"', lambda v: f'"%s%s".format([{v}, {v}])', 60, lambda v: f"{v}.size() > 0"),
    "lists.range(9223372036854775807).size() > 0",
    '"%.999999999f".format([1.0]).size() > 0',
    "lists.range(1000).sortBy(x, lists.range(1000).map(y, y * x).distinct().size()).size() > 0",
]


@pytest.mark.parametrize("expression", EXPLOSIONS, ids=range(len(EXPLOSIONS)))
def test_expressions_that_explode_end_in_an_error(view: DeviceView, expression: str) -> None:
    with pytest.raises(CelRuntimeError):
        Program(expression).evaluate(view)


def test_values_that_share_parts_are_compared_in_bounded_time(view: DeviceView) -> None:
    program = Program(bound("[1]", lambda v: f"[{v}, {v}]", 60, lambda v: f"{v} == {v}"))
    with pytest.raises(CelRuntimeError, match="too large"):
        program.evaluate(view)


def test_types_that_share_parts_are_checked_in_bounded_time() -> None:
    with pytest.raises(CelCompileError, match="parts"):
        Program(bound("{1: 1}", lambda v: f"{{{v}: {v}}}", 60, lambda v: f"{v} == {v}"))


PANICS = [
    'device.attributes["gpu.example.com"].version in ["a", "b"] || true',
    "{device.attributes['gpu.example.com'].version: 1}.size() == 1 || true",
    "dyn(b'a') in ['a'] || true",
    "[dyn(1)].map(x, x.foo).distinct().size() == 1 || true",
    "['b'].sortBy(x, int(x)).size() == 1 || true",
    "1 / 0 in {semver('1.0.0'): 1, semver('2.0.0'): 2}.map(k, 1) || true",
    "1 / 0 == {b'a': int(device.driver)}.size() || {b'a': device.driver}.size() == 1 || true",
]


@pytest.mark.parametrize("expression", PANICS)
def test_what_makes_upstream_panic_is_an_error_that_nothing_absorbs(view: DeviceView, expression: str) -> None:
    with pytest.raises(CelRuntimeError, match="internal error"):
        Program(expression).evaluate(view)
