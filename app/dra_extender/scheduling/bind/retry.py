"""Going on in the face of an API server that does not answer, or refuses.

Promises: pauses double up to a limit; a read is repeated until the server says something definite, or until the caller
has no more time; nothing is repeated without end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec

from dra_extender.api.errors import (
    ApiError,
    ConflictError,
    OutcomeUnknownError,
    ThrottledError,
    UnreachableError,
    is_passing,
)
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Clock

T = TypeVar("T")

Unanswered = (OutcomeUnknownError, ThrottledError, UnreachableError)
"""The server did not decide: asking again makes sense. Only the first leaves open whether something was done."""


async def attempts(config: SchedulingConfig) -> AsyncIterator[int]:
    """0 at once, then 1, 2, ... with growing pauses; endless: whoever goes through them says what ends it."""
    pause = config.retry_seconds
    number = 0
    while True:
        yield number
        await asyncio.sleep(pause)
        pause = min(2 * pause, config.retry_most_seconds)
        number += 1


async def answered(
    read: Callable[[], Awaitable[T]],
    config: SchedulingConfig,
    go_on: Callable[[], None],
    *,
    insist: bool = False,
) -> T:
    """What `read` returns once the server answers. `go_on` is called before each repetition and raises to end it.

    `insist`: ask again even when the server refuses to tell (permissions may come back). Otherwise that is raised.
    """
    async for number in attempts(config):
        if number:
            go_on()
        try:
            return await read()
        except ApiError as error:
            if not insist and not is_passing(error):
                raise
    raise AssertionError("attempts never end")


class RetryPolicy(msgspec.Struct, frozen=True):
    """How long something is tried that should not be left undone: while less than `refusals` tries were refused and it
    is not later than `until` (monotonic seconds), once in any case.
    """

    until: float
    refusals: int


async def retried(do: Callable[[], Awaitable[T]], policy: RetryPolicy, config: SchedulingConfig, clock: Clock) -> T:
    """What `do` returns once the server lets it. A conflict is no refusal: `do` has to look again. Raises the last
    ApiError.
    """
    refusals = 0
    async for _ in attempts(config):
        try:
            return await do()
        except ApiError as error:
            refusals += not is_passing(error) and not isinstance(error, ConflictError)
            if refusals >= policy.refusals or clock.monotonic() >= policy.until:
                raise
    raise AssertionError("attempts never end")
