"""What the controllers of scheduling need of the service, as plugins get framework.Handle from kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dra_extender.scheduling.deferred import DeferredWork
from dra_extender.scheduling.ports import Observer, Ports
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View


class Handle(msgspec.Struct, frozen=True):
    """`leading`: whether this replica leads by its own clock."""

    view: View
    ports: Ports
    deferred: DeferredWork
    requeue: RequeueTrigger
    observer: Observer
    leading: Callable[[], bool]
