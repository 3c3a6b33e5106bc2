"""Pods waiting to be scheduled, as kube-scheduler keeps them: ready, backing off, or waiting for an event.

`SchedulingQueue` promises, as Kubernetes 1.36 (pkg/scheduler/backend/queue): a pod is in one place only; a refused pod
waits until an event that one of its refusers registered for happens; events during its own attempt count; it backs off
for 1, 2, 4, ... seconds, but when nothing else is ready, the next refused one is popped without waiting
(SchedulerPopFromBackoffQ); failures of the machinery back off in full and wait for no event. Synchronous; the caller
passes the clock.

`wakes` says which changes requeue a refused pod (pkg/scheduler/eventhandlers.go and framework/types.go). A pod refused
by an extender is requeued by every change of bound pods, nodes, claims and classes, and by any change of itself; by
ResourceSlices never.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

import msgspec

from embedded_cluster.objects import FullNode, FullPod

Refuser = Literal["extender", "resources", "node"]
"""Who refused a pod: an extender, NodeResourcesFit, or a filter that looks at the node only."""

Change = Literal["own pod", "bound pod", "bound pod gone", "node", "claim", "class"]


class Wakeup(msgspec.Struct, frozen=True):
    """An event, reduced to what decides whom it wakes."""

    change: Change

    @property
    def may_open_gate(self) -> bool:
        """True when a pod that waits for its claims to exist may go on."""
        return self.change in ("claim", "own pod")


_WAKES: dict[Refuser, frozenset[Change]] = {
    "extender": frozenset(("own pod", "bound pod", "bound pod gone", "node", "claim", "class")),
    "resources": frozenset(("own pod", "bound pod gone", "node")),
    "node": frozenset(("own pod", "node")),
}


def wakes(wakeup: Wakeup, refusers: frozenset[Refuser]) -> bool:
    """True when a pod refused by these is tried again."""
    return any(wakeup.change in _WAKES[refuser] for refuser in refusers)


def pod_wakeup(old: FullPod | None, new: FullPod | None) -> Wakeup | None:
    """What the change of another pod means. Pods without a node wake no other."""
    before = old is not None and bool(old.spec.node_name)
    after = new is not None and bool(new.spec.node_name)
    ended = new is None or new.status.phase in ("Succeeded", "Failed")
    if before and ended and not (old is not None and old.status.phase in ("Succeeded", "Failed")):
        return Wakeup("bound pod gone")
    if after and not ended:
        return Wakeup("bound pod")
    return None


def node_wakeup(old: FullNode | None, new: FullNode | None) -> Wakeup | None:
    """Heartbeats and other status noise wake no pod."""
    if old is None or new is None:
        return Wakeup("node")
    same = (
        old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
    )
    return None if same else Wakeup("node")


T = TypeVar("T")

FLUSH_AFTER = 300.0
"""Seconds after which a pod is tried again although nothing happened."""

Place = Literal["active", "backoff", "errors", "unschedulable", "flight"]


class Item(msgspec.Struct, Generic[T], eq=False):
    """One pod in the queue."""

    uid: str
    pod: T
    priority: int
    since: float
    """When it came to its present place, in seconds of the queue's clock."""
    place: Place = "active"
    gated: bool = False
    refusals: int = 0
    errors: int = 0
    refusers: frozenset[Refuser] = frozenset()
    ready_at: float = 0.0
    serial: int = 0
    """Grows with every move; entries of the heaps with an older one are void."""


