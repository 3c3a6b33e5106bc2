"""The feed of the page: what there is, and what has changed, for all who look at it.

Promises: nothing is counted while nobody looks. One census serves all readers; it is made in small steps, and so is
everything else. A reader hears of changes a few times a second. The number of readers is bounded, and each costs no
more memory than a list of the parts that it has yet to hear of.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.http.insight.desk import Insight
from dra_extender.http.page.board import Board, Reader
from dra_extender.http.page.parts import (
    MOST_PROBLEMS,
    PROBLEMS,
    ROOM,
    WHY,
    BoardPart,
    Devices,
    Nodes,
    Pods,
    Problems,
    Status,
    devices_key,
    room,
    waiting,
    why,
)
from dra_extender.http.page.questions import SHARE, Questions
from dra_extender.insight.devicereport.parts import Following
from dra_extender.scheduling.slices import Slices, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

PERIOD: Final = 0.25
"""Seconds between two looks at the cluster."""
FIRST: Final = 0.1
"""Seconds between two times at which readers hear of what one long look has found."""
LINGER: Final = 20.0
"""Seconds for which the board is kept when the last reader has left: it may come back."""
MOST_READERS: Final = 32
MOST_PODS: Final = 100
"""Waiting pods that are told, the oldest."""
MOST_CLASSES: Final = 50
MOST_CORDONED: Final = 1_000
PORTION: Final = 500
"""Pods or nodes that are looked at in one step."""


class Feed:
    """One per service."""

    def __init__(self, insight: Insight, clock: Callable[[], float] = time.monotonic) -> None:
        self.epoch = ""
        """Of the board: what readers know of another one is worth nothing."""
        self.board = Board()
        self.following: Following | None = None
        self.questions = Questions(self.board, clock)
        self.closing = asyncio.Event()
        """Set when readers have to go."""
        self._insight = insight
        self._clock = clock
        self._view: View | None = None
        self._waiting: dict[str, Pod] = {}
        self._told_pods: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._left_at = 0.0

    @contextlib.contextmanager
    def reader(self, epoch: str, since: int | None, news: Callable[[], object]) -> Iterator[Reader]:
        """Somebody who reads, and who knows this much of the board of `epoch`."""
        self._start()
        reader = self.board.join(since if epoch == self.epoch else None, news)
        try:
            yield reader
        finally:
            self.board.leave(reader)
            self._left_at = self._clock()

    @property
    def is_crowded(self) -> bool:
        """True when there are as many readers as there may be."""
        return self.board.readers >= MOST_READERS

    async def close(self) -> None:
        """End all readers and everything that runs for them."""
        self.closing.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._begin_anew()
            self._task = asyncio.create_task(self._run(), name="feed of the page")

    def _begin_anew(self) -> None:
        self.epoch = secrets.token_hex(8)
        self.board = Board()
        self.questions = Questions(self.board, self._clock)
        self._view = self.following = None
        self._waiting, self._told_pods = {}, set()

    async def _run(self) -> None:
        """While somebody reads, and a little longer."""
        asking = asyncio.create_task(self._ask(), name="questions of the page")
        try:
            while self.board.readers or self._clock() - self._left_at < LINGER:
                try:
                    await self._refresh()
                except Exception as problem:
                    unexpected("feed", problem)
                await asyncio.sleep(PERIOD)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            self._begin_anew()

    async def _refresh(self) -> None:
        """Look once; meanwhile readers hear every `FIRST` seconds of what has been found."""
        rung = self._clock()

        def ring() -> None:
            nonlocal rung
            if self._clock() - rung >= FIRST:
                rung = self._clock()
                self.board.ring()

        await run(self.look(), between=ring)
        self.board.ring()

    async def _ask(self) -> None:
        """One question after the other, with pauses."""
        while True:
            started = self._clock()
            key = self.questions.due() if not self._insight.unknown() else None
            if key is not None:
                try:
                    await self.questions.answer(key)
                except Exception as problem:
                    unexpected("feed", problem)
            await asyncio.sleep(max(PERIOD / 5, SHARE * (self._clock() - started)))

    # --- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> Slices[None]:
        """Put on the board what has changed since the last look."""
        unknown = self._insight.unknown()
        if unknown:
            self._put(Status("status", unknown, False))
            return
        view = self._insight.view
        if self._view is not view or self.following is None:
            self._forget_devices()
            self._view, self.following = view, Following(view)
            self._put(Status("status", "", False))
        yield from self._look_at_nodes(view)
        yield from self._look_at_pods(view)
        self._look_at_questions(view)
        yield from self._look_at_devices(self.following)
        self._put(Status("status", "", True))

    def _look_at_devices(self, following: Following) -> Slices[None]:
        for difference in following.look():
            if difference is not None:
                id, part = difference
                key = devices_key(id)
                self.questions.change += 1
                if part is None:
                    self.board.drop(key)
                else:
                    self._put(Devices(key, part))
            yield

    def _forget_devices(self) -> None:
        """The view is another one: what the last one knew is not what this one follows."""
        for key in self.board.keys("devices\n"):
            self.board.drop(key)

    def _look_at_nodes(self, view: View) -> Slices[None]:
        cordoned: list[str] = []
        nodes = list(view.cluster.nodes.items())
        for start in range(0, len(nodes), PORTION):
            cordoned += [name for name, node in nodes[start : start + PORTION] if node.spec.unschedulable]
            yield
        self._put(Nodes("nodes", len(nodes), sorted(cordoned)[:MOST_CORDONED]))

    def _look_at_pods(self, view: View) -> Slices[None]:
        found: list[Pod] = []
        for number, pod in enumerate(view.pods):
            if not pod.spec.node_name and not pod.finished and view.uses_devices(pod):
                found.append(pod)
            if number % PORTION == 0:
                yield
        found.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.key))
        self._waiting = {pod.metadata.uid: pod for pod in found[:MOST_PODS]}
        told = {part.key: part for part in map(waiting, self._waiting.values())}
        for key in self._told_pods - told.keys():
            self.questions.change += 1
            self.board.drop(key)
        for part in told.values():
            self._put(part)
        self._told_pods = set(told)
        self._put(Pods("pods", len(found)))

    def _look_at_questions(self, view: View) -> None:
        classes = sorted(view.cluster.classes)[:MOST_CLASSES]
        self.questions.keep(WHY, [f"{WHY}{uid}" for uid in self._waiting], self._ask_why)
        self.questions.keep(ROOM, [f"{ROOM}{name}" for name in classes], self._ask_room)
        self.questions.keep(PROBLEMS, [PROBLEMS], lambda key: self._problems)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _ask_why(self, key: str) -> Callable[[], Slices[BoardPart] | None]:
        uid = key.removeprefix(WHY)

        def ask() -> Slices[BoardPart] | None:
            pod = self._waiting.get(uid)
            return why(self._insight.view, pod) if pod is not None else None

        return ask

    def _ask_room(self, key: str) -> Callable[[], Slices[BoardPart] | None]:
        name = key.removeprefix(ROOM)

        def ask() -> Slices[BoardPart] | None:
            view = self._insight.view
            return room(view, name) if name in view.cluster.classes else None

        return ask

    def _problems(self) -> Slices[BoardPart]:
        found = yield from self._insight.problems()
        shown = [problem.model_dump() for problem in found[:MOST_PROBLEMS]]
        return Problems(PROBLEMS, len(found), shown)

    def _put(self, part: BoardPart) -> None:
        self.board.put(part.key, msgspec.json.encode(part))
