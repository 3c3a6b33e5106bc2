"""What the parts of scheduling share, as plugins get framework.Handle from kube-scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.eventhandler import EventHandler
from dra_extender.scheduling.outcomes import Silent
from dra_extender.scheduling.ports import Clock, Observer, Ports
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View


class SystemClock:
    """The time of the event loop on which `monotonic` is called first, and the time of day."""

    def __init__(self) -> None:
        self._time: Callable[[], float] | None = None

    def monotonic(self) -> float:
        """Keeps the clock of the loop: finding the running loop is a system call, and a pod needs the time often."""
        if self._time is None:
            self._time = asyncio.get_running_loop().time
        return self._time()

    def wall(self) -> datetime:
        return datetime.now(UTC)


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """How an extender is configured, which time it is, and where it counts."""

    config: SchedulingConfig = SchedulingConfig()
    clock: Clock = msgspec.field(default_factory=SystemClock)
    observer: Observer = msgspec.field(default_factory=Silent)


class LeaderCheck:
    """Whether this replica leads, by its own clock. Call it before each write: a process can sleep for longer than its
    lease lasts without noticing. True until `check` says otherwise.
    """

    def __init__(self) -> None:
        self.check: Callable[[], bool] | None = None

    def __call__(self) -> bool:
        return self.check is None or self.check()


class Handle(msgspec.Struct, frozen=True):
    """One per service. Parts that act have it; questions have the view only."""

    view: View
    ports: Ports
    event_handler: EventHandler
    deferred: DeferredWork
    requeue: RequeueTrigger
    observer: Observer
    leading: LeaderCheck = msgspec.field(default_factory=LeaderCheck)