class SchedulingQueue(Generic[T]):
    """Pods by UID. `gate` is True for pods that may be tried."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        gate: Callable[[T], bool] = lambda pod: True,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        pop_from_backoff: bool = True,
        on_ready: Callable[[], object] = lambda: None,
    ) -> None:
        self._clock = clock
        self._gate = gate
        self._initial = initial_backoff
        self._most = max_backoff
        self._pop_from_backoff = pop_from_backoff
        self._on_ready = on_ready
        self._items: dict[str, Item[T]] = {}
        self._waiting: dict[str, Item[T]] = {}
        """Those that only an event moves: place "unschedulable"."""
        self._active: list[tuple[int, float, int, str]] = []
        self._backing: list[tuple[float, int, int, str]] = []
        self._serial = 0
        self._flights: dict[str, int] = {}
        """UID of a pod in its attempt -> the number of the first event after it was popped."""
        self._events: deque[Wakeup] = deque()
        self._event_number = 0

    # --- what is where

    def __contains__(self, uid: str) -> bool:
        return uid in self._items

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> Iterator[Item[T]]:
        """Everything in the queue, pods in their attempt included."""
        return iter(tuple(self._items.values()))

    def get(self, uid: str) -> Item[T] | None:
        return self._items.get(uid)

    # --- pods come and go

    def add(self, uid: str, pod: T, priority: int) -> None:
        """A new pod; one that is known already is updated."""
        if uid in self._items:
            self._items[uid].pod = pod
            return
        item = Item(uid, pod, priority, self._clock())
        self._items[uid] = item
        self._enter(item)

    def update(self, uid: str, pod: T, wakeup: Wakeup) -> None:
        """The pod itself changed: whatever refused it, it may be accepted now."""
        item = self._items.get(uid)
        if item is None:
            return
        item.pod = pod
        if item.gated:
            self._enter(item)
        elif item.place == "flight":
            self._record(wakeup)
        elif item.place == "unschedulable" and wakes(wakeup, item.refusers):
            self._requeue(item)

    def remove(self, uid: str) -> None:
        """The pod is gone, or bound: it needs nothing more."""
        item = self._items.pop(uid, None)
        self._waiting.pop(uid, None)
        if item is not None and item.place == "flight":
            self._land(uid)

    # --- attempts

    def pop(self) -> Item[T] | None:
        """The next pod to try, or None. It stays known until `refused`, `failed` or `remove`."""
        self._release_due()
        item = self._pop_active() or (self._pop_backing() if self._pop_from_backoff else None)
        if item is not None:
            item.place = "flight"
            self._flights[item.uid] = self._event_number
        return item

    def binding(self, uid: str) -> None:
        """The attempt found a node: events no longer matter to it. `failed` or `remove` follow."""
        self._land(uid)

    def refused(self, uid: str, refusers: frozenset[Refuser]) -> None:
        """The attempt found no node: wait for an event, unless one happened during the attempt."""
        item = self._items.get(uid)
        if item is None:
            return
        missed = self._land(uid)
        item.refusals += 1
        item.errors = 0
        item.refusers = refusers
        item.since = self._clock()
        item.ready_at = item.since + self._backoff(item.refusals)
        if any(wakes(wakeup, refusers) for wakeup in missed):
            self._requeue(item)
        else:
            self._move(item, "unschedulable")

    def failed(self, uid: str) -> None:
        """The attempt ended with an error: try again after a full backoff."""
        item = self._items.get(uid)
        if item is None:
            return
        self._land(uid)
        item.errors += 1
        item.since = self._clock()
        item.ready_at = item.since + self._backoff(item.errors)
        self._move(item, "errors")

    # --- time and events

    def wake(self, wakeup: Wakeup) -> int:
        """Something happened in the cluster; returns how many waiting pods it moved."""
        self._record(wakeup)
        moved = 0
        for item in tuple(self._waiting.values()):
            if item.gated:
                if wakeup.may_open_gate and self._gate(item.pod):
                    self._enter(item)
                    moved += 1
            elif wakes(wakeup, item.refusers):
                self._requeue(item)
                moved += 1
        return moved

    def flush(self) -> None:
        """Try pods again that waited for five minutes."""
        for item in tuple(self._waiting.values()):
            if not item.gated and self._clock() - item.since > FLUSH_AFTER:
                self._requeue(item)

    def next_due(self) -> float | None:
        """When the next backoff ends, on the queue's clock; None when no pod backs off."""
        self._drop_void(self._backing)
        return self._backing[0][0] if self._backing else None

    # --- inside

    def _enter(self, item: Item[T]) -> None:
        item.gated = not self._gate(item.pod)
        if item.gated:
            self._move(item, "unschedulable")
        else:
            self._move(item, "active")

    def _requeue(self, item: Item[T]) -> None:
        self._move(item, "backoff" if item.ready_at > self._clock() else "active")

    def _move(self, item: Item[T], place: Place) -> None:
        self._serial += 1
        item.serial = self._serial
        item.place = place
        self._waiting.pop(item.uid, None)
        if place == "unschedulable":
            self._waiting[item.uid] = item
        elif place == "active":
            heapq.heappush(self._active, (-item.priority, item.since, item.serial, item.uid))
        else:
            heapq.heappush(self._backing, (item.ready_at, -item.priority, item.serial, item.uid))
        if place != "unschedulable":
            self._on_ready()

    def _valid(self, serial: int, uid: str) -> Item[T] | None:
        item = self._items.get(uid)
        return item if item is not None and item.serial == serial and item.place != "flight" else None

    def _drop_void(self, heap: list[tuple[float, int, int, str]]) -> None:
        while heap and self._valid(heap[0][2], heap[0][3]) is None:
            heapq.heappop(heap)

    def _pop_active(self) -> Item[T] | None:
        while self._active:
            _, _, serial, uid = heapq.heappop(self._active)
            item = self._valid(serial, uid)
            if item is not None:
                return item
        return None

    def _pop_backing(self) -> Item[T] | None:
        """The refused pod that would be ready first; pods that met errors are left to wait."""
        kept, found = [], None
        while self._backing and found is None:
            entry = heapq.heappop(self._backing)
            item = self._valid(entry[2], entry[3])
            if item is None:
                continue
            if item.place == "backoff":
                found = item
            else:
                kept.append(entry)
        for entry in kept:
            heapq.heappush(self._backing, entry)
        return found

    def _release_due(self) -> None:
        now = self._clock()
        while self._backing:
            ready_at, _, serial, uid = self._backing[0]
            item = self._valid(serial, uid)
            if item is not None and ready_at > now:
                return
            heapq.heappop(self._backing)
            if item is not None:
                self._move(item, "active")

    def _backoff(self, count: int) -> float:
        return min(self._initial * 2.0 ** min(count - 1, 60), self._most)

    def _record(self, wakeup: Wakeup) -> None:
        if self._flights:
            self._events.append(wakeup)
            self._event_number += 1

    def _land(self, uid: str) -> list[Wakeup]:
        """End a pod's attempt: the events since it was popped."""
        start = self._flights.pop(uid, None)
        if start is None:
            return []
        oldest = self._event_number - len(self._events)
        missed = list(self._events)[start - oldest :]
        earliest = min(self._flights.values(), default=self._event_number)
        while self._event_number - len(self._events) < earliest:
            self._events.popleft()
        return missed
