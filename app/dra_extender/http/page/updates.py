"""Updates of the page state, which all subscribers share.

`PageUpdates` promises: nothing is computed without subscribers. The page state is computed in turns and published a few
times a second. The number of subscribers is bounded; each costs at most one set of part keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.decoding import encode
from dra_extender.api.groups import group_of
from dra_extender.api.resource import ResourceClaim
from dra_extender.fairqueue import FairQueue
from dra_extender.http.insight import Insight
from dra_extender.http.page.parts import (
    DeviceUpdates,
    NodePart,
    NodesPart,
    PagePart,
    PodCountPart,
    StatusPart,
    pod_part,
)
from dra_extender.http.page.state import PageState, Subscriber
from dra_extender.insight.why.waiting import content_of, pending_pods
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
MOST_LISTED: Final = 1_000
"""Kinds of pending pods that are listed: the oldest of each namespace, in turns."""
MOST_CLASSES: Final = 50
"""Classes of which the page shows the headroom."""
SCREEN: Final = 25
"""Pools that are published at once, because they fill a screen."""
PORTION: Final = 500
"""Nodes in one turn."""
CLAIMS: Final = 50
"""Pods and claims that are compared in one turn, at least."""
LARGE: Final = 2**15
"""Bytes of a pod that takes a turn."""

_Claims = tuple[ResourceClaim, ...] | Unschedulable


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
        self.devices: DeviceUpdates | None = None
        self._view: View | None = None
        self._contents: dict[str, tuple[Pod, _Claims, Sequence[Hashable]]] = {}
        """By UID: the pod, its claims, and the key that equal pods share."""
        self._kinds: dict[Hashable, str] = {}
        """By kind: the UID of the pod that represents it."""
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
        try:
            while self.state.subscribers or self._clock() - self._left_at < LINGER:
                try:
                    await self._update()
                except Exception as problem:
                    unexpected("feed", problem)
                await asyncio.sleep(PERIOD)
        finally:
            self._task = None  # a page that opens now starts updates of its own
            self._reset()

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
        yield from self._update_devices(self.devices)
        self._put(StatusPart("status", "", True))

    def _update_devices(self, devices: DeviceUpdates) -> Turns[None]:
        for difference in devices.refresh():
            if isinstance(difference, str):
                self.state.drop(difference)
            elif difference is not None:
                self._put(difference)
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
        self._put(NodesPart("nodes", len(nodes), sorted(view.cluster.classes)[:MOST_CLASSES]))

    def _update_pods(self, view: View) -> Turns[None]:
        found = yield from pending_pods(view)
        found.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.key))
        kinds: dict[Hashable, dict[str, Pod]] = {}
        contents: dict[str, tuple[Pod, _Claims, Sequence[Hashable]]] = {}
        work = 0
        for pod in found:
            uid, claims = pod.metadata.uid, view.claims_of(pod)
            known = self._contents.get(uid)
            if known is None or known[0] is not pod or known[1] != claims or uid in known[2]:
                known = pod, claims, (yield from _content(view, pod, claims))
            contents[uid] = known
            work += 1 + len(pod.spec.resource_claims)
            if work >= CLAIMS:
                work = 0
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
        parts = [pod_part(kinds[kind][uid], [*kinds[kind].values()]) for kind, uid in self._kinds.items()]
        for key in set(self.state.keys("pod\n")) - {part.key for part in parts}:
            self.state.drop(key)
        for part in parts:
            self._put(part)
        self._put(PodCountPart("pods", len(found)))

    def _put(self, part: PagePart) -> None:
        self.state.put(part.key, msgspec.json.encode(part))


def _content(view: View, pod: Pod, claims: _Claims) -> Turns[Sequence[Hashable]]:
    """Equal for pods of a namespace that differ only in their names; with the UID of a pod that is undecided."""
    spec = encode(pod.spec)
    if len(spec) >= LARGE:
        yield
    if isinstance(claims, Unschedulable):
        return pod.metadata.namespace, spec, claims.reason
    return pod.metadata.namespace, (yield from content_of(view, pod, spec))
