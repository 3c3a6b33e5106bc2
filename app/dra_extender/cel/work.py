"""How much work a caller allows, counted while it is done.

One unit is about one microsecond of CPython on a slow machine: the evaluation of one node of an expression, or a
kilobyte of text that is copied. Work is charged before it is done, inside single operations too. An allowance says
nothing about the answer: with more of it an expression has the same value, or fails in the same way.
"""

from __future__ import annotations

from typing import Final


class WorkExceeded(Exception):
    """The allowance does not suffice. Neither an answer nor an error of the expression: ask again with more."""


class Work:
    """An allowance of units. What is refused is not taken off, so that the rest can be spent on something else."""

    __slots__ = ("left",)

    def __init__(self, allowed: int) -> None:
        self.left = allowed

    def charge(self, units: int) -> None:
        """Take off some units. Raises WorkExceeded when there are not as many left."""
        left = self.left - units
        if left < 0:
            raise WorkExceeded(f"{units} units of work are more than the {self.left} that are left")
        self.left = left


_PLENTY: Final = 2**62


def unlimited() -> Work:
    """An allowance that is never used up, for workers and commands."""
    return Work(_PLENTY)
