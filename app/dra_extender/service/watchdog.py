"""Finds out which pod stops the event loop, while it does, and writes it to the lease for the process that follows.

`Watchdog` promises: it runs in a thread of its own and costs ordinary work nothing. When the event loop uses twice
`STUCK_SECONDS` of CPU time in one turn and works on the same pod all the time, which the work budget rules out except
for a bug, it logs the stack and sets the pod aside. A process that waits for the CPU or is paused is not stuck.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from math import inf
from types import FrameType
from typing import Final

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.lease import LeaseSettings, annotate
from dra_extender.scheduling.setaside import ANNOTATION

log = structlog.get_logger(__name__)

PERIOD: Final = 0.25
STUCK_SECONDS: Final = 1.0
FRAMES: Final = 30


class Watchdog:
    """Make it in the thread of the event loop. `with_pod`: the annotation with this pod."""

    def __init__(self, client: ClientSettings, lease: LeaseSettings, with_pod: Callable[[Pod], str]) -> None:
        self._client = client
        self._lease = lease
        self._with_pod = with_pod
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._stopped = threading.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
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
        suspect: Pod | None = None
        while not self._stopped.wait(PERIOD):
            now = time.process_time()
            if turned.is_set():
                turned.clear()
                since, suspect = now, None
                self._loop.call_soon_threadsafe(turned.set)
            elif now - since >= STUCK_SECONDS:
                frame = sys._current_frames()[self._watched]
                pod, since = subject(frame), now
                if pod is not None and pod is suspect:
                    since = inf
                    self._set_aside(pod, traceback.format_stack(frame)[-FRAMES:])
                suspect = pod

    def _set_aside(self, pod: Pod, stack: list[str]) -> None:
        log.error("the event loop is stuck", pod=pod.metadata.key, stack=stack)
        try:
            asyncio.run(self._annotate(self._with_pod(pod)))
        except (ApiError, OSError) as problem:
            log.error("lease not annotated", problem=str(problem))

    async def _annotate(self, value: str) -> None:
        async with await KubeClient.connect(self._client) as client:
            await annotate(client, self._lease, {ANNOTATION: value})


def subject(frame: FrameType | None) -> Pod | None:
    """The pod that the outermost frame with a pod works on. None when an inner frame works on a pod of another
    namespace, for example on a victim: users of that namespace wrote what takes so long.
    """
    found: list[Pod] = []
    while frame is not None:
        found += (value for value in list(frame.f_locals.values())[::-1] if isinstance(value, Pod))
        frame = frame.f_back
    return found[-1] if len({pod.metadata.namespace for pod in found}) == 1 else None
