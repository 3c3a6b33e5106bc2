"""From tokens to a tree: the grammar of cel-go v0.26 (parser/gen/CEL.g4, parser/parser.go).

Promises the same accepted language, including its two limits: 250 nested expressions, and 250 nested operators and
selections (chains of `&&` and `||` count as one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dra_extender.cel import literals
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.macros import function_or_macro, method_or_macro
from dra_extender.cel.syntax import (
    Call,
    Conditional,
    Ident,
    Index,
    ListNode,
    Literal,
    Logic,
    MapNode,
    Message,
    Node,
    Select,
)
from dra_extender.cel.tokens import END, Token, tokenize

MAX_BYTES: Final = 10 * 1024
MAX_DEPTH: Final = 250

_RESERVED: Final = frozenset(
    (
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "package", "namespace", "null", "return", "true", "var", "void", "while",
    )
)  # fmt: skip
_RELATIONS: Final = frozenset(("<", "<=", ">=", ">", "==", "!=", "in"))
_OPERATORS: Final = {
    "<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "==": "_==_", "!=": "_!=_", "in": "@in",
    "+": "_+_", "-": "_-_", "*": "_*_", "/": "_/_", "%": "_%_",
}  # fmt: skip

_OPERAND: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
"""What may begin an operand, in the words of upstream's parser."""

_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_LITERALS: Final = frozenset(("string", "int", "float", "uint", *_CONSTANTS))


def parse(expression: str) -> Node:
    """The tree of an expression. Raises CelCompileError with the place of the first mistake."""
    try:
        size = len(expression.encode())
    except UnicodeEncodeError as error:
        raise CelCompileError("the expression is not valid Unicode text", expression, error.start) from None
    if size > MAX_BYTES:
        raise CelCompileError(f"the expression has {size} bytes, at most {MAX_BYTES} are allowed")
    parser = _Parser(expression, tokenize(expression))
    tree = parser.expression()
    if parser.token.kind != END:
        raise parser.left_over()
    if parser.depth > MAX_DEPTH:
        raise CelCompileError(f"the expression has more than {MAX_DEPTH} nested operators or selections")
    return tree


