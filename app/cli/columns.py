"""Tables for people, as kubectl prints them: aligned columns without lines, that programs can cut as well.

Promises: a row is one line where it fits into the width. In a terminal the last column is folded below itself; without
a width nothing is folded or cut.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

GAP: Final = "  "
NARROWEST: Final = 24
"""Columns that the last cell gets at least; in a narrower terminal lines run over."""


def terminal_width() -> int:
    """How many columns standard output has; 0 when it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int = 0,
    numbers: frozenset[int] = frozenset(),
    paint: Callable[[int, str], str] = lambda column, cell: cell,
) -> Iterator[str]:
    """Lines of a table. `numbers`: the columns that are aligned to the right. `paint` may colour a cell of a column,
    but not change how wide it is.
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for number, row in enumerate((head, *rows)):
        cells = [
            cell.rjust(size) if column in numbers else cell.ljust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        *first, last = cells if len(row) - 1 in numbers else [*cells[:-1], row[-1]]
        left = sum(len(cell) + len(GAP) for cell in first)
        room = max(width - left, NARROWEST) if width else 0
        folded = (textwrap.wrap(last, room, break_on_hyphens=False) if 0 < room < len(last) else None) or [last]
        painted = [paint(column, cell) if number else cell for column, cell in enumerate(first)]
        for start, end in zip_longest([GAP.join([*painted, ""])], folded, fillvalue=" " * left):
            yield (start + end).rstrip()
