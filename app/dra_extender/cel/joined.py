"""The sum of two long lists: made in no time, and put together only when somebody looks at the elements.

A list that is doubled forty times with `cel.bind` has 2^40 elements and takes no memory as long as nobody wants one. It
exists only between the parts of an expression that pass a value on (`+`, `size`, variables, branches); everything else
gets the list it stands for.
"""

from __future__ import annotations

from typing import Any, Final

from dra_extender.cel.meter import REFERENCE, Meter

TAKES_JOINED: Final = frozenset(("_+_", "size"))
"""Functions whose arguments may be sums that are not put together."""

LONG: Final = 256
"""Shorter sums are made at once."""

_COPIED: Final = 64
"""How many elements are copied per unit of work."""


class Joined:
    """The elements of one list and then those of another; either may be joined itself."""

    __slots__ = ("_parts", "_whole", "is_owned", "kept", "size")

    def __init__(self, left: Any, right: Any) -> None:
        self._parts: tuple[Any, Any] | None = (left, right)
        self._whole: list[Any] = []
        self.is_owned = False
        """True when it is the value of a variable, which counts what it takes."""
        self.kept = 0
        """How many bytes it takes since it was put together for that variable."""
        self.size = count(left) + count(right)

    def whole(self, meter: Meter) -> list[Any]:
        """The list; a variable's is remembered. Raises Abort when it takes too much memory."""
        if self._parts is None:
            return self._whole
        before = meter.passing
        elements = self._elements(meter)
        if not self.is_owned:
            return elements
        self.kept = meter.remember(before)
        self._whole, self._parts = elements, None
        return elements

    def _elements(self, meter: Meter) -> list[Any]:
        meter.room(self.size * REFERENCE)
        meter.charge(1 + self.size // _COPIED)
        pending: list[Any] = [self]
        elements: list[Any] = []
        while pending:
            part = pending.pop()
            if part.__class__ is not Joined:
                elements += part
            elif part._parts is None:
                elements += part._whole
            else:
                pending += reversed(part._parts)
        meter.keep(elements)
        return elements


def count(value: Any) -> int:
    """How many elements a list has, joined or not."""
    return value.size if value.__class__ is Joined else len(value)


def is_list(value: Any) -> bool:
    """True for lists, joined or not."""
    return value.__class__ is list or value.__class__ is Joined


def join(left: Any, right: Any, meter: Meter) -> Any:
    """The sum of two lists, joined or not."""
    size = count(left) + count(right)
    if size > LONG:
        return Joined(left, right)
    meter.charge(1)
    return settled(left, meter) + settled(right, meter)


def settled(value: Any, meter: Meter) -> Any:
    """The value, or the list it stands for."""
    return value.whole(meter) if value.__class__ is Joined else value
