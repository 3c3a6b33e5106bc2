"""Where selectors are known to differ from upstream, on purpose."""

import pytest

from dra_extender.cel import CelCompileError, DeviceView, compile_selector


@pytest.mark.parametrize("name", ["Any", "Empty", "ListValue", "Struct", "Value"])
def test_messages_that_nobody_needs_in_a_selector_are_refused(name: str) -> None:
    with pytest.raises(CelCompileError, match="undeclared reference"):
        compile_selector(f"google.protobuf.{name}{{}} == google.protobuf.{name}{{}}")


def test_a_map_is_iterated_in_the_order_of_its_keys(view: DeviceView) -> None:
    expression = '{"c": 1, "a": 2, "b": 3}.map(k, k) == ["c", "a", "b"]'
    assert compile_selector(expression).evaluate(view)


def test_equal_values_are_sorted_in_the_order_they_came(view: DeviceView) -> None:
    expression = "lists.range(100).sortBy(x, x % 3) == lists.range(100).filter(x, x % 3 == 0)"
    expression += " + lists.range(100).filter(x, x % 3 == 1) + lists.range(100).filter(x, x % 3 == 2)"
    assert compile_selector(expression).evaluate(view)
