"""Waiting for a condition on watched state.

Promises: `until` evaluates the condition at once, and then only when one of its keys is notified. It does not poll, and
leaves nothing behind when it ends or is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class Signals:
    """Keys are UIDs of claims and pods."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def __len__(self) -> int:
        """How many keys are waited for."""
        return len(self._waiting)

    def notify(self, key: str) -> None:
        """Something about `key` changed."""
        for event in self._waiting.get(key, ()):
            event.set()

    async def until(self, condition: Callable[[], bool], keys: Iterable[str], timeout: float) -> bool:
        """True when `condition` became true within `timeout` seconds. What it raises is passed on."""
        if condition():
            return True
        event = asyncio.Event()
        keys = tuple(keys)
        for key in keys:
            self._waiting.setdefault(key, set()).add(event)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await event.wait()
                    event.clear()
                    if condition():
                        return True
        except TimeoutError:
            return condition()
        finally:
            for key in keys:
                self._forget(key, event)

    def _forget(self, key: str, event: asyncio.Event) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.discard(event)
            if not waiting:
                del self._waiting[key]
