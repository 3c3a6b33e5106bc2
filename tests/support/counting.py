"""How much work is done: calls of functions, of an action or of each turn of a computation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, NamedTuple, TypeVar

from dra_extender.scheduling.turns import Turns

T = TypeVar("T")


def calls(action: Callable[[], object]) -> int:
    """How many functions of Python and of C an action calls."""
    count = 0

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


class Counted(NamedTuple, Generic[T]):
    """Calls of the largest turn and of all turns, the number of turns, and the result."""

    largest: int
    total: int
    turns: int
    result: T


def counted_turns(turns: Turns[T]) -> Counted[T]:
    """Run the computation to its end, and count each turn."""
    largest = total = number = 0
    results: list[T] = []

    def turn() -> None:
        try:
            next(turns)
        except StopIteration as end:
            results.append(end.value)

    while not results:
        count = calls(turn)
        largest, total, number = max(largest, count), total + count, number + 1
    return Counted(largest, total, number, results[0])
