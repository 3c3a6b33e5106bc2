"""Optional values (cel-go cel/library.go, v0.26). `or` and `orValue` are the interpreter's: they evaluate lazily."""

from __future__ import annotations

from typing import Any, Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault
from dra_extender.cel.values import NONE, Domains, Duration, Option, Timestamp, UInt

LIBRARY: Final = Library()

_YEAR_ONE: Final = -62135596800 * 10**9

LIBRARY.declare("or", "optional(V), optional(V) -> optional(V)", member=True)
LIBRARY.declare("orValue", "optional(V), V -> V", member=True)


def unwrap(option: Option) -> Any:
    """The value of an optional. Raises Fault when there is none."""
    if option is NONE:
        raise Fault("optional.none() dereference", "no value")
    return option.content


@LIBRARY.function("optional.of", "V -> optional(V)")
def of(value: Any) -> Option:
    return Option(value)


@LIBRARY.function("optional.none", "-> optional(V)")
def none() -> Option:
    return NONE


@LIBRARY.function("optional.ofNonZeroValue", "V -> optional(V)")
def of_non_zero_value(value: Any) -> Option:
    return NONE if _is_zero(value) else Option(value)


def _is_zero(value: Any) -> bool:
    kind = value.__class__
    if kind in (bool, int, UInt, float, str, bytes, list):
        return not value
    if isinstance(value, dict):
        return not value and kind is not Domains
    if kind is Duration:
        return bool(value.nanos == 0)
    if kind is Timestamp:
        return bool(value.nanos == _YEAR_ONE)
    return value is None


@LIBRARY.method("hasValue", "optional(V) -> bool")
def has_value(option: Option) -> bool:
    return option is not NONE


@LIBRARY.method("value", "optional(V) -> V")
def value_of(option: Option) -> Any:
    return unwrap(option)


@LIBRARY.function("optional.unwrap", "list(optional(V)) -> list(V)")
@LIBRARY.method("unwrapOpt", "list(optional(V)) -> list(V)")
def unwrap_all(options: list[Any]) -> list[Any]:
    """The values of those that have one."""
    for option in options:
        if option.__class__ is not Option:
            raise Fault("no such overload: optional.unwrap")
    return [option.content for option in options if option is not NONE]
