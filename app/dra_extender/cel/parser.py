"""From tokens to a tree: the grammar of cel-go v0.26 (parser/gen/CEL.g4, parser/parser.go).

Accepts the same language as cel-go, with its limits: of each of the rules expression, relation and calculation at most
`MAX_DEPTH` are open at a time, and as many operators and selections are nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from dra_extender.cel import syntax
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax import Expr
from dra_extender.cel.tokens import END, Token, byte_string, double, integer, string, tokenize, unsigned

T = TypeVar("T")

MAX_BYTES: Final = 10 * 1024
MAX_DEPTH: Final = 250

_RESERVED: Final = frozenset(
    (
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "package", "namespace", "null", "return", "true", "var", "void", "while",
    )
)  # fmt: skip
_OPERATORS: Final = (
    {"||": ""},
    {"&&": ""},
    {"<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "==": "_==_", "!=": "_!=_", "in": "@in"},
    {"+": "_+_", "-": "_-_"},
    {"*": "_*_", "/": "_/_", "%": "_%_"},
)
"""Binary operators and their functions, in order of increasing precedence."""
_CHAINED: Final = ("||", "&&")
_RELATION: Final = 2  # of _OPERATORS; calculations bind more
_LEVELS: Final = {symbol: level for level, symbols in enumerate(_OPERATORS) for symbol in symbols}

_OPERAND: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
"""What may begin an operand, in the words of upstream's parser."""

_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_LITERALS: Final = frozenset(("string", "int", "float", "uint", *_CONSTANTS))


def parse(expression: str, quoted: bool = False) -> Expr:
    """The tree of an expression; `quoted`: fields may be in backticks. Raises CelCompileError with the place of the
    first mistake.
    """
    try:
        size = len(expression.encode())
    except UnicodeEncodeError as error:
        raise CelCompileError("the expression is not valid Unicode text", expression, error.start) from None
    if size > MAX_BYTES:
        raise CelCompileError(f"the expression has {size} bytes, at most {MAX_BYTES} are allowed")
    parser = _Parser(expression, tokenize(expression, quoted))
    tree = parser.expression()
    if parser.token.kind != END:
        raise parser.left_over()
    return tree


