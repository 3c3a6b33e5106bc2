"""The verbs, open only while this replica may decide; and whether it could.

`Gate` promises: `unavailable` names the one reason that has to go first, in words for people; while it is empty every
verb goes to the engine of this moment. `unready` is for kubelet: a replica that could decide is ready, whoever leads,
when calls that come to it are forwarded to the leader. A replica that leaves is not ready, and answers calls until the
gate is closed; a closed gate never opens again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dra_extender.api.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from dra_extender.scheduling.extender import Extender
from dra_extender.service.status import Status

SHUTTING_DOWN = "shutting down"
UNREACHED = "the API server has not been reached yet"


class Gate:
    """The decisions behind the verbs, as `dra_extender.http.verbs` calls them: after `unavailable` was empty."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._closed = False
        self._leaving = False

    def leave(self) -> None:
        """From now on this replica is not ready, and does not decide where another one may lead instead."""
        self._leaving = True

    def close(self) -> None:
        """From now on the answer is "shutting down"."""
        self._leaving = self._closed = True

    @property
    def leaving(self) -> bool:
        return self._leaving

    def unavailable(self) -> str:
        """Why no decision may be made here now; empty when it may."""
        return SHUTTING_DOWN if self._closed else self._unable() or self._standby()

    def unready(self) -> str:
        """Why calls should not come here; empty when this replica could decide, and they are answered."""
        if self._leaving:
            return SHUTTING_DOWN
        return self._unable() or ("" if self._status.forwards else self._standby())

    def fit(self) -> bool:
        """True when this replica could lead. One that leaves keeps the lease until it hands over."""
        return not self._unable()

    def leads(self) -> bool:
        """True when this replica decides, if it can."""
        status = self._status
        return status.leading and not (self._leaving and status.elects)

    def leader(self) -> str:
        """The URL of another replica that leads; empty when there is none, or it cannot be asked."""
        return "" if self._status.election is None else self._status.election.address

    async def news(self) -> None:
        """Until another replica leads, or none. Without election there are none."""
        if self._status.election is not None:
            await self._status.election.news()

    def _standby(self) -> str:
        return "" if self.leads() else f"standby: {self._status.leader or 'nobody'} leads"

    def _unable(self) -> str:
        """Why this replica could not decide, even if it led."""
        status = self._status
        if status.failure:
            return f"failed: {status.failure}"
        if status.engine is None:
            return UNREACHED
        if status.missing_permissions:
            return f"permission missing: {status.missing_permissions[0]}"
        return status.engine.following.unavailable() or status.engine.warming

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
