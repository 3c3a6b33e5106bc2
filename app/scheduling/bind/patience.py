"""Going on in the face of an API server that does not answer.

Promises: pauses double up to a limit; a read is repeated until the server says something definite, or until the caller
has no more time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from app.api.errors import ApiError, OutcomeUnknownError, ThrottledError, UnreachableError
from app.scheduling.limits import Limits

T = TypeVar("T")

Unanswered = (OutcomeUnknownError, ThrottledError, UnreachableError)
"""The server did not decide: asking again makes sense. Only the first leaves open whether something was done."""


async def rounds(limits: Limits) -> AsyncIterator[int]:
    """0 at once, then 1, 2, ... with growing pauses; endless."""
    pause = limits.retry_seconds
    number = 0
    while True:
        yield number
        await asyncio.sleep(pause)
        pause = min(2 * pause, limits.retry_most_seconds)
        number += 1


async def answered(
    read: Callable[[], Awaitable[T]],
    limits: Limits,
    go_on: Callable[[], None] = lambda: None,
    *,
    insist: bool = False,
) -> T:
    """What `read` returns once the server answers. `go_on` is called before each repetition and may raise to end it.

    `insist`: ask again even when the server refuses to tell (permissions may come back). Otherwise that is raised.
    """
    async for number in rounds(limits):
        if number:
            go_on()
        try:
            return await read()
        except Unanswered:
            continue
        except ApiError:
            if not insist:
                raise
    raise AssertionError("rounds never end")
