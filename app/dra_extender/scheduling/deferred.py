"""Decisions in turns of the event loop, and the work that they defer to worker processes.

Promises
- `decide` makes a decision on one state, in as many turns as it needs, up to `call_work`. Nodes that are undecided then
  are refused, and the pod is requeued.
- Deferred work is done once, however many pods, nodes and calls need it. The namespace that has used least of the
  workers' time is next; within a namespace the claims of one content take turns. When the queue is full, the content
  with most items loses one, in the namespace with most items.
- A namespace has an allowance of `NAMESPACE_CLAIMS` times `worker_claim_seconds`. It pays for all turns of its calls
  but the first, and for their reads. Without allowance, each call gets one turn. The pods are requeued, so they still
  get further.
- Claims of one content get `worker_claim_seconds` of the workers' time and of calls that reach `call_work`. After that
  their queued work is dropped, and for `worker_forgiving_seconds` nothing is deferred for them.
- A pod that was refused because of deferred work is requeued when all work of one content is done; a pod that was
  refused for the time its claims have used, when that time is forgiven.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import msgspec
import structlog
from cachetools import LRUCache, TTLCache

from dra_extender.allocation.budget import (
    MOST_REQUESTS,
    SEARCHING,
    UNLIMITED,
    CallState,
    TurnBudget,
    TurnSpent,
    WorkBudget,
)
from dra_extender.allocation.workerrequests import Overrun, WorkerReplies, WorkerRequest, kind_of
from dra_extender.api.core import Pod
from dra_extender.fairqueue import FairQueue
from dra_extender.limits import QUEUED_WORK
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.outcomes import WORKER_ANSWERS
from dra_extender.scheduling.ports import Observer, Workers
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.turns import Turns, in_turns, run, turn_budgets
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Signals
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

T = TypeVar("T")

NAMESPACE_CLAIMS: Final = 3
"""The allowance of a namespace, in multiples of `worker_claim_seconds`."""

WORKERS: Final = "workers"
"""What a pod awaits, instead of the UID of a claim or a pod."""

USED_UP: Final = "deciding on the pod's claims takes too long"
UNAVAILABLE: Final = "no worker process can be started"

MILLISECONDS: Final = 1_000
"""The workers' time is charged to namespaces in milliseconds."""

FAILED_SECONDS: Final = 2.0
"""What an unexpected error costs, as much as a crash: pods ask again at once."""

UNITS: Final = 1_000_000
"""Units of work that count as one second."""

MARGIN_SECONDS: Final = 1.0
"""How long after the end of a pause pods are requeued."""

REMEMBERED_CONTENTS: Final = 10_000


class WorkItem(msgspec.Struct, frozen=True, eq=False):
    """Work for a worker. `namespace` and `content`: of the claims that needed it first."""

    key: Hashable
    request: WorkerRequest
    namespace: str
    content: Hashable


class _Content:
    """What a call decides on: the content of the pod's pending claims, or its UID without such claims. Namespaces with
    equal claims have contents of their own, so that none uses up the time of another.
    """

    def __init__(self, view: View, pod: Pod) -> None:
        self._view = view
        self._pod = pod
        self._found: Hashable = None

    def find(self, budget: WorkBudget = UNLIMITED) -> Hashable:
        """The content. Raises TurnSpent."""
        if self._found is None:
            claims = self._view.claims_of(self._pod)
            pending = () if isinstance(claims, Unschedulable) else [each for each in claims if each.allocation is None]
            signatures = self._view.decisions.with_budget(budget).signatures(pending) or (self._pod.metadata.uid,)
            self._found = self._pod.metadata.namespace, signatures
        return self._found


