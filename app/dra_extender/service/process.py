"""Memory and event loop of the process that the service runs in, and the watchdog of the event loop.

`ProcessMemory` promises, for a process of our own: the garbage collector does not traverse objects that live as long as
the cluster is watched; it collects new reference cycles before there are many, and it does not traverse many objects
twice; free memory goes back to the system. It tunes nothing in a process that others use.

`Watchdog` finds out which pod or object stops the event loop, while it does, and writes it to the lease for the next
process. Promises: it runs in a thread of its own and costs ordinary work nothing. When the event loop uses twice
`STUCK_SECONDS` of CPU time in one turn and decides on the same pod or reads the same object all the time, which only a
bug makes possible, it logs the stack and sets the pod or object aside. A process that waits for the CPU or is paused is
not stuck.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from types import FrameType
from typing import Final

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.api.meta import ObjectKey
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.knownobjects import KnownObjects
from dra_extender.kube.lease import LeaseSettings, annotate
from dra_extender.kube.resources import Identity
from dra_extender.scheduling.setaside import ANNOTATION

PERIOD: Final = 10.0
"""Seconds between attempts to return memory: an attempt takes 0.1 ms without free memory, 10 ms for 100 MB."""
LAG_PERIOD: Final = 0.25

YOUNG: Final = 10_000
"""Threshold of the first generation, traversed in a fraction of a millisecond. Hardly any new object is part of a
cycle: with Python's default of 700, the same objects are traversed again and again while their pods wait.
"""

OLDER: Final = (2, 1)
"""Thresholds of the second and third generation. Frozen objects are not traversed, so few objects are. With Python's
defaults of 10 and 10, a million objects accumulate before cycles that are a minute old are found: 100 MB, and then a
pause of half a second. If most objects are alive, Python traverses all only when their number has grown by a quarter.
"""


PAUSE: Final = 0.01
"""Seconds of CPU time of a collection after which the objects that it left are frozen. A burst of a million objects is
traversed in parts then, instead of again and again as it grows. A cycle that is in use at that moment is not collected
later, and hardly any object is part of one.
"""


FEW: Final = 100_000
"""Objects of some 50 MB that ended engines may leave behind: looking for them stops the event loop for 0.2 s."""


class ProcessMemory:
    """`own`: the service is alone in this process."""

    def __init__(self, *, own: bool) -> None:
        self.own = own
        self._began = 0.0
        self._frozen_at_start = 0

    def freeze(self) -> None:
        """Freeze all objects that exist now, in addition to those frozen before; later, those of long collections."""
        if self.own:
            gc.set_threshold(YOUNG, *OLDER)
            gc.collect()
            gc.freeze()
            if self._collects not in gc.callbacks:
                gc.callbacks.append(self._collects)
                self._frozen_at_start = gc.get_freeze_count()

    def _collects(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began = time.thread_time()
        elif time.thread_time() - self._began > PAUSE:
            gc.freeze()

    def let_go(self) -> None:
        """Free what ended engines left behind, unless it is little, and freeze the rest: before the next engine lists,
        so the collector does not traverse its objects, too.
        """
        if self.own and gc.get_freeze_count() - self._frozen_at_start > FEW:
            gc.unfreeze()
        self.freeze()

    async def trim(self) -> None:
        """Return free memory of the C library to the system, until cancelled. Otherwise the process stays as large as
        the largest list response has made it.
        """
        while True:
            await asyncio.sleep(PERIOD)
            if self.own:
                await asyncio.to_thread(trim)


_malloc_trim: Final[Callable[[int], int]] = getattr(ctypes.CDLL(None), "malloc_trim", lambda keep: 0)
"""glibc has it; musl and macOS do not."""


def trim() -> bool:
    """Return free memory to the system; True when there was some. Other threads keep running."""
    return bool(_malloc_trim(0))


async def observe_lag(observe: Callable[[float], object]) -> None:
    """Report the delay of a timer on the event loop, in seconds, every `LAG_PERIOD`, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PERIOD
        await asyncio.sleep(LAG_PERIOD)
        observe(max(0.0, loop.time() - due))


log = structlog.get_logger(__name__)

WATCHDOG_PERIOD: Final = 0.25
STUCK_SECONDS: Final = 1.0
FRAMES: Final = 30


@dataclass(slots=True, eq=False)
class Watchdog:
    """Make it in the thread of the event loop. `_with_subject`: the annotation with this pod or object."""

    _client: ClientSettings
    _lease: LeaseSettings
    _with_subject: Callable[[Pod | ObjectKey], str]
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _watched: int = field(default_factory=threading.get_ident)
    _stopped: threading.Event = field(default_factory=threading.Event)

    async def run(self) -> None:
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._stopped.set()
            thread.join()

    def _watch(self) -> None:
        turned, since = threading.Event(), 0.0
        turned.set()
        suspect: Pod | ObjectKey | None = None
        while not self._stopped.wait(WATCHDOG_PERIOD):
            now = time.process_time()
            if turned.is_set():
                turned.clear()
                since, suspect = now, None
                self._loop.call_soon_threadsafe(turned.set)
            elif now - since >= STUCK_SECONDS:
                frame = sys._current_frames()[self._watched]
                found, since = subject(frame), now
                if found is not None and (found is suspect or (isinstance(found, ObjectKey) and found == suspect)):
                    since = inf
                    self._set_aside(found, traceback.format_stack(frame)[-FRAMES:])
                suspect = found

    def _set_aside(self, found: Pod | ObjectKey, stack: list[str]) -> None:
        name = str(found) if isinstance(found, ObjectKey) else f"Pod {found.metadata.key}"
        log.error("the event loop is stuck", object=name, stack=stack)
        try:
            asyncio.run(self._annotate(self._with_subject(found)))
        except (ApiError, OSError) as problem:
            log.error("lease not annotated", problem=str(problem))

    async def _annotate(self, value: str) -> None:
        async with await KubeClient.connect(self._client) as client:
            await annotate(client, self._lease, {ANNOTATION: value})


def subject(frame: FrameType | None) -> Pod | ObjectKey | None:
    """The object that a frame decodes or applies, or the pod that the outermost frame with a pod works on. None when
    inner frames work on a pod of another namespace, for example on a victim: objects of that namespace cause the work.
    """
    found: list[Pod] = []
    while frame is not None:
        known, identity = frame.f_locals.get("self"), frame.f_locals.get("identity")
        if isinstance(known, KnownObjects) and isinstance(identity, Identity):
            key = known.subject(identity.key)
            if all(ObjectKey(Pod.__name__, pod.metadata.key) == key for pod in found):
                return key
        found += (value for value in list(frame.f_locals.values())[::-1] if isinstance(value, Pod))
        frame = frame.f_back
    return found[-1] if len({pod.metadata.namespace for pod in found}) == 1 else None
