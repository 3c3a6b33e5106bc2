"""The page state (encoded parts by key, and the parts that each subscriber has not received yet) and its updates.

`PageState` promises: pure and bounded. A slow subscriber gets only the last version of a part that changes several
times. A subscriber that reconnects soon gets only the changes since its last message.

`PageUpdates` promises: nothing is computed without subscribers. The page state is computed in turns and published a few
times a second. The number of subscribers is bounded; each keeps at most one set of part keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

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
from dra_extender.insight.why.waiting import content_of, pending_pods
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.noderules import UNSCHEDULABLE
from dra_extender.scheduling.turns import Turns, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import continuing

PERIOD: Final = 0.25
"""Seconds between two updates."""
PUBLISH_PERIOD: Final = 0.1
"""Seconds between two publications during one long update."""
LINGER: Final = 20.0
"""Seconds that the state is kept after the last subscriber left, so it can resume."""
MOST_LISTED: Final = 1_000
"""The most kinds of pending pods that are listed. Namespaces take turns, each with its oldest kind."""
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
REMEMBERED_DROPS: Final = 10_000
"""Removed keys that are remembered for subscribers that reconnect."""
BYTES_OF_BATCH: Final = 2**20

_Claims = tuple[ResourceClaim, ...] | Unschedulable


class Batch(NamedTuple):
    """Parts to put, keys to drop, and the number of parts that follow."""

    put: tuple[bytes, ...]
    drop: tuple[str, ...]
    behind: int


class Subscriber:
    """One open page. `notify` is called when there is something to take."""

    def __init__(self, state: PageState, due: Iterable[str], resumed: bool, notify: Callable[[], object]) -> None:
        self.resumed = resumed
        """The parts that it received on an earlier connection are still valid."""
        self.notify = notify
        self._state = state
        self._due = dict.fromkeys(due)

    def mark(self, key: str) -> None:
        """The part has changed."""
        self._due[key] = None

    @property
    def is_behind(self) -> bool:
        return bool(self._due)

    def take(self, most: int) -> Batch:
        """The next parts, until together they exceed `BYTES_OF_BATCH`."""
        found: list[tuple[str, bytes | None]] = []
        size = 0
        for key in list(islice(self._due, most)):
            if size > BYTES_OF_BATCH:
                break
            del self._due[key]
            found.append((key, self._state.get(key)))
            size += len(found[-1][1] or b"")
        return Batch(
            tuple(part for _, part in found if part is not None),
            tuple(key for key, part in found if part is None),
            len(self._due),
        )


class PageState:
    """Parts by key. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._parts: dict[str, tuple[bytes, int]] = {}
        self._dropped: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        """Version of the newest drop that is no longer remembered."""
        self._subscribers: dict[Subscriber, None] = {}
        self._changed = False

    def put(self, key: str, part: bytes) -> None:
        """Add or replace a part. An equal part changes nothing."""
        known = self._parts.get(key)
        if known is not None and known[0] == part:
            return
        self.version += 1
        self._parts[key] = part, self.version
        self._dropped.pop(key, None)
        self._mark(key)

    def drop(self, key: str) -> None:
        """Remove a part, if it exists."""
        if self._parts.pop(key, None) is None:
            return
        self.version += 1
        self._dropped[key] = self.version
        while len(self._dropped) > REMEMBERED_DROPS:
            _, self._forgotten = self._dropped.popitem(last=False)
        self._mark(key)

    def get(self, key: str) -> bytes | None:
        known = self._parts.get(key)
        return known[0] if known is not None else None

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self._parts if key.startswith(prefix)]

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    def subscribe(self, since: int | None, notify: Callable[[], object]) -> Subscriber:
        """A subscriber that has received all versions up to `since`; None: it has received nothing."""
        resumed = since is not None and self._forgotten <= since <= self.version
        after = since if since is not None and resumed else -1
        due = [key for key, (_, version) in self._parts.items() if version > after]
        due += [key for key, version in self._dropped.items() if resumed and version > after]
        subscriber = Subscriber(self, due, resumed, notify)
        self._subscribers[subscriber] = None
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.pop(subscriber, None)

    def publish(self) -> None:
        """Notify the subscribers that are behind, if anything has changed since the last call."""
        if self._changed:
            self._changed = False
            for subscriber in self._subscribers:
                if subscriber.is_behind:
                    subscriber.notify()

    def notify(self) -> None:
        for subscriber in self._subscribers:
            subscriber.notify()

    def _mark(self, key: str) -> None:
        self._changed = True
        for subscriber in self._subscribers:
            subscriber.mark(key)


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
                await continuing("feed", self._update())
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
        for difference in self.devices.refresh():
            if isinstance(difference, str):
                self.state.drop(difference)
            elif difference is not None:
                self._put(difference)
            if self.devices.counted == SCREEN:
                self.state.publish()
            yield
        self._put(StatusPart("status", "", True))

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
    """Equal for pods of a namespace that differ only in their names. It has the UID of a pod that is undecided."""
    spec = encode(pod.spec)
    if len(spec) >= LARGE:
        yield
    if isinstance(claims, Unschedulable):
        return pod.metadata.namespace, spec, claims.reason
    return pod.metadata.namespace, (yield from content_of(view, pod, spec))
