"""Calls of the interpreter: evaluate the arguments, carry out the function, count cost, work and memory."""

from __future__ import annotations

from typing import Any, Final

from dra_extender.cel.cost import Constant, Cost
from dra_extender.cel.declarations import Run
from dra_extender.cel.equality import equal, equal_sum
from dra_extender.cel.errors import Abort, Fault
from dra_extender.cel.frame import Evaluate, Frame
from dra_extender.cel.syntax import Call, Expr, Literal
from dra_extender.cel.values import Key, Map, UInt, map_key, other_kinds, type_name
from dra_extender.cel.work import MANY, Meter, length

BY_OVERLOAD: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_", "_+_", "@in", "sort", "@sortByAssociatedKeys", "flatten"))
"""Functions that cost only 1 when they are resolved at run time."""

FRAGILE: Final[dict[str, tuple[int, type]]] = {"distinct": (0, list), "sort": (0, list), "flatten": (1, int)}
"""Calls whose cost upstream cannot compute when an argument is an error or of another type: it panics."""

_CHARACTERS: Final = 6
_SLOW: Final = {
    **dict.fromkeys(("url", "isURL", "getQuery", "validate", "semver", "isSemver", "duration", "timestamp"), 2),
    **dict.fromkeys(("quantity", "isQuantity", "ip", "isIP", "cidr", "isCIDR", "ip.isCanonical", "strings.quote"), 3),
    **dict.fromkeys(("contains", "indexOf", "lastIndexOf", "replace", "split", "format"), 3),
    **dict.fromkeys(("lowerAscii", "upperAscii", "double", "int", "uint", "distinct", "optional.unwrap"), 4),
}
"""The power of two of the characters or elements that are worked on per unit of work, where it is not _CHARACTERS."""

_SIMPLE: Final = frozenset(
    (
        "!_", "_<_", "_<=_", "_>_", "_>=_", "_+_", "-_", "_-_", "_*_", "_/_", "_%_", "size", "type", "dyn", "hasValue",
        "value", "optional.of", "first", "last", "major", "minor", "patch", "sign", "isInteger", "asInteger",
    )
)  # fmt: skip
"""Functions that charge for themselves, or take no time worth mentioning whatever the sizes of their arguments."""

_PURE: Final = frozenset(("quantity", "semver", "cidr", "ip"))
"""Functions whose result for a constant is remembered after the first call."""


def counted(name: str, run: Run) -> Run:
    """The function with work charged for the sizes of its arguments, and memory for its result."""
    if name in _SIMPLE:
        return run
    shift = _SLOW.get(name, _CHARACTERS)

    def run_counted(meter: Meter, *values: Any) -> Any:
        units = length(values) >> shift
        if units:
            meter.charge(units)
        result = run(meter, *values)
        kind = result.__class__
        is_made = kind is str or kind is list or kind is bytes or kind is Map
        if is_made and len(result) >= MANY and result is not values[0]:
            meter.keep(result)
        return result

    return run_counted


def required(operand: Evaluate, kind: type) -> Evaluate:
    """An argument of a fragile call."""

    def evaluate(frame: Frame) -> Any:
        try:
            value = operand(frame)
        except Fault as fault:
            raise Abort(f"internal error: {fault}") from None
        if value.__class__ is not kind:
            raise Abort(f"internal error: a value of type {type_name(value)} has no cost")
        return value

    return evaluate


def call(operands: tuple[Evaluate, ...], run: Run, cost: Cost | None, both: bool) -> Evaluate:
    """A call. With `both`, of two operands the second is evaluated even if the first failed."""
    both = both and len(operands) == 2

    def evaluate(frame: Frame) -> Any:
        values = _pair(operands, frame) if both else [operand(frame) for operand in operands]
        result = run(frame, *values)
        frame.add_cost(1 if cost is None else cost(values, result))
        return result

    return evaluate


def _pair(operands: tuple[Evaluate, ...], frame: Frame) -> tuple[Any, Any]:
    """The values of two operands. Upstream evaluates both before it looks at errors: the second may still end the
    evaluation.
    """
    left, right = operands
    try:
        first = left(frame)
    except Fault:
        try:
            right(frame)
        except Fault:
            pass
        raise
    return first, right(frame)


def remembered(name: str, operand: Evaluate, evaluate: Evaluate) -> Evaluate:
    """A call of a pure function with a constant: carried out once. Its work and its cost are the same every time."""
    if name not in _PURE or not isinstance(operand, Constant):
        return evaluate
    known: list[tuple[Any, int]] = []

    def evaluate_once(frame: Frame) -> Any:
        if not known:
            before = frame.cost
            known.append((evaluate(frame), frame.cost - before))
            return known[0][0]
        value, cost = known[0]
        frame.add_cost(cost)
        return value

    return evaluate_once


def is_sum(node: Expr) -> bool:
    """True when the node is a sum, not counting the addition of an empty list."""
    if not (isinstance(node, Call) and node.function == "_+_"):
        return False
    left, right = node.args
    if isinstance(left, Literal) and left.value == []:
        return is_sum(right)
    return not (isinstance(right, Literal) and right.value == []) or is_sum(left)


def equality(node: Call, operands: tuple[Evaluate, ...], cost: Cost) -> Evaluate:
    """`==` or `!=`"""
    wanted = node.function == "_==_"
    compare = equal_sum if is_sum(node.args[0]) else equal

    def evaluate(frame: Frame) -> bool:
        values = _pair(operands, frame)
        units = length(values) >> _CHARACTERS
        if units:
            frame.charge(units)
        frame.add_cost(cost(values, None))
        try:
            return compare(*values, frame) is wanted
        except Fault:
            if wanted:
                raise
            return True

    return evaluate


def members(node: Call) -> frozenset[Key] | None:
    """The members of a constant list as keys, in all numeric types that each equals; None for other lists."""
    literal = node.args[1]
    if not isinstance(literal, Literal) or literal.value.__class__ is not list or len(node.overloads) != 1:
        return None
    if any(element.__class__ not in (bool, int, UInt, float, str) for element in literal.value):
        return None
    return frozenset(
        map_key(kind(element)) for element in literal.value for kind in (element.__class__, *other_kinds(element))
    )


def membership(operand: Evaluate, constants: frozenset[Key]) -> Evaluate:
    """`value in [constants]`"""
    if not constants:
        return lambda frame: False

    def evaluate(frame: Frame) -> bool:
        value = operand(frame)
        if value.__class__ is str:
            frame.charge(len(value) >> _CHARACTERS)
        return map_key(value) in constants

    return evaluate
