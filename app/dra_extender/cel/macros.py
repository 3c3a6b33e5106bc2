"""Which calls are macros: `has(a.b)`, and methods of certain names and numbers of arguments.

Those of cel-go v0.26: parser/macro.go, ext/comprehensions.go, ext/bindings.go, ext/lists.go, and cel/library.go for
optionals.
"""

from __future__ import annotations

from typing import Final

from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax import Call, Conditional, Ident, Index, ListNode, Logic, Macro, Node, Select
from dra_extender.cel.tokens import Token

_ONE_VARIABLE: Final = {("all", 2), ("exists", 2), ("exists_one", 2), ("map", 2), ("map", 3), ("filter", 2)}
_TWO_VARIABLES: Final = {
    ("all", 3), ("exists", 3), ("existsOne", 3), ("exists_one", 3), ("transformList", 3), ("transformList", 4),
    ("transformMap", 3), ("transformMap", 4), ("transformMapEntry", 3), ("transformMapEntry", 4),
}  # fmt: skip
_UNWRAPPING: Final = {("optMap", 2), ("optFlatMap", 2)}
_SORTABLE: Final = (ListNode, Ident, Select, Index, Call, Logic, Conditional, Macro)


def function_or_macro(expression: str, name: Token, args: tuple[Node, ...]) -> Node:
    """The node of `name(args)`. Raises CelCompileError when it is `has` of anything but a selection."""
    if name.text != "has" or len(args) != 1:
        return Call(name.offset, name.text, None, args)
    operand = args[0]
    if not isinstance(operand, Select) or operand.optional:
        hint = "has() takes a selection: has(device.attributes.x.y)"
        problem = "invalid argument to has()"
        raise CelCompileError(problem, expression, operand.offset, hint, upstream=f"{problem} macro")
    return Select(name.offset, operand.operand, operand.field, test=True)


def method_or_macro(expression: str, name: Token, target: Node, args: tuple[Node, ...]) -> Node:
    """The node of `target.name(args)`. Raises CelCompileError for arguments that a macro does not take."""
    form, offset = (name.text, len(args)), name.offset
    if form in _ONE_VARIABLE or form in _UNWRAPPING:
        return Macro(offset, name.text, target, (_variable(expression, args[0]),), args[1:])
    if form in _TWO_VARIABLES:
        first, second = _variable(expression, args[0]), _variable(expression, args[1])
        if first == second:
            raise CelCompileError(f"duplicate variable name: {first}", expression, args[1].offset)
        return Macro(offset, name.text, target, (first, second), args[2:])
    if form == ("bind", 3) and isinstance(target, Ident) and target.name == "cel":
        return Macro(offset, "bind", args[1], (_variable(expression, args[0]),), args[2:])
    if form == ("sortBy", 2):
        if not isinstance(target, _SORTABLE):
            raise CelCompileError("sortBy() needs a list", expression, target.offset)
        return Macro(offset, "sortBy", target, (_variable(expression, args[0]),), args[1:])
    return Call(offset, name.text, target, args)


def _variable(expression: str, node: Node) -> str:
    if not isinstance(node, Ident):
        problem = "the argument must be a simple name"
        raise CelCompileError(problem, expression, node.offset, upstream="argument is not an identifier")
    if node.name == "__result__":
        raise CelCompileError("the variable overwrites the result", expression, node.offset)
    return node.name