class _Parser:
    """Recursive descent. `depth` is the number of nested operators and selections of what was parsed last."""

    def __init__(self, expression: str, tokens: list[Token]) -> None:
        self._expression = expression
        self._tokens = tokens
        self._place = 0
        self.token = tokens[0]
        self.depth = 0
        self._expressions = self._relations = self._calculations = 0

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

    def _deepen(self, *parts: int) -> None:
        """What was parsed is an operator or a selection of parts with these depths."""
        self.depth = 1 + max(parts)
        self._limit(self.depth, "operators or selections")

    def _limit(self, nested: int, what: str = "levels") -> None:
        if nested > MAX_DEPTH:
            raise self._error(f"the expression has more than {MAX_DEPTH} nested {what}", self.token.offset)

    def expression(self) -> Expr:
        """`operators` or `operators ? operators : expression`"""
        self._expressions += 1
        self._limit(self._expressions)
        node = self._operators(0)
        if self.token.kind == "?":
            offset, test = self._next().offset, self.depth
            then, depth = self._operators(0), self.depth
            self._expect(":")
            otherwise = self.expression()
            self._deepen(test, depth, self.depth)
            node = syntax.Conditional(offset, node, then, otherwise)
        self._expressions -= 1
        return node

    def _operators(self, level: int) -> Expr:
        """Operands joined by binary operators of this level or of one that binds more."""
        relations, calculations = self._relations, self._calculations
        own = relations + (level <= _RELATION)
        self._open(own, calculations + 1)
        node = self._operand()
        while (found := _LEVELS.get(self.token.kind, -1)) >= level:
            operator, depth, operands = self._next(), self.depth, [node]
            if found < _RELATION:  # the relation and the calculation before it are complete
                self._open(relations, calculations)
            elif found == _RELATION:
                self._open(own + 1, calculations)
            while True:
                operands.append(self._operators(found + 1))
                depth = max(depth, self.depth)
                if operator.kind not in _CHAINED or not self._accept(operator.kind):
                    break
            if operator.kind in _CHAINED:
                self.depth = depth
                # A term in parentheses that is a chain of the same kind stays a term: an error in it is one error.
                node = syntax.Logic(operator.offset, operator.kind == "&&", tuple(operands))
            else:
                self._deepen(depth)
                node = syntax.Call(operator.offset, _OPERATORS[found][operator.kind], None, tuple(operands))
        self._relations, self._calculations = relations, calculations
        return node

    def _open(self, relations: int, calculations: int) -> None:
        """So many relations and calculations are open."""
        self._relations, self._calculations = relations, calculations
        self._limit(max(relations, calculations))

    def _operand(self) -> Expr:
        """`!` or `-` any number of times, and an operand with all that is selected of it."""
        sign, signs = self.token, 0
        if sign.kind == "!" or (sign.kind == "-" and self._tokens[self._place + 1].kind not in ("int", "float")):
            while self._accept(sign.kind):
                signs += 1
        self.depth = 0
        parse = self._PRIMARY.get(self.token.kind)
        node = self._literal() if parse is None else parse(self)
        while (kind := self.token.kind) == "." or kind == "[":
            if kind == ".":
                node = self._selection(node)
                continue
            offset, depth = self._next().offset, self.depth
            optional = self._accept("?")
            key = self.expression()
            self._expect("]")
            self._deepen(depth, self.depth)
            node = syntax.Index(offset, node, key, optional=optional)
        if signs % 2 == 0:
            return node
        return syntax.Call(sign.offset, f"{sign.kind}_", None, (node,))

    def _selection(self, operand: Expr) -> Expr:
        """`.name`, `.?name` or `.name(arguments)`"""
        dot = self._next()
        optional = self._accept("?")
        name = self._field()
        if self.token.kind == "(" and not optional and name.kind == "name":
            depth = self.depth
            args = self._arguments()
            self._deepen(depth, self.depth)
            return _method_or_macro(self._expression, name, operand, args)
        self._deepen(self.depth)
        return syntax.Select(dot.offset, operand, name.text, optional=optional)

    def _field(self) -> Token:
        """A name, which may be in backticks."""
        if self.token.kind != "quoted":
            return self._expect("name")
        return self._next()._replace(text=self._tokens[self._place - 1].text[1:-1])

    def _arguments(self) -> tuple[Expr, ...]:
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

    def _literal(self) -> Expr:
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
                value = byte_string(text) if text[0] in "bB" else string(text)
                return syntax.Literal(offset, value)
            if kind == "int":
                return syntax.Literal(offset, integer(text, negative))
            if kind == "float":
                return syntax.Literal(offset, double(text, negative))
            if kind == "uint":
                return syntax.Literal(offset, unsigned(text))
        except ValueError as error:
            raise self._error(str(error), offset) from None
        return syntax.Literal(offset, _CONSTANTS[kind])

    def _parentheses(self) -> Expr:
        self._next()
        node = self.expression()
        self._expect(")")
        return node

    def _name(self) -> Expr:
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
            if prefix:
                return syntax.Call(token.offset, prefix + token.text, None, args)
            return _function_or_macro(self._expression, token, args)
        return syntax.Ident(offset, prefix + token.text)

    def _message(self, name: str, offset: int) -> Expr | None:
        """A message, if what follows are more names and a brace; otherwise nothing is consumed."""
        place = self._place
        while self._tokens[place].kind == "." and self._tokens[place + 1].kind == "name":
            name += "." + self._tokens[place + 1].text
            place += 2
        if self._tokens[place].kind != "{":
            return None
        self._place, self.token = place, self._tokens[place]
        fields, values, optional = self._entries(lambda: self._field().text)
        return syntax.Message(offset, name, fields, values, optional)

    def _map(self) -> Expr:
        offset = self.token.offset
        return syntax.MapNode(offset, *self._entries(self.expression))

    def _entries(self, key: Callable[[], T]) -> tuple[tuple[T, ...], tuple[Expr, ...], tuple[bool, ...]]:
        """`{?key: value, …}`; `key` parses what is before the colon."""
        keys: list[T] = []
        values: list[Expr] = []
        self._next()
        optional: list[bool] = []
        for is_optional in self._items("}"):
            optional.append(is_optional)
            self.depth = 0
            keys.append(key())
            depth = self.depth
            self._expect(":")
            values.append(self.expression())
            self.depth = max(depth, self.depth)
        return tuple(keys), tuple(values), tuple(optional)

    def _list(self) -> Expr:
        offset, elements, optional = self._next().offset, list[Expr](), list[bool]()
        for is_optional in self._items("]"):
            optional.append(is_optional)
            elements.append(self.expression())
        return syntax.ListNode(offset, tuple(elements), tuple(optional))

    def _items(self, closing: str) -> Iterator[bool]:
        """Whether each item of `a, ?b]` is optional; the caller parses the item. A comma may follow the last one."""
        depth, is_empty = 0, True
        while self.token.kind not in (closing, ","):
            is_empty = False
            yield self._accept("?")
            depth = max(depth, self.depth)
            if not self._accept(",") or self.token.kind == closing:
                break
        if is_empty:
            self._accept(",")
        self._expect(closing)
        self.depth = depth

    _PRIMARY: Final[dict[str, Callable[[_Parser], Expr]]] = {
        "name": _name, ".": _name, "(": _parentheses, "[": _list, "{": _map,
    }  # fmt: skip


