"""What an evaluation costs, in units of cel-go (interpreter/runtimecost.go, v0.26; apiserver pkg/cel/library/cost.go).

An evaluation that costs more than `LIMIT` is aborted, without regard to its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import Semver
from dra_extender.cel.library.formats import NamedFormat
from dra_extender.cel.values import Opaque, size_of

LIMIT: Final = 1_000_000
LIST: Final = 10
MAP: Final = 30
MESSAGE: Final = 40
_TRAVERSAL: Final = 0.1
_REGEX: Final = 0.25

Arguments = Sequence[Any]
Cost = Callable[[Arguments, Any], int]


@dataclass(slots=True, eq=False)
class Constant:
    """A constant, evaluated: costs nothing, nor does a list of constants."""

    _value: Any

    def __call__(self, frame: object) -> Any:
        return self._value


def _ceil(size: float) -> int:
    return ceil(size * _TRAVERSAL)


def _traversal(args: Arguments, _: Any) -> int:
    return _ceil(size_of(args[0]))


def _smaller(args: Arguments, _: Any) -> int:
    return _ceil(min(size_of(args[0]), size_of(args[1])))


def _equality(args: Arguments, _: Any) -> int:
    if isinstance(args[0], Quantity | Semver | Opaque):
        return 1
    return _smaller(args, _)


def _sum(args: Arguments, _: Any) -> int:
    kind = args[0].__class__
    return _ceil(len(args[0]) + len(args[1])) if kind is str or kind is bytes else 1


def _deep(value: Any, known: dict[int, int]) -> int:
    """The traversal of a value as a tree. Parts that are there many times are looked at once: `known` has theirs."""
    if value.__class__ is str or value.__class__ is bytes:
        return int(len(value) * _TRAVERSAL)
    if value.__class__ is not list and not isinstance(value, dict):
        return 1
    found = known.get(id(value))
    if found is None:
        parts = [part for entry in value.items() for part in entry] if isinstance(value, dict) else value
        found = known[id(value)] = sum([_deep(part, known) for part in parts])
    return found


def _self_compared(keys: Any) -> int:
    factor = 2.0 + (_TRAVERSAL if keys and keys[0].__class__ in (str, bytes) else 0)
    return 1 + LIST + int(len(keys) ** 2 * factor)


def _contains_ip(args: Arguments, _: Any) -> int:
    return _ceil(2 * size_of(args[0])) + (_ceil(size_of(args[1])) if args[1].__class__ is str else 0)


def _validate(args: Arguments, _: Any) -> int:
    weight = args[0].weight if isinstance(args[0], NamedFormat) else 1
    return _ceil(1 + size_of(args[1])) * ceil(weight * _REGEX)


CALLS: Final[dict[str, Cost]] = {
    **dict.fromkeys(
        (
            "startsWith", "endsWith", "strings.quote", "format", "url", "lowerAscii", "upperAscii", "substring", "trim",
            "cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver", "bytes",
        ),
        _traversal,
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), lambda args, _: _ceil(size_of(args[0]) * 2)),
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), lambda args, _: _deep(args[0], {})
    ),
    **dict.fromkeys(
        ("find", "findAll", "matches"), lambda args, _: _ceil(1 + size_of(args[0])) * ceil(size_of(args[1]) * _REGEX)
    ),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_", "_!=_"), _smaller),
    **dict.fromkeys(("sort", "distinct"), lambda args, _: _self_compared(args[0])),
    **dict.fromkeys(("slice", "lists.range", "reverse"), lambda _, result: 1 + LIST + size_of(result)),
    **dict.fromkeys(("sets.contains", "sets.intersects"), lambda args, _: 1 + size_of(args[0]) * size_of(args[1])),
    "_==_": _equality,
    "_+_": _sum,
    "@in": lambda args, _: size_of(args[1]) if args[1].__class__ is list else 1,
    "contains": lambda args, _: _ceil(size_of(args[0])) * _ceil(size_of(args[1])),
    "join": lambda _, result: _ceil(size_of(result) * 2),
    "ip": lambda args, _: _traversal(args, _) if args[0].__class__ is str else 1,
    "flatten": lambda args, _: 1 + LIST + size_of(args[0]) * (int(args[1]) if len(args) == 2 else 1),
    "@sortByAssociatedKeys": lambda args, _: _self_compared(args[1]),
    "sets.equivalent": lambda args, _: 1 + 2 * size_of(args[0]) * size_of(args[1]),
    "containsIP": _contains_ip,
    "containsCIDR": lambda args, _: _contains_ip(args, _) + _ceil(size_of(args[0])) + 1,
    "validate": _validate,
}  # fmt: skip
"""The cost of calls that cost another number than 1."""
