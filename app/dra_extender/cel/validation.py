"""What is checked after the types: literals, and calls that are carried out when a selector is compiled.

cel-go cel/validator.go, ext/formatting.go and the optimiser of interpreter/decorators.go, v0.26. Constant parts are
replaced by literals on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dra_extender.cel import types
from dra_extender.cel.declarations import Function, Functions
from dra_extender.cel.errors import Abort, CelCompileError, CelResultError, Fault
from dra_extender.cel.library.conversions import CONVERSIONS
from dra_extender.cel.library.formatting import check_literal
from dra_extender.cel.library.regexes import pattern
from dra_extender.cel.library.times import from_seconds, parse_duration, parse_timestamp
from dra_extender.cel.syntax import Call, Expr, Ident, Index, ListNode, Literal, MapNode, Select, walk
from dra_extender.cel.types import Type
from dra_extender.cel.values import Map, UInt, map_key
from dra_extender.cel.work import Meter

_INDEXES: Final = (str, int, bool, float, UInt)


def validate(expression: str, tree: Expr, meter: Meter) -> None:
    """Refuse literals that cannot work. Raises CelCompileError and WorkExceeded."""
    exempt: set[int] = set()
    for node in walk(tree):
        if isinstance(node, Call):
            _check_literal_arguments(expression, node, meter)
            if node.function == "format":
                found = [below for argument in node.children for below in walk(argument)]
                meter.charge(len(found) // 4)
                exempt.update(map(id, found))
    for node in walk(tree):
        if isinstance(node, ListNode | MapNode) and id(node) not in exempt:
            _check_homogeneous(expression, node)


def _check_literal_arguments(expression: str, call: Call, meter: Meter) -> None:
    check = _LITERAL_CHECKS.get(call.function)
    first = call.args[0] if call.args else None
    if check is not None and isinstance(first, Literal):
        try:
            check(meter, first.value)
        except (Fault, ValueError) as error:
            problem = f"invalid {call.function} argument"
            raise CelCompileError(f"{problem}: {error}", expression, first.offset, upstream=problem) from None
    target = call.target
    if (
        call.function == "format"
        and isinstance(target, Literal)
        and isinstance(target.value, str)
        and isinstance(first, ListNode)
    ):
        problem, place = check_literal(target.value, first)
        if place is not None:
            raise CelCompileError(problem, expression, place.offset)


def _duration(_: Meter, value: Any) -> None:
    if not isinstance(value, str):
        raise Fault("an integer is not a duration")
    parse_duration(value)


def _matching(meter: Meter, value: Any) -> None:
    pattern(value, meter)


def _timestamp(_: Meter, value: Any) -> None:
    if isinstance(value, str):
        parse_timestamp(value)
    else:
        from_seconds(value)


_LITERAL_CHECKS: Final[dict[str, Callable[[Meter, Any], None]]] = {
    "matches": _matching, "duration": _duration, "timestamp": _timestamp,
}  # fmt: skip


def _check_homogeneous(expression: str, node: ListNode | MapNode) -> None:
    """All elements must have the same type; `dyn` and `any` are types of their own here."""
    values = node.elements if isinstance(node, ListNode) else node.values
    groups = [list(zip(values, node.optional, strict=True))]
    if isinstance(node, MapNode):
        groups.append([(key, False) for key in node.keys])
    for group in groups:
        wanted: Type | None = None
        for value, optional in group:
            found = value.type.params[0] if optional and value.type.params else value.type
            if wanted is None:
                wanted = found
            elif wanted != found:
                raise CelCompileError(
                    f"expected type '{wanted}' but found '{found}'",
                    expression,
                    value.offset,
                    "all elements must have the same type; wrap them with dyn(…) where they differ",
                )


# --- Constants ------------------------------------------------------------------------------------------------------


def fold(expression: str, tree: Expr, functions: Functions, meter: Meter) -> Expr:
    """The tree with constant conversions, lists and maps carried out. Raises CelCompileError and WorkExceeded.

    A folded constant is not larger than the expression, because only conversions are carried out.
    """
    folded: dict[int, Expr] = {}
    for node in reversed(walk(tree)):
        _replace_children(node, folded)
        try:
            constant = _constant(node, functions, meter)
        except (Fault, Abort) as error:
            raise CelCompileError(f"{error}", expression, node.offset) from None
        if constant is not None:
            folded[id(node)] = constant
        elif isinstance(node, Index) and isinstance(node.key, Literal) and node.key.value.__class__ not in _INDEXES:
            raise CelCompileError(f"a value of type '{node.key.type}' cannot be an index", expression, node.key.offset)
        elif isinstance(node, Call) and node.function in ("find", "findAll", "matches"):
            _compile_pattern(expression, node, meter)
    return folded.get(id(tree), tree)


def _compile_pattern(expression: str, call: Call, meter: Meter) -> None:
    regex = call.children[1] if len(call.children) > 1 else None
    if isinstance(regex, Literal) and isinstance(regex.value, str):
        try:
            pattern(regex.value, meter)
        except ValueError as error:
            raise CelCompileError(str(error), expression, regex.offset) from None


def _replace_children(node: Expr, folded: dict[int, Expr]) -> None:
    if not any(id(child) in folded for child in node.children):
        return
    for slot in _slots(node):
        part = getattr(node, slot)
        if isinstance(part, Expr):
            setattr(node, slot, folded.get(id(part), part))
        elif isinstance(part, tuple):
            setattr(node, slot, tuple(folded.get(id(item), item) if isinstance(item, Expr) else item for item in part))


def _slots(node: Expr) -> tuple[str, ...]:
    return tuple(slot for slot in node.__class__.__slots__ if slot not in ("offset", "type"))


def _constant(node: Expr, functions: Functions, meter: Meter) -> Literal | None:
    """The literal a node amounts to, or None."""
    if isinstance(node, Ident | Select):
        return None if node.constant is None else _literal(node, node.constant)
    if isinstance(node, ListNode) and all(isinstance(element, Literal) for element in node.elements):
        if any(node.optional):
            raise Fault("an optional element must be an optional")
        return _literal(node, [element.value for element in node.elements if isinstance(element, Literal)])
    if isinstance(node, MapNode) and all(isinstance(child, Literal) for child in node.children):
        if any(node.optional):
            raise Fault("an optional entry must be an optional")
        pairs = zip(node.keys, node.values, strict=True)
        return _literal(
            node,
            Map(
                (map_key(key.value), value.value)
                for key, value in pairs
                if isinstance(key, Literal) and isinstance(value, Literal)
            ),
        )
    if isinstance(node, Call) and node.function in CONVERSIONS and len(node.children) == 1:
        return _converted(node, functions[node.function], meter)
    return None


def _converted(call: Call, function: Function, meter: Meter) -> Literal | None:
    argument = call.children[0]
    if not isinstance(argument, Literal):
        return None
    return _literal(call, function.run(())(meter, argument.value))


def _literal(node: Expr, value: Any) -> Literal:
    literal = Literal(node.offset, value)
    literal.type = node.type
    return literal


def check_result(expression: str, tree: Expr, allowed: tuple[Type, ...], expected: str) -> None:
    """A selector is a bool, or an attribute. `expected`: the allowed types. Raises CelResultError."""
    if tree.type not in allowed or tree.type.nullable:
        hint = "compare it with something" if tree.type != types.DYN else "compare it: dyn(x) == true"
        raise CelResultError(f"must evaluate to {expected}, not {tree.type}", expression, 0, hint)
