"""Updates of the page state, which all subscribers share.

`PageUpdates` promises: nothing is computed without subscribers. The page state is computed in turns and published a few
times a second. The number of subscribers is bounded; each costs at most one set of part keys.

`RefreshQueue` promises: parts that take long to compute (diagnoses, headroom, problems) are refreshed one at a time, in
a small share of the time. A part is not refreshed before `LATE` while nothing has changed. The namespace whose
parts have taken fewest turns is next; parts of no namespace count as namespaces. Within a namespace, the part that was
refreshed longest ago comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.decoding import encode
from dra_extender.api.groups import group_of
from dra_extender.api.resource import ResourceClaim
from dra_extender.fairqueue import FairQueue
from dra_extender.http.insight import Insight
from dra_extender.http.page.parts import (
    DIAGNOSIS,
    HEADROOM,
    MOST_PROBLEMS,
    PROBLEMS,
    DevicesPart,
    DeviceUpdates,
    NodePart,
    NodesPart,
    PagePart,
    PodCountPart,
    ProblemsPart,
    StatusPart,
    devices_key,
    diagnosis_part,
    headroom_part,
    pod_part,
)
from dra_extender.http.page.state import PageState, Subscriber
from dra_extender.insight.why.waiting import content_of
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.noderules import UNSCHEDULABLE
from dra_extender.scheduling.turns import Turns, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

PERIOD: Final = 0.25
"""Seconds between two updates."""
PUBLISH_PERIOD: Final = 0.1
"""Seconds between two publications during one long update."""
LINGER: Final = 20.0
"""Seconds that the state is kept after the last subscriber left, so it can resume."""
MOST_PODS: Final = 100
"""Kinds of pending pods that are diagnosed: the oldest of each namespace, in turns. The page asks for the others."""
MOST_LISTED: Final = 1_000
"""Kinds of pending pods that are listed."""
MOST_CLASSES: Final = 50
SCREEN: Final = 25
"""Pools that are published at once, because they fill a screen."""
PORTION: Final = 500
"""Pods or nodes in one turn."""
CLAIMS: Final = 50
"""Pods whose claims are compared in one turn."""
SHARE: Final = 9
"""The pause after a refresh is at least this many times as long as the refresh."""
SOON: Final = 1.0
"""Seconds between two refreshes of a part after a change."""
LATE: Final = 10.0
"""Seconds between two refreshes without a change: `change` does not count every change that parts depend on."""

_Claims = tuple[ResourceClaim, ...] | Unschedulable
Compute = Callable[[str], Turns[PagePart] | None]
"""Starts to compute the part with this key; None when its object no longer exists."""


class _Refresh(msgspec.Struct):
    """When a part was refreshed last, and the value of `change` then."""

    compute: Compute
    namespace: str
    at: float = float("-inf")
    change: int = -1


class RefreshQueue:
    """Parts that take long to compute, by key. `change` counts the changes of the cluster."""

    def __init__(self, state: PageState, clock: Callable[[], float] = time.monotonic) -> None:
        self.change = 0
        self._state = state
        self._clock = clock
        self._parts: dict[str, _Refresh] = {}
        self._queue = FairQueue[str]()
        self._queued: set[str] = set()

    def keep(self, prefix: str, wanted: Mapping[str, str], compute: Compute) -> None:
        """Refresh exactly these keys with the prefix; drop the other parts with it. `wanted`: namespaces by key."""
        for key in [key for key in self._parts if key.startswith(prefix) and key not in wanted]:
            del self._parts[key]
            self._state.drop(key)
        for key in wanted:
            if key not in self._parts:
                self._parts[key] = _Refresh(compute, wanted[key])

    def due(self) -> str | None:
        """The key to refresh next; None when no part is due."""
        now = self._clock()
        due = [
            key
            for key, part in self._parts.items()
            if key not in self._queued and now - part.at >= (SOON if part.change != self.change else LATE)
        ]
        for key in sorted(due, key=lambda key: self._parts[key].at):
            self._queued.add(key)
            self._queue.put(self._parts[key].namespace, None, key)
        while len(self._queue):
            key = self._queue.take()
            self._queued.discard(key)
            if key in self._parts:
                return key
        return None

    async def refresh(self, key: str) -> None:
        """Compute the part and publish it."""
        part = self._parts[key]
        part.at, part.change = self._clock(), self.change
        turns = part.compute(key)
        if turns is None:
            return
        found = await run(turns, partial(self._queue.charge, part.namespace, 1))
        if key in self._parts:
            self._state.put(key, msgspec.json.encode(found))
            self._state.publish()


class PageUpdates:
    """One per service."""

    def __init__(self, insight: Insight, clock: Callable[[], float] = time.monotonic) -> None:
        self.closed = False
        """The service stops: streams end."""
        self._insight = insight
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._left_at = 0.0
        self._reset()

    def _reset(self) -> None:
        self.epoch = secrets.token_hex(8)
        """Identifies the page state. A subscriber of another epoch starts again."""
        self.state = PageState()
        self.queue = RefreshQueue(self.state, self._clock)
        self.devices: DeviceUpdates | None = None
        self._view: View | None = None
        self._pending: dict[str, Pod] = {}
        self._contents: dict[str, tuple[Pod, _Claims, Sequence[Hashable]]] = {}
        """By UID: the pod, its claims, and the key that equal pods share."""
        self._kinds: dict[Hashable, str] = {}
        """UIDs of the diagnosed pods."""
        self._nodes: dict[str, NodePart] = {}

    @contextlib.contextmanager
    def subscriber(self, epoch: str, since: int | None, notify: Callable[[], object]) -> Iterator[Subscriber]:
        """A subscriber that has received the versions of `epoch` up to `since`. After `close` it receives nothing."""
        if not self.closed and (self._task is None or self._task.done()):
            self._reset()
            self._task = asyncio.create_task(self._run(), name="page updates")
        subscriber = self.state.subscribe(since if epoch == self.epoch else None, notify)
        try:
            yield subscriber
        finally:
            self.state.unsubscribe(subscriber)
            self._left_at = self._clock()

    async def close(self) -> None:
        """End all streams and tasks."""
        self.closed = True
        self.state.notify()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        """Update until `LINGER` seconds after the last subscriber has left."""
        refreshing = asyncio.create_task(self._refresh(), name="page refresh")
        try:
            while self.state.subscribers or self._clock() - self._left_at < LINGER:
                try:
                    await self._update()
                except Exception as problem:
                    unexpected("feed", problem)
                await asyncio.sleep(PERIOD)
        finally:
            refreshing.cancel()
            self._task = None  # a page that opens now starts updates of its own
            self._reset()
            await asyncio.gather(refreshing, return_exceptions=True)

    async def _update(self) -> None:
        """Update once; publish every `PUBLISH_PERIOD` and at the end."""
        published = self._clock()

        def publish() -> None:
            nonlocal published
            if self._clock() - published >= PUBLISH_PERIOD:
                published = self._clock()
                self.state.publish()

        await run(self.update(), between=publish)
        self.state.publish()

    async def _refresh(self) -> None:
        """Refresh one part after the other, with pauses."""
        while True:
            started = self._clock()
            key = self.queue.due() if not self._insight.unknown() else None
            if key is not None:
                try:
                    await self.queue.refresh(key)
                except Exception as problem:
                    unexpected("feed", problem)
            await asyncio.sleep(max(PERIOD / 5, SHARE * (self._clock() - started)))

    def update(self) -> Turns[None]:
        """Put the parts that have changed since the last update."""
        unknown = self._insight.unknown()
        if unknown:
            self._put(StatusPart("status", unknown, False))
            return
        view = self._insight.view
        if self._view is not view or self.devices is None:
            for key in self.state.keys("devices\n"):
                self.state.drop(key)
            self._view, self.devices = view, DeviceUpdates(view)
            self._put(StatusPart("status", "", False))
        yield from self._update_nodes(view)
        yield from self._update_pods(view)
        self._update_queue(view)
        yield from self._update_devices(self.devices)
        self._put(StatusPart("status", "", True))

    def _update_devices(self, devices: DeviceUpdates) -> Turns[None]:
        for difference in devices.refresh():
            if difference is not None:
                id, part = difference
                key = devices_key(id)
                self.queue.change += 1
                if part is None:
                    self.state.drop(key)
                else:
                    self._put(DevicesPart(key, part))
            if devices.counted == SCREEN:
                self.state.publish()
            yield

    def _update_nodes(self, view: View) -> Turns[None]:
        found: dict[str, NodePart] = {}
        nodes = list(view.cluster.nodes.items())
        for start in range(0, len(nodes), PORTION):
            for name, node in nodes[start : start + PORTION]:
                if node.spec.unschedulable or node.spec.taints:
                    taints = tuple(str(taint) for taint in node.spec.taints if taint.key != UNSCHEDULABLE.key)
                    part = found[name] = NodePart(f"node\n{name}", name, node.spec.unschedulable, taints)
                    if part != self._nodes.get(name):
                        self._put(part)
            yield
        for name in self._nodes.keys() - found.keys():
            self.state.drop(f"node\n{name}")
        self._nodes = found
        self._put(NodesPart("nodes", len(nodes), len(view.cluster.classes)))

    def _update_pods(self, view: View) -> Turns[None]:
        found: list[Pod] = []
        for number, pod in enumerate(view.pods):
            if not pod.spec.node_name and not pod.finished and view.uses_devices(pod):
                found.append(pod)
            if number % PORTION == 0:
                yield
        found.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.key))
        kinds: dict[Hashable, dict[str, Pod]] = {}
        contents: dict[str, tuple[Pod, _Claims, Sequence[Hashable]]] = {}
        for number, pod in enumerate(found):
            uid, claims = pod.metadata.uid, view.claims_of(pod)
            known = self._contents.get(uid)
            if known is None or known[0] is not pod or known[1] != claims or uid in known[2]:
                known = pod, claims, (yield from _content(view, pod, claims))
            contents[uid] = known
            if number % CLAIMS == 0:
                yield
            kinds.setdefault(group_of(pod) or known[2], {})[uid] = pod
        self._contents = contents
        queue = FairQueue[Hashable]()
        for kind, pods in kinds.items():
            queue.put(next(iter(pods.values())).metadata.namespace, None, kind)
        listed = [queue.take() for _ in range(min(len(queue), MOST_LISTED))]
        # One pod represents its kind: the newest, until it goes.
        before, self._kinds = self._kinds, {}
        for kind in listed:
            self._kinds[kind] = before[kind] if before.get(kind) in kinds[kind] else [*kinds[kind]][-1]
        chosen = [(kinds[kind][uid], [*kinds[kind].values()]) for kind, uid in self._kinds.items()]
        self._pending = {pod.metadata.uid: pod for pod, _ in chosen[:MOST_PODS]}
        parts = [pod_part(pod, pods, pod.metadata.uid in self._pending) for pod, pods in chosen]
        for key in set(self.state.keys("pod\n")) - {part.key for part in parts}:
            self.queue.change += 1
            self.state.drop(key)
        for part in parts:
            self._put(part)
        self._put(PodCountPart("pods", len(found)))

    def _update_queue(self, view: View) -> None:
        classes = sorted(view.cluster.classes)[:MOST_CLASSES]
        pods = {f"{DIAGNOSIS}{uid}": pod.metadata.namespace for uid, pod in self._pending.items()}
        self.queue.keep(DIAGNOSIS, pods, self._diagnosis)
        self.queue.keep(HEADROOM, {f"{HEADROOM}{name}": HEADROOM for name in classes}, self._headroom)
        self.queue.keep(PROBLEMS, {PROBLEMS: f"{PROBLEMS}\n"}, self._problems)  # no name of a namespace

    def _diagnosis(self, key: str) -> Turns[PagePart] | None:
        pod = self._pending.get(key.removeprefix(DIAGNOSIS))
        return diagnosis_part(self._insight.view, pod) if pod is not None else None

    def _headroom(self, key: str) -> Turns[PagePart] | None:
        view, name = self._insight.view, key.removeprefix(HEADROOM)
        return headroom_part(view, name) if name in view.cluster.classes else None

    def _problems(self, key: str) -> Turns[PagePart]:
        found = yield from self._insight.problems()
        return ProblemsPart(key, len(found), found[:MOST_PROBLEMS])

    def _put(self, part: PagePart) -> None:
        self.state.put(part.key, msgspec.json.encode(part))


def _content(view: View, pod: Pod, claims: _Claims) -> Turns[Sequence[Hashable]]:
    """Equal for pods of a namespace that differ only in their names; with the UID of a pod that is undecided."""
    spec = encode(pod.spec)
    if isinstance(claims, Unschedulable):
        return pod.metadata.namespace, spec, claims.reason
    return pod.metadata.namespace, (yield from content_of(view, pod, spec))
