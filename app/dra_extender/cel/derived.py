"""Derived attributes of requests: the attribute that the value of an expression is.

Rules: Kubernetes 1.37, dynamic-resource-allocation/cel/compile.go (valToDeviceAttribute). The size is limited.
"""

from __future__ import annotations

from typing import Any, Final

from dra_extender.api.decoding import convert
from dra_extender.api.resource import DeviceAttribute
from dra_extender.api.semver import Semver
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.types import ANY, BOOL, DYN, INT, SEMVER, STRING, Type, list_of
from dra_extender.cel.values import UInt, type_name
from dra_extender.limits import SIZE_OF_DERIVED

_SCALARS: Final = (BOOL, INT, STRING, ANY, DYN, SEMVER)
RESULTS: Final[tuple[Type, ...]] = (*_SCALARS, *map(list_of, _SCALARS))
"""The types that an expression may have."""
EXPECTED: Final = "a primitive scalar (string, integer, boolean, semver) or a list of these scalars"

_FIELDS: Final[dict[type, str]] = {bool: "bool", int: "int", str: "string", Semver: "version"}
_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int64", str: "string", Semver: "semver.Version", float: "float64", UInt: "uint64",
    bytes: "[]uint8", type(None): "structpb.NullValue",
}  # fmt: skip
"""Upstream's names of the types of values, as far as expressions often have them."""


def attribute_of(value: Any) -> DeviceAttribute:
    """The attribute with this value. Raises CelRuntimeError."""
    if value.__class__ is list or value.__class__ is str:
        size = len(value) * (16 if value.__class__ is list else 1)
        if size <= SIZE_OF_DERIVED and value.__class__ is list:
            size += sum(len(str(_plain(element))) for element in value if element.__class__ in _FIELDS)
        if size > SIZE_OF_DERIVED:
            raise CelRuntimeError(f"the value is larger than {SIZE_OF_DERIVED} characters", _HINT)
    if value.__class__ is not list:
        field = _FIELDS.get(value.__class__)
        if field is None:
            raise CelRuntimeError(f"unsupported CEL return type: {_name(value)}", _HINT)
        return convert(DeviceAttribute, {field: _plain(value)})
    if not value:
        return DeviceAttribute(strings=())
    kind = value[0].__class__
    if kind not in _FIELDS:
        raise CelRuntimeError(f"unsupported list element type: {_name(value[0])}", _HINT)
    for index, element in enumerate(value):
        if element.__class__ is not kind:
            wanted = "semver" if kind is Semver else _FIELDS[kind]
            raise CelRuntimeError(f"expected list element at index {index} to be {wanted}, got {_name(element)}", _HINT)
    return convert(DeviceAttribute, {f"{_FIELDS[kind]}s": [_plain(element) for element in value]})


_HINT: Final = f"the value has to be {EXPECTED}"


def _plain(value: Any) -> Any:
    return value.text if value.__class__ is Semver else value


def _name(value: Any) -> str:
    return _NAMES.get(value.__class__) or type_name(value)
