"""What a device selector may name and be, for given feature gates, and errors about all else, with hints.

Qualified names are those of types and constants, and of protocol buffer messages that can be written in a selector:
wrappers, durations and timestamps. The other well-known types (Any, Empty, ListValue, Struct, Value) are of no use in a
selector and are refused, although upstream accepts them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dra_extender.cel import types
from dra_extender.cel.declarations import Functions, functions_of
from dra_extender.cel.device import FIELDS, CelGates
from dra_extender.cel.errors import CelCompileError, Fault, FaultKind
from dra_extender.cel.library import (
    conversions,
    formats,
    formatting,
    kubernetes,
    lists,
    network,
    operators,
    regexes,
    strings,
    times,
    urls,
)
from dra_extender.cel.syntax import Call, Expr, Message
from dra_extender.cel.types import Type, list_of, map_of, optional_of, type_of
from dra_extender.cel.values import Duration, Timestamp, TypeValue, UInt

_SCALARS: Final = (types.BOOL, types.INT, types.STRING, types.ANY, types.DYN, types.SEMVER)
DERIVED: Final[tuple[Type, ...]] = (*_SCALARS, *map(list_of, _SCALARS))
"""The types of derived attributes."""
EXPECTED: Final = "a primitive scalar (string, integer, boolean, semver) or a list of these scalars"

_LIBRARIES: Final = tuple(
    module.LIBRARY
    for module in (
        operators, conversions, times, lists, strings, formatting, kubernetes, network, urls, formats, regexes,
    )
)  # fmt: skip
_WITHOUT_INCLUDES: Final = functions_of(_LIBRARIES)
_WITH_INCLUDES: Final = tuple(functions_of((*_LIBRARIES, kubernetes.includes_of(is_1_37))) for is_1_37 in (False, True))


class Environment(NamedTuple):
    functions: Functions
    fields: Mapping[str, Type]
    """The fields of `device`, which is the only variable."""
    results: tuple[Type, ...]
    """The types that an expression may have."""
    expected: str
    """The same for people."""


def environment(gates: CelGates) -> Environment:
    attribute = types.DYN if gates.list_attributes else types.ANY
    fields = {
        "attributes": map_of(types.STRING, map_of(types.STRING, attribute)),
        "capacity": map_of(types.STRING, map_of(types.STRING, types.QUANTITY)),
        **{name: field.type for name, field in FIELDS.items() if field.exists(gates)},
    }
    has_includes = gates.list_attributes or gates.stored
    functions = _WITH_INCLUDES[gates.is_1_37] if has_includes else _WITHOUT_INCLUDES
    if gates.derived:
        return Environment(functions, fields, DERIVED, EXPECTED)
    results = (types.BOOL, types.ANY, types.DYN) if gates.list_attributes else (types.BOOL, types.ANY)
    return Environment(functions, fields, results, "bool or the unknown type")


_NANO: Final = 10**9


class MessageType(NamedTuple):
    """What a message literal is: its type, the types of its fields, and how to make the value from them."""

    type: Type
    fields: dict[str, Type]
    build: Callable[[dict[str, Any]], Any]


def _wrapper(kind: Type, empty: Any, make: Callable[[Any], Any] = lambda value: value) -> MessageType:
    def build(fields: dict[str, Any]) -> Any:
        value = fields.get("value", empty)
        return empty if value is None else make(value)

    return MessageType(Type(kind.kind, kind.name, kind.params, nullable=True), {"value": kind}, build)


def _int32(value: Any) -> Any:
    if not -(2**31) <= value < 2**31:
        raise Fault("integer overflow")
    return value


def _uint32(value: Any) -> Any:
    if value >= 2**32:
        raise Fault("unsigned integer overflow")
    return value


def _float(value: Any) -> Any:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _total_nanos(fields: dict[str, Any]) -> int:
    return int(fields.get("seconds", 0)) * _NANO + int(_int32(fields.get("nanos", 0)))


def _duration(fields: dict[str, Any]) -> Duration:
    nanos = _total_nanos(fields)
    return Duration(max(-(2**63), min(2**63 - 1, nanos)))


_SPAN: Final = {"seconds": types.INT, "nanos": types.INT}

MESSAGES: Final = {
    "google.protobuf.BoolValue": _wrapper(types.BOOL, False),
    "google.protobuf.BytesValue": _wrapper(types.BYTES, b""),
    "google.protobuf.DoubleValue": _wrapper(types.DOUBLE, 0.0),
    "google.protobuf.FloatValue": _wrapper(types.DOUBLE, 0.0, _float),
    "google.protobuf.Int32Value": _wrapper(types.INT, 0, _int32),
    "google.protobuf.Int64Value": _wrapper(types.INT, 0),
    "google.protobuf.StringValue": _wrapper(types.STRING, ""),
    "google.protobuf.UInt32Value": _wrapper(types.UINT, UInt(0), _uint32),
    "google.protobuf.UInt64Value": _wrapper(types.UINT, UInt(0)),
    "google.protobuf.Duration": MessageType(types.DURATION, _SPAN, _duration),
    "google.protobuf.Timestamp": MessageType(types.TIMESTAMP, _SPAN, lambda fields: Timestamp(_total_nanos(fields))),
}

CONSTANTS: Final[dict[str, tuple[Type, Any]]] = {"google.protobuf.NullValue.NULL_VALUE": (types.INT, 0)}

_A: Final = types.param("A")
_B: Final = types.param("B")
_TYPE_NAMES: Final = {
    **{
        kind.name: kind
        for kind in (
            types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.NULL, types.STRING,
            types.TIMESTAMP, types.TYPE, types.UINT, types.IP, types.CIDR,
        )
    },
    "list": list_of(_A),
    "map": map_of(_A, _B),
    "optional_type": optional_of(_A),
}  # fmt: skip


def global_name(name: str) -> tuple[Type, Any] | None:
    """The type and value of the name of a type or a constant; None for any other."""
    kind = _TYPE_NAMES.get(name)
    if kind is not None:
        return type_of(kind), TypeValue(name)
    return CONSTANTS.get(name)


_ORDERS: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_EQUALITIES: Final = frozenset(("_==_", "_!=_"))
FAULT_HINTS: Final[Mapping[FaultKind, str]] = {
    "missing key": 'check with has(…), with "name" in device.attributes["domain"], or read it with .?name.orValue(…)',
    "no value": "use orValue(…) instead of value()",
    "out of bounds": "check size() first, or use [?index].orValue(…)",
    "too costly": "iterate over less",
    "too large": "make shorter texts and lists",
}
"""What to do about an error at run time."""


def hint_for_overload(function: str, member: bool, arguments: list[Type]) -> str:
    """What to do when no overload of a function fits."""
    if function in _ORDERS and (types.QUANTITY in arguments or types.SEMVER in arguments):
        return "compare with isGreaterThan(), isLessThan() or compareTo()"
    if types.STRING in arguments and types.QUANTITY in arguments:
        return 'write quantity("10Gi") instead of "10Gi"'
    if types.STRING in arguments and types.SEMVER in arguments:
        return 'write semver("1.0.0") instead of "1.0.0"'
    if function == "sign" and member:
        return "sign is a function: sign(quantity)"
    if function == "format" and any(types.ANY in kind.params for kind in arguments):
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
