"""Room for deep expressions.

Parser, checker and interpreter walk the tree recursively. The language allows 250 levels of several nested nodes each,
which is more than Python's default of 1000 frames. Frames of Python functions live on the heap since Python 3.11, so a
higher limit is safe; it is raised (for good, and only) when the first deep expression comes along.
"""

from __future__ import annotations

import sys
from typing import Final

_SHALLOW: Final = 20
_FRAMES: Final = 20_000


def make_room(levels: int) -> None:
    """Make sure that an expression with this many nested levels can be walked."""
    if levels > _SHALLOW and sys.getrecursionlimit() < _FRAMES:
        sys.setrecursionlimit(_FRAMES)