class _Parser:
    """Recursive descent. `depth` is the number of nested operators and selections of what was parsed last."""

    __slots__ = ("_calculations", "_expression", "_expressions", "_place", "_relations", "_tokens", "depth", "token")

    def __init__(self, expression: str, tokens: list[Token]) -> None:
        self._expression = expression
        self._tokens = tokens
        self._place = 0
        self.token = tokens[0]
        self.depth = 0
        self._expressions = self._relations = self._calculations = 0

    # --- Tokens -----------------------------------------------------------------------------------------------------

    def _next(self) -> Token:
        token = self.token
        self._place += 1
        self.token = self._tokens[self._place]
        return token

    def _accept(self, kind: str) -> bool:
        if self.token.kind != kind:
            return False
        self._next()
        return True

    def _expect(self, kind: str) -> Token:
        if self.token.kind != kind:
            raise self.unexpected(kind)
        return self._next()

    def unexpected(self, wanted: str = "") -> CelCompileError:
        ended = self.token.kind == END
        found = "end of the expression" if ended else repr(self.token.text)
        expected = "" if not wanted else f", expected {'a name' if wanted == 'name' else repr(wanted)}"
        shown, before = "<EOF>" if ended else self.token.text, self._tokens[self._place - 1].text
        upstream = f"mismatched input '{shown}' expecting {_OPERAND if not wanted else repr(wanted)}"
        if wanted == "name" and before == ".":
            upstream = f"no viable alternative at input '.{'' if ended else shown}'"
        elif wanted == ")" and ended:
            upstream = "missing ')' at '<EOF>'"
        return self._syntax_error(f"unexpected {found}{expected}", upstream)

    def left_over(self) -> CelCompileError:
        """The error for what follows a whole expression."""
        text, last = self.token.text, self._tokens[self._place + 1].kind == END
        upstream = f"{'extraneous' if last else 'mismatched'} input '{text}' expecting <EOF>"
        return self._syntax_error(f"unexpected {text!r}", upstream)

    def _syntax_error(self, message: str, upstream: str) -> CelCompileError:
        offset = self.token.offset
        message, upstream = f"syntax error: {message}", f"Syntax error: {upstream}"
        return CelCompileError(message, self._expression, offset, upstream=upstream)

    def _error(self, message: str, offset: int, hint: str = "") -> CelCompileError:
        return CelCompileError(message, self._expression, offset, hint)

    def _limit(self, active: int) -> None:
        if active > MAX_DEPTH:
            raise self._error(f"the expression has more than {MAX_DEPTH} nested levels", self.token.offset)

    # --- Operators --------------------------------------------------------------------------------------------------

    def expression(self) -> Node:
        """`or ? or : expression`"""
        self._expressions += 1
        self._limit(self._expressions)
        node = self._logic(False)
        if self.token.kind == "?":
            offset, deepest = self._next().offset, self.depth
            then = self._logic(False)
            deepest = max(deepest, self.depth)
            self._expect(":")
            otherwise = self.expression()
            self.depth = 1 + max(deepest, self.depth)
            node = Conditional(offset, node, then, otherwise)
        self._expressions -= 1
        return node

    def _logic(self, is_and: bool) -> Node:
        """Terms joined by `||`, each of terms joined by `&&`."""
        symbol = "&&" if is_and else "||"
        first = self._relation() if is_and else self._logic(True)
        if self.token.kind != symbol:
            return first
        offset, terms, deepest = self.token.offset, [first], self.depth
        while self._accept(symbol):
            terms.append(self._relation() if is_and else self._logic(True))
            deepest = max(deepest, self.depth)
        self.depth = deepest
        # A term in parentheses that is a chain of the same kind stays a term: an error in it is one error.
        return Logic(offset, is_and, tuple(terms))

    def _relation(self) -> Node:
        self._relations += 1
        self._limit(self._relations)
        node = self._calculation(0)
        while self.token.kind in _RELATIONS:
            operator, deepest = self._next(), self.depth
            self._relations += 1
            self._limit(self._relations)
            right = self._calculation(0)
            self._relations -= 1
            self.depth = 1 + max(deepest, self.depth)
            node = Call(operator.offset, _OPERATORS[operator.kind], None, (node, right))
        self._relations -= 1
        return node

    def _calculation(self, level: int) -> Node:
        """Level 0 is sums, level 1 products within a sum, level 2 one operand."""
        self._calculations += 1
        self._limit(self._calculations)
        node = self._unary()
        while True:
            kind = self.token.kind
            if level < 2 and (kind == "*" or kind == "/" or kind == "%"):
                right_level = 2
            elif level < 1 and (kind == "+" or kind == "-"):
                right_level = 1
            else:
                break
            operator, deepest = self._next(), self.depth
            right = self._calculation(right_level)
            self.depth = 1 + max(deepest, self.depth)
            node = Call(operator.offset, _OPERATORS[kind], None, (node, right))
        self._calculations -= 1
        return node

    def _unary(self) -> Node:
        kind = self.token.kind
        if kind == "!":
            first, count = self.token.offset, 0
            while self._accept("!"):
                count += 1
            node = self._member()
            return Call(first, "!_", None, (node,)) if count % 2 else node
        if kind == "-" and self._tokens[self._place + 1].kind not in ("int", "float"):
            first, count = self.token.offset, 0
            while self._accept("-"):
                count += 1
            node = self._member()
            return Call(first, "-_", None, (node,)) if count % 2 else node
        return self._member()

    # --- Selections -------------------------------------------------------------------------------------------------

    def _member(self) -> Node:
        node = self._primary()
        while True:
            kind = self.token.kind
            if kind == ".":
                node = self._selection(node)
            elif kind == "[":
                offset, deepest = self._next().offset, self.depth
                optional = self._accept("?")
                key = self.expression()
                self._expect("]")
                self.depth = 1 + max(deepest, self.depth)
                node = Index(offset, node, key, optional=optional)
            else:
                return node

    def _selection(self, operand: Node) -> Node:
        """`.name`, `.?name` or `.name(arguments)`"""
        dot = self._next()
        optional = self._accept("?")
        name = self._expect("name")
        if self.token.kind == "(" and not optional:
            deepest = self.depth
            args = self._arguments()
            self.depth = 1 + max(deepest, self.depth)
            return method_or_macro(self._expression, name, operand, args)
        self.depth += 1
        return Select(dot.offset, operand, name.text, optional=optional)

    def _arguments(self) -> tuple[Node, ...]:
        """`(a, b)`; `depth` becomes the largest of the arguments."""
        self._expect("(")
        args, deepest = [], 0
        if self.token.kind != ")":
            while True:
                args.append(self.expression())
                deepest = max(deepest, self.depth)
                if not self._accept(","):
                    break
        self._expect(")")
        self.depth = deepest
        return tuple(args)

    # --- Operands ---------------------------------------------------------------------------------------------------

    def _primary(self) -> Node:
        token = self.token
        parse: Callable[[], Node] | None = {
            "name": self._name, ".": self._name, "(": self._nested, "[": self._list, "{": self._map,
        }.get(token.kind)  # fmt: skip
        if parse is not None:
            return parse()
        self.depth = 0
        return self._literal()

    def _literal(self) -> Node:
        kind, text, offset = self.token
        negative = kind == "-" and self._tokens[self._place + 1].kind in ("int", "float")
        if negative:
            self._next()
            kind, text, _ = self.token
        if kind not in _LITERALS:
            raise self.unexpected()
        self._next()
        try:
            if kind == "string":
                value = literals.byte_string(text) if text[0] in "bB" else literals.string(text)
                return Literal(offset, value)
            if kind == "int":
                return Literal(offset, literals.integer(text, negative))
            if kind == "float":
                return Literal(offset, literals.double(text, negative))
            if kind == "uint":
                return Literal(offset, literals.unsigned(text))
        except ValueError as error:
            raise self._error(str(error), offset) from None
        return Literal(offset, _CONSTANTS[kind])

    def _nested(self) -> Node:
        self._next()
        node = self.expression()
        self._expect(")")
        return node

    def _name(self) -> Node:
        """A variable, a function call or a message: `name`, `.name`, `name(…)`, `a.b.Name{…}`"""
        offset, prefix = self.token.offset, ""
        if self._accept("."):
            prefix = "."
        token = self._expect("name")
        message = self._message(prefix + token.text, offset)
        if message is not None:
            return message
        if token.text in _RESERVED:
            raise self._error(f"reserved identifier: {token.text}", offset)
        if self.token.kind == "(":
            args = self._arguments()
            return self._function(token, prefix, args)
        self.depth = 0
        return Ident(offset, prefix + token.text)

    def _function(self, name: Token, prefix: str, args: tuple[Node, ...]) -> Node:
        if prefix:
            return Call(name.offset, prefix + name.text, None, args)
        return function_or_macro(self._expression, name, args)

    def _message(self, name: str, offset: int) -> Node | None:
        """A message, if what follows are more names and a brace; otherwise nothing is consumed."""
        place = self._place
        while self._tokens[place].kind == "." and self._tokens[place + 1].kind == "name":
            name += "." + self._tokens[place + 1].text
            place += 2
        if self._tokens[place].kind != "{":
            return None
        self._place, self.token = place, self._tokens[place]
        fields: list[str] = []

        def field() -> None:
            fields.append(self._expect("name").text)

        _, values, optional = self._entries(field)
        return Message(offset, name, tuple(fields), values, optional)

    def _map(self) -> Node:
        offset, keys = self.token.offset, []

        def key() -> None:
            keys.append(self.expression())

        deepest, values, optional = self._entries(key)
        self.depth = deepest
        return MapNode(offset, tuple(keys), values, optional)

    def _entries(self, key: Callable[[], None]) -> tuple[int, tuple[Node, ...], tuple[bool, ...]]:
        """`{?key: value, …}`; `key` parses what is before the colon."""
        self._expect("{")
        values: list[Node] = []
        optional: list[bool] = []
        deepest = 0
        while self.token.kind not in ("}", ","):
            optional.append(self._accept("?"))
            self.depth = 0
            key()
            deepest = max(deepest, self.depth)
            self._expect(":")
            values.append(self.expression())
            deepest = max(deepest, self.depth)
            if not self._accept(",") or self.token.kind == "}":
                break
        else:
            self._trailing_comma(bool(values))
        self._expect("}")
        self.depth = deepest
        return deepest, tuple(values), tuple(optional)

    def _list(self) -> Node:
        offset, deepest = self._next().offset, 0
        elements: list[Node] = []
        optional: list[bool] = []
        while self.token.kind not in ("]", ","):
            optional.append(self._accept("?"))
            elements.append(self.expression())
            deepest = max(deepest, self.depth)
            if not self._accept(",") or self.token.kind == "]":
                break
        else:
            self._trailing_comma(bool(elements))
        self._expect("]")
        self.depth = deepest
        return ListNode(offset, tuple(elements), tuple(optional))

    def _trailing_comma(self, after_element: bool) -> None:
        """A lone comma is allowed between empty brackets."""
        if not after_element:
            self._accept(",")
