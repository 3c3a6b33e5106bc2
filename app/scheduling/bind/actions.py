"""What a bind may do besides asking: write, hold, learn, wait, and make room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec

from app.scheduling.bind.holds import Holds
from app.scheduling.inquiries import Inquiries
from app.scheduling.intake import Intake
from app.scheduling.ports import Observer, Ports
from app.scheduling.release.clear import Clearer
from app.scheduling.reservations import Reservations
from app.scheduling.resourcenames import ResourceNames
from app.scheduling.signals import Signals
from app.scheduling.view import View
from app.scheduling.wakeups import Wakeups


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """One for all binds of a service."""

    view: View
    ports: Ports
    holds: Holds
    intake: Intake
    signals: Signals
    wakeups: Wakeups
    reservations: Reservations
    clearer: Clearer
    resources: ResourceNames
    observer: Observer
    inquiries: Inquiries
    leading: Callable[[], bool]
    """True while this replica may decide, at this very moment; asked before each write, because a process can be asleep
    for longer than its lease lasts without noticing.
    """
    locks: WeakValueDictionary[str, asyncio.Lock] = msgspec.field(default_factory=WeakValueDictionary)
    """By claim UID: binds write to a shared claim one after the other."""
