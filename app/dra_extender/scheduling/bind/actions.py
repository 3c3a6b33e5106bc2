"""What a bind may do besides asking: write, hold, learn, wait, and make room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec

from dra_extender.scheduling.bind.holds import Holds
from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.intake import Intake
from dra_extender.scheduling.ports import Observer, Ports
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.reservations import Reservations
from dra_extender.scheduling.resourcenames import ResourceNames
from dra_extender.scheduling.signals import Signals
from dra_extender.scheduling.view import View


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """One for all binds of a service."""

    view: View
    ports: Ports
    holds: Holds
    intake: Intake
    signals: Signals
    requeue: RequeueTrigger
    reservations: Reservations
    clearer: Clearer
    resources: ResourceNames
    observer: Observer
    deferred: DeferredWork
    leading: Callable[[], bool]
    """True while this replica may decide, at this very moment; asked before each write, because a process can be asleep
    for longer than its lease lasts without noticing.
    """
    locks: WeakValueDictionary[str, asyncio.Lock] = msgspec.field(default_factory=WeakValueDictionary)
    """By claim UID: binds write to a shared claim one after the other."""
