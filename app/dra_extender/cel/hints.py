"""What to do about an error: one sentence for people, where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dra_extender.cel.errors import Kind
from dra_extender.cel.types import ANY, QUANTITY, SEMVER, STRING, Type

_ORDERS: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_EQUALITIES: Final = frozenset(("_==_", "_!=_"))
_OF_KINDS: Final[Mapping[Kind, str]] = {
    "missing key": 'check with has(…), with "name" in device.attributes["domain"], or read it with .?name.orValue(…)',
    "no value": "use orValue(…) instead of value()",
    "out of bounds": "check size() first, or use [?index].orValue(…)",
    "too costly": "iterate over less",
    "too large": "make shorter texts and lists",
}


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


def hint_for_fault(kind: Kind) -> str:
    """What to do about an error at run time."""
    return _OF_KINDS.get(kind, "")
