"""Why a bind fails, and how it repeats requests that the API server did not answer.

Promises: pauses between attempts double up to a limit. Every repetition ends. Texts are constant per reason
and claim, because they reach the pod's events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from dra_extender.api.errors import (
    ApiError,
    ConflictError,
    NotServedError,
    OutcomeUnknownError,
    ThrottledError,
    UndecodableError,
    UnreachableError,
    is_outage,
    is_passing,
)
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import BindResult, UnresolvedReason
from dra_extender.scheduling.ports import Clock

T = TypeVar("T")

DELETED: Final = "the pod is gone or being deleted"
REPLACED: Final = "there is no pod with this name and UID"
OTHER_SCHEDULER: Final = "the pod is for a scheduler that this extender does not serve"
UNREADABLE: Final = "the pod cannot be read"
NOT_LEADER: Final = "another replica leads now"
LATE: Final = "the bind took too long"
STILL_RUNNING: Final = "a bind of the pod is still in progress"
STATUS_CHANGED: Final = "the pod's status names other claims or amounts now"
BOUND_ELSEWHERE: Final = "the pod is bound to another node"
REFUSED_BINDING: Final = "the API server refused the binding"
OWN_WRITE_UNSEEN: Final = "the watch did not show the claim's new status in time"
RIVAL: Final = "a device was allocated to another claim at the same time"
SET_BACK: Final = "the API server was set back to an older state"
COUNTERS_UNKNOWN: Final = "the counters or capacity of a device are not published at the moment"
TAKEN: Final = "the devices were allocated to another claim at the same time"
CLASS_UNKNOWN: Final = "no device class is known for an extended resource"
WAITING: Final = "waiting for the devices to become ready"
UNKNOWN: Final = "unknown whether the pod is bound"
NOT_ROLLED_BACK: Final = "the allocation written for this pod has not been rolled back yet"
BROKEN: Final = "internal error, see the log of the extender"

CheckActive = Callable[[], None]
"""Raises BindFailure when the bind must not start another write."""


class BindFailure(Exception):
    """The bind cannot go on. The text is constant per reason and claim, and reaches the pod's events.

    `result` is what metrics count. `keep`: what is written stays for the pod's next attempt. `clear`: roll back
    allocations also if an earlier attempt wrote them, unless another pod uses them.
    """

    def __init__(self, text: str, result: BindResult = "failed", *, keep: bool = False, clear: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.result = result
        self.keep = keep
        self.clear = clear


class Unresolved(Exception):
    """A request of a rollback failed, so the service retries the rollback later. `text` says what failed and why, for
    people; `reason` is what metrics count. `is_outage`: other rollbacks may fail in the same way.
    """

    def __init__(self, what: str, error: ApiError) -> None:
        super().__init__(what)
        self.text = f"{what}: {error_text(error)}"
        self.reason: UnresolvedReason = "refused"
        if isinstance(error, UndecodableError):
            self.reason = "undecodable"
        elif is_passing(error):
            self.reason = "unanswered"
        self.is_outage = is_outage(error)


def error_text(error: ApiError) -> str:
    """What the API server answered, as a constant text."""
    if isinstance(error, UndecodableError):
        return "the API server's reply cannot be decoded"
    if is_passing(error):
        return "the API server does not answer"
    return f"refused with {error.status} {error.reason}".rstrip()


UNANSWERED = (OutcomeUnknownError, ThrottledError, UnreachableError, NotServedError)
"""Repeat the request. After OutcomeUnknownError it may have been stored; after the others it was not."""


async def attempts(config: SchedulingConfig) -> AsyncIterator[int]:
    """Yields 0 at once, then 1, 2, ... after growing pauses, without end."""
    pause = config.retry_seconds
    number = 0
    while True:
        yield number
        await asyncio.sleep(pause)
        pause = min(2 * pause, config.retry_most_seconds)
        number += 1


async def answered(
    read: Callable[[], Awaitable[T]], config: SchedulingConfig, check_active: CheckActive, *, even_refused: bool = False
) -> T:
    """The result of `read` once the server answers. `check_active` is called before each repetition and raises to end
    it. `even_refused`: repeat refused reads too, because permissions may come back; otherwise their error is raised.
    """
    async for number in attempts(config):
        if number:
            check_active()
        try:
            return await read()
        except ApiError as error:
            if not even_refused and not is_passing(error):
                raise
    raise AssertionError("attempts never end")


class RetryPolicy(msgspec.Struct, frozen=True):
    """Retry until `refusals` attempts were refused or it is later than `until` (monotonic seconds)."""

    until: float
    refusals: int


async def retried(do: Callable[[], Awaitable[T]], policy: RetryPolicy, config: SchedulingConfig, clock: Clock) -> T:
    """The result of `do` once the server accepts it. A conflict is not a refusal: `do` reads again. Raises the last
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
