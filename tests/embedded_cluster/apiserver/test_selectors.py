"""What is wrong with a selector, in the words of a real API server."""

import pytest

from embedded_cluster.apiserver.validation.parts import selector_problem

OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
RECORDED = {
    "foo(1)": "1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^",
    "Foo{a: 1} == 1": "1:4: undeclared reference to 'Foo' (in container '')\n | Foo{a: 1} == 1\n | ...^",
    "device.driver.foo ()": (
        "1:19: undeclared reference to 'foo' (in container '')\n | device.driver.foo ()\n | ..................^"
    ),
    "size(1) == 1": "1:5: found no matching overload for 'size' applied to '(int)'\n | size(1) == 1\n | ....^",
    "1 in 5": "1:3: found no matching overload for '@in' applied to '(int, int)'\n | 1 in 5\n | ..^",
    'duration("xx") == duration("1s")': (
        '1:10: invalid duration argument\n | duration("xx") == duration("1s")\n | .........^'
    ),
    "device..a": "1:8: Syntax error: no viable alternative at input '..'\n | device..a\n | .......^",
    "(,)": f"1:2: Syntax error: mismatched input ',' expecting {OPERAND}\n | (,)\n | .^",
    "'ä' == ä": "1:8: Syntax error: token recognition error at: 'ä'\n | 'ä' == ä\n | .．.....＾",
    "": f"1:0: Syntax error: mismatched input '<EOF>' expecting {OPERAND}",
}


@pytest.mark.parametrize("expression", RECORDED)
def test_the_text_of_a_mistake_is_that_of_the_api_server(expression: str) -> None:
    assert selector_problem(expression) == f"compilation failed: ERROR: <input>:{RECORDED[expression]}"


def test_a_type_that_is_not_wanted_is_no_failure_to_compile() -> None:
    assert selector_problem("device.driver") == "must evaluate to bool or the unknown type, not string"
