"""An event loop that does nothing by itself: it runs what is ready, and moves time to the next timer, when told to.

One per replica, so that the order of steps at different replicas is the explorer's choice.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class StepLoop(asyncio.AbstractEventLoop):
    """`run_ready` until everybody waits; `fire` the next timer."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0

    # --- what the explorer asks for ---------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within it, this is the running loop."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def run_ready(self) -> None:
        """Run callbacks until none is left. Call it while `running`."""
        ready = self._ready
        while ready:
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def timers(self) -> list[asyncio.TimerHandle]:
        """What will be called later, the first one first."""
        return [handle for _, _, handle in sorted(self._timers) if not handle.cancelled()]

    def fire(self) -> None:
        """Move time on to the next timer and run what follows."""
        while self._timers:
            when, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                self.now = max(self.now, when)
                self._ready.append(handle)
                break
        self.run_ready()

    # --- what asyncio asks for --------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """`timers` and `fire` pass over it."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:  # type: ignore[override] # a generator, not a coroutine
        task = asyncio.Task(coro, loop=self, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined] # abandoned states are expected
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(context["message"]) from context.get("exception")
