"""The verbs, open only while this replica may decide.

`Gate` promises: `unavailable` names the one reason that has to go first, in words for people; while it is empty every
verb goes to the engine of this moment. A closed gate never opens again.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.api.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from app.scheduling.extender import Extender
from app.service.status import Status

UNREACHED = "the API server has not been reached yet"


class Gate:
    """The decisions behind the verbs, as `app.http.verbs` calls them: after `unavailable` was empty."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._closed = False

    def close(self) -> None:
        """From now on the answer is "shutting down"."""
        self._closed = True

    @property
    def closed(self) -> bool:
        return self._closed

    def unavailable(self) -> str:
        """Why no decision may be made now; empty when it may."""
        status = self._status
        if self._closed:
            return "shutting down"
        if status.failure:
            return f"failed: {status.failure}"
        if status.engine is None:
            return UNREACHED
        if status.missing_permissions:
            return f"permission missing: {status.missing_permissions[0]}"
        if not status.leading:
            return f"standby: {status.leader or 'nobody'} leads"
        return status.engine.following.unavailable()

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        return await self._extender.filter(args)

    async def prioritize(self, args: ExtenderArgs) -> Sequence[HostPriority]:
        return await self._extender.prioritize(args)

    async def advise(self, args: ExtenderArgs) -> Sequence[HostPriority]:
        return await self._extender.advise(args)

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        return await self._extender.preempt(args)

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        return await self._extender.bind(args)

    @property
    def _extender(self) -> Extender:
        if self._status.engine is None:
            raise RuntimeError(UNREACHED)
        return self._status.engine.extender
