"""How much work is done: calls of functions, of an action or of each turn of a computation; lines; memory; garbage."""

from __future__ import annotations

import contextlib
import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
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


class TooMuch(AssertionError):
    """The action does more than it may."""


def lines(action: Callable[[], object], most: int, *folders: str) -> int:
    """How many lines of modules in these folders an action runs; each round of a loop counts. Raises TooMuch as
    soon as it runs more than `most`.
    """
    parts = [f"/{folder}/" for folder in folders]
    count = 0

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        return line if any(part in frame.f_code.co_filename for part in parts) else None

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        if count > most:
            raise TooMuch(f"more than {most} lines; now at {frame.f_code.co_qualname}")
        return line

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def memory(action: Callable[[], object]) -> int:
    """The most bytes that an action has in use at one time."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextlib.contextmanager
def garbage() -> Iterator[Callable[[], int]]:
    """Yields a function that returns how many objects in reference cycles were left behind since the beginning. Only
    the garbage collector frees these, and the event loop waits for it.
    """
    gc.collect()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()


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