@dataclass(eq=False)
class DeferredWork:
    """One per service. Without `workers` a decision takes one turn, however long that is. Devices that are held for
    other pods count as allocated.
    """

    _view: View
    _replies: WorkerReplies
    _workers: Workers | None
    _requeue: RequeueTrigger
    _observer: Observer

    def __post_init__(self) -> None:
        config, clock = self._view.config, self._view.clock
        self._queue = FairQueue[WorkItem]()
        self._open: dict[Hashable, int] = {}
        """By content: how many items are queued or being worked on."""
        self._spent: TTLCache[Hashable, float] = TTLCache(
            REMEMBERED_CONTENTS, config.worker_forgiving_seconds, timer=clock.monotonic
        )
        """By content: seconds used."""
        self._forgiven: LRUCache[str, float] = LRUCache(REMEMBERED_CONTENTS)
        """By namespace: the time at which its long calls are forgiven."""
        self._unavailable_until = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._signals = Signals()
        self._answered = 0
        """How many items are done, or were dropped."""

    def __len__(self) -> int:
        """How many items are queued or being worked on."""
        return len(self._replies.open)

    async def decide(
        self, pod: Pod, decision: Callable[[View], T], awaited: set[Hashable] | None = None
    ) -> tuple[T, bool]:
        """The decision on the state at the moment when this returns, and whether it is unfinished, so that a later one
        may find more: work was deferred, or the call has reached `call_work`. The keys of the work go into `awaited`.
        """
        if self._workers is None:
            return decision(self._view.with_pod(pod)), False
        return await run(self._deciding(pod, decision, set() if awaited is None else awaited))

    async def decide_within(self, seconds: float, pod: Pod, decision: Callable[[View, Pod], T]) -> T:
        """As `decide`, but wait up to `seconds` for deferred work, and decide again when a part of it is done."""
        deadline = self._view.clock.monotonic() + seconds
        while True:
            awaited = set[Hashable]()
            found, unfinished = await self.decide(pod, lambda view: decision(view, pod), awaited)
            left = deadline - self._view.clock.monotonic()
            if not unfinished or left <= 0:
                return found
            goes_on = partial(self._goes_on, awaited, self._answered)
            if not self._replies.open and not goes_on():
                return found
            if not await self._signals.until(goes_on, awaited or {WORKERS}, left):
                return found

    def _goes_on(self, awaited: Set[Hashable], answered: int) -> bool:
        """True when an item of these is done; without items, as when the queue was full, when any is done."""
        return not awaited <= self._replies.open if awaited else self._answered > answered

    def _deciding(self, pod: Pod, decision: Callable[[View], T], awaited: set[Hashable]) -> Turns[tuple[T, bool]]:
        content, config, answered = _Content(self._view, pod), self._view.config, self._answered
        if self._spent:
            yield from self._identify(content)
        used_up = self._is_used_up(content)
        call = CallState(partial(self._refusal, content), USED_UP if used_up else SEARCHING, awaited=awaited)
        namespace = pod.metadata.namespace
        one_turn = used_up or self.gets_one_turn(namespace)
        budgets = turn_budgets(self._replies, config, call, config.turn_work if one_turn else config.call_work)
        turns: list[TurnBudget] = []

        def decide(budget: TurnBudget) -> T:
            turns.append(budget)
            return decision(self._view.with_pod(pod).with_budget(budget))

        try:
            found = decide(next(budgets))
        except TurnSpent:
            yield
            yield from self._identify(content)
            found = yield from in_turns(budgets, decide)
        self._defer(namespace, content, call)
        awaited.difference_update(key for key in call.requests if not self._is_known(key))  # the queue is full
        *earlier, last = turns
        used = sum(budget.used for budget in earlier)
        self.charge_calls(namespace, used / UNITS)
        unfinished = last.unfinished and not used_up
        if unfinished:
            self._charge(content.find(), (used + last.used) / UNITS)
        # A worker may have answered by now what an earlier turn waits for.
        if unfinished or (call.waits and answered < self._answered):
            asyncio.get_running_loop().call_soon(self._requeue.ended, WORKERS)
        return found, call.waits or unfinished

    def _identify(self, content: _Content) -> Turns[None]:
        """Find the content of the call's claims, in turns: it costs as much as reading the claims."""
        yield from in_turns(turn_budgets(self._replies, self._view.config, CallState(), sys.maxsize), content.find)

    def _refusal(self, content: _Content) -> str:
        """Why nothing is deferred for the call; empty when work is."""
        if self._unavailable_until > self._view.clock.monotonic():
            return UNAVAILABLE
        return USED_UP if self._is_used_up(content) else ""

    def _is_used_up(self, content: _Content) -> bool:
        return bool(self._spent) and self._spent.get(content.find(), 0.0) >= self._view.config.worker_claim_seconds

    def _charge(self, content: Hashable, seconds: float) -> None:
        """Count time that claims of this content have used. Drop their queued work when it is too much."""
        config, spent = self._view.config, self._spent.get(content, 0.0)
        self._spent[content] = spent + seconds
        if spent + seconds < config.worker_claim_seconds:
            return
        self._requeue_after(config.worker_forgiving_seconds)
        if spent < config.worker_claim_seconds:
            log.warning("claims need too much worker time, dropping their work", seconds=spent + seconds)
            for item in list(self._queue.drop(content)):
                self._close(item)

    def _seconds_owed(self, namespace: str) -> float:
        """Seconds until the long calls for the namespace are forgiven."""
        now = self._view.clock.monotonic()
        return max(0.0, self._forgiven.get(namespace, now) - now)

    def gets_one_turn(self, namespace: str) -> bool:
        """Whether a call for the namespace takes one turn only, and reads nothing."""
        return self._seconds_owed(namespace) >= self._view.config.worker_forgiving_seconds

    def charge_calls(self, namespace: str, seconds: float) -> None:
        """Count what a call has taken beyond one turn. It is forgiven at a constant rate."""
        config = self._view.config
        if seconds:
            rate = config.worker_forgiving_seconds / (NAMESPACE_CLAIMS * config.worker_claim_seconds)
            self._forgiven[namespace] = self._view.clock.monotonic() + self._seconds_owed(namespace) + seconds * rate

    def _requeue_after(self, seconds: float) -> None:
        """Requeue the pods whose work is refused, when the pause is over."""
        asyncio.get_running_loop().call_later(seconds + MARGIN_SECONDS, self._requeue.improved)

    def _defer(self, namespace: str, needing: _Content, call: CallState) -> None:
        """Queue what the call needs and no earlier call has queued."""
        for key, request in call.requests.items():
            if self._is_known(key):
                continue
            content = needing.find()
            if self._open.get(content, 0) >= MOST_REQUESTS:
                break
            if len(self._queue) >= QUEUED_WORK:
                evicted = self._queue.evict_for(namespace, content)
                if evicted is None:
                    break
                self._forget(evicted)
            self._replies.open.add(key)
            self._open[content] = self._open.get(content, 0) + 1
            self._queue.put(namespace, content, WorkItem(key, request, namespace, content))
        self._work()

    def _is_known(self, key: Hashable) -> bool:
        """True when the item is queued, being worked on, or answered."""
        return key in self._replies.open or self._replies.get(key) is not None

    def _work(self) -> None:
        while self._workers is not None and len(self._queue) and len(self._tasks) < self._workers.capacity:
            task = asyncio.create_task(self._answer(self._workers, self._queue.take()), name="deferred work")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._work()

    async def _answer(self, workers: Workers, item: WorkItem) -> None:
        try:
            reply = await workers.answer(item.request)
        except Exception as problem:
            unexpected("workers", problem)
            self._pay(item, FAILED_SECONDS)
            return
        answer, config = reply.reply, self._view.config
        self._observer.count(WORKER_ANSWERS, answer.limit if isinstance(answer, Overrun) else kind_of(item.request))
        if isinstance(answer, Overrun) and answer.limit == "start":
            self._unavailable_until = self._view.clock.monotonic() + config.worker_pause_seconds
            self._requeue_after(config.worker_pause_seconds)
        else:
            self._replies.learn(item.key, item.request, answer)
        self._pay(item, reply.seconds)

    def _pay(self, item: WorkItem, seconds: float) -> None:
        """The item has taken this time, and is done."""
        self._charge(item.content, seconds)
        self._queue.charge(item.namespace, seconds * MILLISECONDS)
        self._close(item)

    def _close(self, item: WorkItem) -> None:
        """The item is done, or dropped."""
        if self._forget(item):
            self._requeue.ended(WORKERS)

    def _forget(self, item: WorkItem) -> bool:
        """True when it was the last open item of its content."""
        self._replies.open.discard(item.key)
        self._answered += 1
        self._signals.notify(item.key)
        self._signals.notify(WORKERS)
        self._open[item.content] -= 1
        if self._open[item.content]:
            return False
        del self._open[item.content]
        return True

    async def drain(self) -> None:
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
