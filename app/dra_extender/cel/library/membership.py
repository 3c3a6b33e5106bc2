"""`includes`: one function for attributes with one value and with many (dynamic-resource-allocation cel, 1.36)."""

from __future__ import annotations

from typing import Any, Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.equality import compared, equal
from dra_extender.cel.errors import Fault
from dra_extender.cel.work import Meter

LIBRARY: Final = Library()

MAX_EXAMINED: Final = 48


@LIBRARY.method("includes", "dyn, dyn -> bool", metered=True)
def includes(meter: Meter, target: Any, value: Any) -> bool:
    """True when a list contains the value, or a single value equals it. What cannot be compared is not equal."""
    if target.__class__ is not list:
        return _same(target, value, meter)
    meter.charge(MAX_EXAMINED * compared(value))
    for element in target[:MAX_EXAMINED]:
        if _same(element, value, meter):
            return True
    if len(target) > MAX_EXAMINED:
        raise Fault(f"'includes' function cannot be applied to lists longer than {MAX_EXAMINED} values")
    return False


def _same(left: Any, right: Any, meter: Meter) -> bool:
    try:
        return equal(left, right, meter)
    except Fault:
        return False
