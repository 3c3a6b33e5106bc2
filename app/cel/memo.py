"""One evaluation per distinct tuple of values read: forty thousand devices of three models cost three evaluations."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from cachetools import LRUCache

from app.cel.device import DeviceView
from app.cel.errors import CelRuntimeError
from app.cel.program import Program

_SIZE: Final = 65536


class SelectorMemo:
    """Remembers answers by expression, gates and values read; bounded, the answer used longest ago goes first.

    Not to be shared by threads.
    """

    def __init__(self, size: int = _SIZE) -> None:
        self._answers: LRUCache[Hashable, bool | CelRuntimeError] = LRUCache(maxsize=size)

    def evaluate(self, program: Program, view: DeviceView) -> bool | CelRuntimeError:
        """Whether the device matches, or the error of finding out. The error is returned, not raised.

        That leaves it to the caller to raise it only when a search reaches the device.
        """
        key = (program.expression, program.gates, view.read_key(program.reads))
        answer = self._answers.get(key)
        if answer is None:
            try:
                answer = program.evaluate(view)
            except CelRuntimeError as error:
                answer = error.with_traceback(None)
            self._answers[key] = answer
        return answer

    def __len__(self) -> int:
        return len(self._answers)
