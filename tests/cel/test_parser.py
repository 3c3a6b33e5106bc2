"""Any text is either a tree or one readable error."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dra_extender.cel import CelCompileError, CelGates, DeviceView, Program
from dra_extender.cel.parser import parse
from dra_extender.cel.syntax import Call, Conditional, Expr, Literal, Logic, Macro, Select, walk
from dra_extender.cel.tokens import tokenize

PIECES = [
    "true", "false", "null", "in", "device", "driver", "x", "has", "all", "map", "cel", "bind", "if", "1", "0x1F",
    "1u", "1.5", ".5", "1e3", '"a"', "'a'", 'r"\\"', 'b"a"', '"""a"""', "(", ")", "[", "]", "{", "}", ".", ",", "?",
    ":", "+", "-", "*", "/", "%", "!", "<", "<=", ">", ">=", "==", "!=", "&&", "||", " ", "\n", "// c\n", "\\", "`",
    "`b c`", "é", "=", "&",
]  # fmt: skip


@given(st.one_of(st.text(), *(st.lists(st.sampled_from(PIECES)).map(join) for join in ("".join, " ".join))))
@example("-")
@example("1 -")
@example("a.?")
@example("\ud800")
def test_any_text_compiles_or_is_refused_with_a_place_inside_of_it(text: str) -> None:
    try:
        Program(text, CelGates(is_1_37=True))
    except CelCompileError as error:
        assert error.message
        assert error.offset is None or 0 <= error.offset <= len(text)


@given(st.lists(st.sampled_from(PIECES[:39])).map(" ".join))
def test_tokens_are_the_text_without_space(text: str) -> None:
    tokens = tokenize(text)
    assert "".join(token.text for token in tokens) == text.replace("// c\n", "").replace(" ", "").replace("\n", "")
    assert all(text.startswith(token.text, token.offset) for token in tokens)


def shape(node: Expr) -> str:
    """A tree in brackets."""
    if isinstance(node, Literal):
        return repr(node.value)
    if isinstance(node, Call):
        return f"({' '.join([node.function, *map(shape, node.children)])})"
    if isinstance(node, Logic):
        return f"({' '.join(['and' if node.is_and else 'or', *map(shape, node.terms)])})"
    if isinstance(node, Conditional):
        return f"(if {shape(node.test)} {shape(node.then)} {shape(node.otherwise)})"
    if isinstance(node, Select):
        return f"({'has' if node.test else '.'} {shape(node.operand)} {node.field})"
    if isinstance(node, Macro):
        return f"({node.name} {shape(node.range)} {' '.join(node.variables)} {' '.join(map(shape, node.arguments))})"
    return node.__class__.__name__


def test_operators_bind_as_the_grammar_says() -> None:
    assert shape(parse("1 + 2 * 3 - 4")) == "(_-_ (_+_ 1 (_*_ 2 3)) 4)"
    assert shape(parse("1 < 2 == true")) == "(_==_ (_<_ 1 2) True)"
    assert shape(parse("1 || 2 && 3 || 4")) == "(or 1 (and 2 3) 4)"
    assert shape(parse("1 ? 2 : 3 ? 4 : 5")) == "(if 1 2 (if 3 4 5))"
    assert shape(parse("!!!1")) == "(!_ 1)"
    assert shape(parse("-(-1)")) == "(-_ -1)"
    assert shape(parse("--1")) == "1"
    assert shape(parse("1 - -1")) == "(_-_ 1 -1)"
    assert shape(parse("[1].all(x, x)")) == "(all ListNode x Ident)"
    assert shape(parse("has(a.b)")) == "(has Ident b)"
    assert shape(parse("cel.bind(x, 1, 2)")) == "(bind 1 x 2)"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a.`b`", "(. Ident b)"), ("a.?`b c`.`in`", "(. (. Ident b c) in)"),
        ("has(a.`b.c/d-e_1`)", "(has Ident b.c/d-e_1)"), ("google.protobuf.Int64Value{`value`: 1}", "Message"),
        ("a.``", ""), ("a.`b$`", ""), ("a.`b`(1)", ""), ("`a`", ""), (".`a`", ""), ("a.`b`.C{d: 1}", ""),
    ],
)  # fmt: skip
def test_fields_may_be_in_backticks_in_1_37(text: str, tree: str) -> None:
    for quoted, expected in (True, tree), (False, ""):
        try:
            found = shape(parse(text, quoted))
        except CelCompileError:
            found = ""
        assert found == expected


def test_a_walk_comes_to_every_node() -> None:
    assert len(walk(parse("[1, 2].exists(x, x == 1 && true)"))) == 9


def test_literals_have_the_values_they_stand_for() -> None:
    values = {
        '"\\x41\\101\\u0041\\U00000041\\n\\?"': "AAAA\n?", "r'\\n'": "\\n", "'''a'b\r\nc'''": "a'b\nc",
        'b"\\xff\\377é"': b"\xff\xff\xc3\xa9",
        "0xff": 255, "-9223372036854775808": -(2**63), "1e3": 1000.0, "-.5": -0.5, "18446744073709551615u": 2**64 - 1,
    }  # fmt: skip
    for text, value in values.items():
        tree = parse(text)
        assert isinstance(tree, Literal)
        assert tree.value == value


def test_an_expression_means_the_same_wherever_it_is_broken(view: DeviceView) -> None:
    tokens = tokenize('device.attributes["gpu.example.com"].model == "A100" && !(1 + 2 * 3 < 7)')
    assert Program("\n\t// c\n".join(token.text for token in tokens)).evaluate(view)
