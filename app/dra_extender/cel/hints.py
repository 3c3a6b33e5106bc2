"""Errors about names and calls that the language does not have, and hints: what to do about an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dra_extender.cel.errors import CelCompileError, Kind
from dra_extender.cel.syntax import Call, Expr, Message
from dra_extender.cel.types import ANY, QUANTITY, SEMVER, STRING, Type

_ORDERS: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_EQUALITIES: Final = frozenset(("_==_", "_!=_"))
FAULT_HINTS: Final[Mapping[Kind, str]] = {
    "missing key": 'check with has(…), with "name" in device.attributes["domain"], or read it with .?name.orValue(…)',
    "no value": "use orValue(…) instead of value()",
    "out of bounds": "check size() first, or use [?index].orValue(…)",
    "too costly": "iterate over less",
    "too large": "make shorter texts and lists",
}
"""What to do about an error at run time."""


def hint_for_overload(function: str, member: bool, arguments: list[Type]) -> str:
    """What to do when no overload of a function fits."""
    if function in _ORDERS and (QUANTITY in arguments or SEMVER in arguments):
        return "compare with isGreaterThan(), isLessThan() or compareTo()"
    if STRING in arguments and QUANTITY in arguments:
        return 'write quantity("10Gi") instead of "10Gi"'
    if STRING in arguments and SEMVER in arguments:
        return 'write semver("1.0.0") instead of "1.0.0"'
    if function == "sign" and member:
        return "sign is a function: sign(quantity)"
    if function == "format" and any(ANY in kind.params for kind in arguments):
        return "convert attributes with string(…) or dyn(…)"
    if function in _EQUALITIES:
        return "both sides must have the same type"
    return ""


def undeclared(expression: str, node: Expr, name: str, hint: str = "") -> CelCompileError:
    """A variable, function or message that the language does not have."""
    problem = f"undeclared reference to '{name}'"
    upstream = f"{problem} (in container '')"
    return CelCompileError(problem, expression, node.offset, hint, upstream, _bracket(expression, node))


def no_overload(
    expression: str, node: Expr, name: str, member: bool, arguments: Sequence[str], hint: str
) -> CelCompileError:
    """No overload of the function takes arguments of these types. The first type is the receiver of a method."""
    applied = f"{arguments[0]}.({', '.join(arguments[1:])})" if member else f"({', '.join(arguments)})"
    problem = f"found no matching overload for '{name}' applied to '{applied}'"
    return CelCompileError(problem, expression, node.offset, hint, upstream_offset=_bracket(expression, node))


def _bracket(expression: str, node: Expr) -> int | None:
    """Where a call that is written with a name, or a message, has its bracket: upstream points there."""
    if isinstance(node, Message):
        return expression.find("{", node.offset)
    named = isinstance(node, Call) and expression.startswith(node.function.rpartition(".")[2], node.offset)
    return expression.find("(", node.offset) if named else None
