"""What takes long to find out, asked one at a time for all readers together: why pods wait, how many more pods fit,
what is wrong.

Promises: asking takes a small share of the time, in steps between which everything else goes on. Nothing is asked anew
while nothing has changed, except after a while; what was never asked comes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dra_extender.http.page.board import Board
from dra_extender.http.page.parts import BoardPart
from dra_extender.scheduling.slices import Slices, run

SHARE: Final = 9
"""A pause is at least so many times as long as what came before it."""
SOON: Final = 1.0
"""Seconds after which a question is asked again when something has changed."""
LATE: Final = 10.0
"""The same when nothing is known to have changed: some answers rest on what nobody counts."""

Ask = Callable[[], Slices[BoardPart] | None]
"""Begins to ask; None: there is nothing to ask about any more. The answer is a part of the board."""


class _Asked(msgspec.Struct):
    ask: Ask
    at: float = float("-inf")
    change: int = -1


class Questions:
    """By the key of the part that answers. `change` counts changes of the cluster."""

    def __init__(self, board: Board, clock: Callable[[], float] = time.monotonic) -> None:
        self.change = 0
        self.answered = 0
        self._board = board
        self._clock = clock
        self._asked: dict[str, _Asked] = {}

    def keep(self, prefix: str, keys: Iterable[str], ask: Callable[[str], Ask]) -> None:
        """From now on these are the questions whose key begins with the prefix; answers to others go."""
        wanted = dict.fromkeys(keys)
        for key in [key for key in self._asked if key.startswith(prefix) and key not in wanted]:
            del self._asked[key]
            self._board.drop(key)
        for key in wanted:
            if key not in self._asked:
                self._asked[key] = _Asked(ask(key))

    def due(self) -> str | None:
        """The question that has to be asked next; of those never asked the first that was given."""
        now = self._clock()
        late = [
            key
            for key, asked in self._asked.items()
            if now - asked.at >= (SOON if asked.change != self.change else LATE)
        ]
        return min(late, key=lambda key: self._asked[key].at, default=None)

    async def answer(self, key: str) -> None:
        """Ask, and put the answer on the board."""
        asked = self._asked[key]
        asked.at, asked.change = self._clock(), self.change
        steps = asked.ask()
        if steps is None:
            return
        found = await run(steps)
        self.answered += 1
        if key in self._asked:
            self._board.put(key, msgspec.json.encode(found))
            self._board.ring()
