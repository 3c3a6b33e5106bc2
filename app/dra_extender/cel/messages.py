"""Qualified names: those of types and constants, and of protocol buffer messages that can be written in a selector.

The messages are wrappers, durations and timestamps. The other well-known types (Any, Empty, ListValue, Struct, Value)
are of no use in a selector and are refused, although upstream accepts them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dra_extender.cel import types
from dra_extender.cel.errors import Fault
from dra_extender.cel.types import Type, list_of, map_of, optional_of, type_of, wrapper_of
from dra_extender.cel.values import Duration, Timestamp, TypeValue, UInt

_NANO: Final = 10**9


class MessageType(NamedTuple):
    """What a message literal is: its type, the types of its fields, and how to make the value from them."""

    type: Type
    fields: dict[str, Type]
    build: Callable[[dict[str, Any]], Any]


def _wrapper(kind: Type, empty: Any, convert: Callable[[Any], Any] = lambda value: value) -> MessageType:
    def build(fields: dict[str, Any]) -> Any:
        value = fields.get("value", empty)
        return empty if value is None else convert(value)

    return MessageType(wrapper_of(kind), {"value": kind}, build)


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


def _timestamp(fields: dict[str, Any]) -> Timestamp:
    return Timestamp(_total_nanos(fields))


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
    "google.protobuf.Timestamp": MessageType(types.TIMESTAMP, _SPAN, _timestamp),
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