# Those of cel-go v0.26: parser/macro.go, ext/comprehensions.go, ext/bindings.go, ext/lists.go, cel/library.go.

_MACROS: Final = {
    ("all", 2): 1, ("exists", 2): 1, ("exists_one", 2): 1, ("filter", 2): 1, ("map", 2): 1, ("map", 3): 1,
    ("optMap", 2): 1, ("optFlatMap", 2): 1, ("sortBy", 2): 1,
    ("all", 3): 2, ("exists", 3): 2, ("existsOne", 3): 2, ("exists_one", 3): 2, ("transformList", 3): 2,
    ("transformList", 4): 2, ("transformMap", 3): 2, ("transformMap", 4): 2, ("transformMapEntry", 3): 2,
    ("transformMapEntry", 4): 2,
}  # fmt: skip
"""By name and number of arguments: how many of these are variables."""
_NO_LISTS: Final = (syntax.Literal, syntax.MapNode, syntax.Message)


def _function_or_macro(expression: str, name: Token, args: tuple[Expr, ...]) -> Expr:
    """The node of `name(args)`. Raises CelCompileError when it is `has` of anything but a selection."""
    if name.text != "has" or len(args) != 1:
        return syntax.Call(name.offset, name.text, None, args)
    operand = args[0]
    if not isinstance(operand, syntax.Select) or operand.optional:
        hint = "has() takes a selection: has(device.attributes.x.y)"
        problem = "invalid argument to has()"
        raise CelCompileError(problem, expression, operand.offset, hint, upstream=f"{problem} macro")
    return syntax.Select(name.offset, operand.operand, operand.field, test=True)


def _method_or_macro(expression: str, name: Token, target: Expr, args: tuple[Expr, ...]) -> Expr:
    """The node of `target.name(args)`. Raises CelCompileError for arguments that a macro does not take."""
    form, offset = (name.text, len(args)), name.offset
    if form == ("bind", 3) and isinstance(target, syntax.Ident) and target.name == "cel":
        return syntax.Macro(offset, "bind", args[1], (_variable(expression, args[0]),), args[2:])
    count = _MACROS.get(form)
    if count is None:
        return syntax.Call(offset, name.text, target, args)
    if name.text == "sortBy" and isinstance(target, _NO_LISTS):
        raise CelCompileError("sortBy() needs a list", expression, target.offset)
    variables = tuple([_variable(expression, argument) for argument in args[:count]])
    if count == 2 and variables[0] == variables[1]:
        raise CelCompileError(f"duplicate variable name: {variables[0]}", expression, args[1].offset)
    return syntax.Macro(offset, name.text, target, variables, args[count:])


def _variable(expression: str, node: Expr) -> str:
    if not isinstance(node, syntax.Ident):
        problem = "the argument must be a simple name"
        raise CelCompileError(problem, expression, node.offset, upstream="argument is not an identifier")
    if node.name == "__result__":
        raise CelCompileError("the variable overwrites the result", expression, node.offset)
    return node.name
