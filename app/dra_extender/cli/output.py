"""What commands print: tables and folded text, colours, complaints on standard error, and the exit statuses.

Promises: standard output has the answer alone; problems go to standard error. Tables look as kubectl prints them:
aligned columns without lines, which programs can cut. A row is one line where it fits into the width. In a terminal the
last column is folded below itself, or printed below its row when the room is too small for its words; the gaps between
columns shrink before lines run over. Without a width nothing is folded or cut.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, TextIO

import typer

from dra_extender.devices.validity import ObjectProblem
from dra_extender.limits import CHARACTERS_OF_LINE
from dra_extender.plaintext import counted, printable, wrapped

YES: Final = 0
"""Exit status: it fits, something is listed, nothing is violated."""
NO: Final = 1
"""Exit status: it does not fit, nothing is listed, something is violated."""
FAILED: Final = 2
"""Exit status: no answer. The request names an object that does not exist, or the API server did not answer."""

GAP: Final = "  "
BELOW: Final = "    "
"""In front of what stands below its row."""
MOST: Final = 10
"""Problems of objects that are printed after an answer, at most."""


def terminal_width(stream: TextIO | None = None) -> int:
    """How many columns the terminal has that the stream, or standard output, goes to; 0 when it goes to none."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else 0


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int = 0,
    numbers: frozenset[int] = frozenset(),
    paint: tuple[str, Mapping[str, str]] = ("", {}),
) -> Iterator[str]:
    """Lines of a table with printable cells. `numbers`: the columns that are aligned to the right. `paint`: the head of
    a column, and the colours of its cells, where standard output has colours.
    """
    coloured, colours = paint if is_coloured(sys.stdout) else ("", {})
    rows = [[printable(cell, CHARACTERS_OF_LINE) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    last_is_text = len(head) - 1 not in numbers
    fixed = sum(widths[:-1]) + (0 if last_is_text else widths[-1])
    gap = GAP if not width or fixed + len(GAP) * (len(head) - 1) <= width else " "
    for row in (head, *rows):
        cells = [
            cell.rjust(size) if column in numbers else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        *first, last = [*cells[:-1], row[-1]] if last_is_text else cells
        left = sum(len(cell) + len(gap) for cell in first)
        painted = [
            typer.style(cell, fg=colours[cell.rstrip()]) if name == coloured and cell.rstrip() in colours else cell
            for name, cell in zip(head, first, strict=False)
        ]
        beside, below = _parted(last, width - left, width) if width and last_is_text else ([last], [])
        for start, end in zip_longest([gap.join([*painted, ""])], beside, fillvalue=" " * left):
            yield (start + end).rstrip()
        yield from below


def _parted(text: str, room: int, width: int) -> tuple[list[str], list[str]]:
    """(lines in `room` columns, lines below the row): one of them is nothing, or an empty line."""
    if len(text) <= room:
        return [text], []
    if max(map(len, text.split())) <= room:
        return textwrap.wrap(text, room, break_on_hyphens=False), []
    below = textwrap.wrap(
        text, width, initial_indent=BELOW, subsequent_indent=BELOW, break_long_words=False, break_on_hyphens=False
    )
    return [""], below


def is_coloured(stream: TextIO) -> bool:
    """True for a terminal whose user has not refused colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def complain(problem: object) -> None:
    """Why the command cannot do what it was asked."""
    _say(f"dra-extender: {problem}", typer.colors.RED)


class UnanswerableError(Exception):
    """Why the command has no answer: an object does not exist, or the API server does not answer."""


async def status_of(answer: Awaitable[int]) -> int:
    """The exit status of this answer. Prints an UnanswerableError on standard error, and returns `FAILED`."""
    try:
        return await answer
    except UnanswerableError as problem:
        complain(problem)
        return FAILED


def note(problems: Iterable[ObjectProblem]) -> None:
    """What is wrong in the cluster that was looked at, and what to do about each."""
    found = list(problems)
    for problem in found[:MOST]:
        _say(f"note: {problem.object}: {problem.what}: {problem.advice}", typer.colors.YELLOW)
    if len(found) > MOST:
        others = counted(len(found) - MOST, "more object")
        _say(f"note: {others} cannot be used: /insight/problems of the service has them", typer.colors.YELLOW)


def _say(text: str, colour: str) -> None:
    text = wrapped((text,), terminal_width(sys.stderr))
    typer.secho(text, err=True, fg=colour, color=is_coloured(sys.stderr))
