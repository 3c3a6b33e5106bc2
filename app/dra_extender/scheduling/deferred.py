"""Calls in counted turns of the event loop, and questions to workers that no turn can take.

Promises
- `decide` makes one decision on one state, without an await in it, in as many turns as it takes, up to a limit for the
  call. After that, nodes that are not decided are refused, and the pod is woken to go on.
- Whatever is left to workers is asked once, however many pods, nodes and calls want to know it. Namespaces take turns,
  and the claims within one: a claim with thousands of questions is as far from an answer as one with a few.
- Claims of one content get so much of the workers' time, and of calls that come to no end, and no more: then their
  other questions are not asked, a call for them gets one turn, and their pods are told so, for a while.
- Whoever asks most gives way when there are too many questions: nobody can keep others from asking.
- Pods that were refused for want of an answer are woken when the questions of some claims are all answered, and those
  that were told to wait for a while when that is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from itertools import count, repeat
from typing import Final, TypeVar

import structlog
from cachetools import TTLCache

from dra_extender.allocation.budget import (
    ROOM,
    SEARCHING,
    UNLIMITED,
    Answers,
    TurnBudget,
    TurnSpent,
    Waited,
    WorkBudget,
)
from dra_extender.allocation.contents import contents
from dra_extender.allocation.questions import Overrun, Question, kind_of
from dra_extender.api.core import Pod
from dra_extender.scheduling.claims import Unschedulable, find
from dra_extender.scheduling.outcomes import WORKER_ANSWERS
from dra_extender.scheduling.ports import Observer, Workers
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View
from dra_extender.scheduling.workqueue import WorkItem, WorkQueue
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

T = TypeVar("T")

AWAITED: Final = "workers"
"""What pods wait for, instead of a claim or a pod."""

USED_UP: Final = "deciding on the pod's claims takes too long"
UNAVAILABLE: Final = "no worker process can be started"

MOST_QUESTIONS: Final = 4_000
UNITS: Final = 1_000_000
"""Units of work that are put down as a second."""

MARGIN_SECONDS: Final = 1.0
"""How much later than it is over a pause is known to be over."""

REMEMBERED_CONTENTS: Final = 10_000


class DeferredWork:
    """One per service. Without `workers` everything is done at once, however long it takes. The state is as the pod has
    it: what is kept for others counts as taken.
    """

    def __init__(self, view: View, workers: Workers | None, requeue: RequeueTrigger, observer: Observer) -> None:
        self._view = view
        self._workers = workers
        self._requeue = requeue
        self._observer = observer
        config, clock = view.config, view.clock
        self._answers = Answers()
        self._waiting = WorkQueue()
        self._open: dict[Hashable, int] = {}
        """By content of claims: how many questions are open."""
        self._spent: TTLCache[Hashable, float] = TTLCache(
            REMEMBERED_CONTENTS, config.worker_forgiving_seconds, timer=clock.monotonic
        )
        self._unavailable_until = 0.0
        self._working: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """How many questions are not answered yet."""
        return len(self._answers.open)

    # --- decisions ---------------------------------------------------------------------------------------------------

    async def decide(self, pod: Pod, decision: Callable[[View], T]) -> tuple[T, bool]:
        """What the decision comes to, made on one state, which is that of the moment when this returns. True when
        another one may come to more later: workers are being asked, or the limit for the call was reached.
        """
        if self._workers is None:
            return decision(self._view.with_pod(pod)), False
        asker = _Asker(self._view, pod)
        config = self._view.config
        if self._spent:
            await self._look(asker)
        used_up = self._is_used_up(asker)
        most = left = config.turn_work if used_up else config.call_work
        waited: Waited = {}
        asked: dict[Hashable, Question] = {}
        news = self._news
        while True:
            stopped = USED_UP if used_up else SEARCHING
            budget = self._budget(asker, waited, asked, last=left <= config.turn_work, stopped=stopped)
            try:
                found = decision(self._view.with_pod(pod).with_budget(budget))
            except TurnSpent:
                left -= budget.used
                await asyncio.sleep(0)
                await self._look(asker)
                continue
            self._ask(asker, asked)
            if budget.waits and news is not self._news:  # what an earlier turn waited for may have been answered since
                asyncio.get_running_loop().call_soon(self._requeue.ended, AWAITED)
            if budget.unfinished and not used_up:
                self._charge(asker.content, (most - left + budget.used) / UNITS)
                asyncio.get_running_loop().call_soon(self._requeue.ended, AWAITED)
            return found, budget.waits or (budget.unfinished and not used_up)

    async def insist(self, pod: Pod, decision: Callable[[View, Pod], T], seconds: float) -> T:
        """As `decide`, but what workers have to say is waited for: for so long, if need be."""
        deadline = self._view.clock.monotonic() + seconds
        while True:
            found, open_ = await self.decide(pod, lambda view: decision(view, pod))
            left = deadline - self._view.clock.monotonic()
            if not open_ or left <= 0 or not self._answers.open:
                return found
            try:
                async with asyncio.timeout(left):
                    await self._news.wait()
            except TimeoutError:
                return found

    def budgets(self) -> Iterator[WorkBudget]:
        """For the turns of a question that is no verb's, one after the other: nothing is asked of workers for it."""
        if self._workers is None:
            yield from repeat(UNLIMITED)
        config, waited = self._view.config, Waited()
        for turn in count(1):
            last = turn * config.turn_work >= config.call_work
            yield TurnBudget(
                self._answers, allowance=config.turn_work, ceiling=config.question_work, last=last, waited=waited
            )

    def _budget(
        self, asker: _Asker, waited: Waited, asked: dict[Hashable, Question], *, last: bool, stopped: str
    ) -> TurnBudget:
        config = self._view.config
        return TurnBudget(
            self._answers,
            allowance=config.turn_work,
            ceiling=config.question_work,
            last=last,
            stopped=stopped,
            refusal=lambda: self._refusal(asker),
            waited=waited,
            asked=asked,
        )

    async def _look(self, asker: _Asker) -> None:
        """Find out for whom workers would be asked, in as many turns as it takes: it costs what reading the claims has
        cost.
        """
        config = self._view.config
        while True:
            budget = TurnBudget(self._answers, allowance=config.turn_work, ceiling=config.question_work)
            try:
                asker.look(budget)
            except TurnSpent:
                await asyncio.sleep(0)
            else:
                return

    def _refusal(self, asker: _Asker) -> str:
        """Why workers are not asked for the pod; empty when they are."""
        if self._unavailable_until > self._view.clock.monotonic():
            return UNAVAILABLE
        return USED_UP if self._is_used_up(asker) else ""

    def _is_used_up(self, asker: _Asker) -> bool:
        return bool(self._spent) and self._spent.get(asker.content, 0.0) >= self._view.config.worker_claim_seconds

    def _charge(self, content: Hashable, seconds: float) -> None:
        """Claims of this content took so long. When it is too long, what they have asked is given up, for a while."""
        config, spent = self._view.config, self._spent.get(content, 0.0)
        self._spent[content] = spent + seconds
        if spent + seconds < config.worker_claim_seconds:
            return
        self._wake_after(config.worker_forgiving_seconds)
        if spent < config.worker_claim_seconds:
            log.warning("some claims take too long and are given up for a while", seconds=spent + seconds)
            for other in list(self._waiting.drop(content)):
                self._close(other)

    def _wake_after(self, seconds: float) -> None:
        """Pods that are told to wait so long do not wait for any answer."""
        asyncio.get_running_loop().call_later(seconds + MARGIN_SECONDS, self._requeue.improved)

    # --- questions ---------------------------------------------------------------------------------------------------

    def _ask(self, asker: _Asker, questions: dict[Hashable, Question]) -> None:
        for key, question in questions.items():
            if key in self._answers.open or self._answers.get(key) is not None:
                continue  # since an earlier turn
            if self._open.get(asker.content, 0) >= ROOM or not self._has_room(asker):
                break
            self._answers.open.add(key)
            self._open[asker.content] = self._open.get(asker.content, 0) + 1
            self._waiting.put(asker.namespace, WorkItem(key, question, asker.content))
        self._work()

    def _has_room(self, asker: _Asker) -> bool:
        """Made where somebody else asks more."""
        if len(self._waiting) < MOST_QUESTIONS:
            return True
        yielded = self._waiting.yielded(asker.namespace, asker.content)
        if yielded is not None:
            self._forget(yielded)
        return yielded is not None

    def _work(self) -> None:
        while self._workers is not None and len(self._waiting) and len(self._working) < self._workers.capacity:
            task = asyncio.create_task(self._answer(self._workers, self._waiting.take()), name="question")
            self._working.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if not task.cancelled():
            self._work()

    async def _answer(self, workers: Workers, asked: WorkItem) -> None:
        try:
            reply = await workers.answer(asked.question)
        except Exception as problem:
            unexpected("workers", problem)
            self._close(asked)
            return
        answer, seconds = reply.answer, reply.seconds
        self._observer.count(WORKER_ANSWERS, answer.limit if isinstance(answer, Overrun) else kind_of(asked.question))
        if isinstance(answer, Overrun) and answer.limit == "start":
            self._unavailable_until = self._view.clock.monotonic() + self._view.config.worker_pause_seconds
            self._wake_after(self._view.config.worker_pause_seconds)
        else:
            self._answers.learn(asked.key, asked.question, answer)
        self._charge(asked.content, seconds)
        self._close(asked)

    def _close(self, asked: WorkItem) -> None:
        """The question is not open any more."""
        if self._forget(asked):
            self._requeue.ended(AWAITED)
        self._news.set()
        self._news = asyncio.Event()

    def _forget(self, asked: WorkItem) -> bool:
        """True when it was the last open one of its claims."""
        self._answers.open.discard(asked.key)
        self._open[asked.content] -= 1
        if self._open[asked.content]:
            return False
        del self._open[asked.content]
        return True

    async def drain(self) -> None:
        """End what is being asked."""
        tasks = list(self._working)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Asker:
    """For whom workers are asked: what they cost is put down to all claims of the same content."""

    def __init__(self, view: View, pod: Pod) -> None:
        self._view = view
        self._pod = pod
        self._content: Hashable = None

    @property
    def namespace(self) -> str:
        return self._pod.metadata.namespace

    @property
    def content(self) -> Hashable:
        """Of the claims that need devices; of the pod alone when there are none."""
        return self.look(UNLIMITED)

    def look(self, budget: WorkBudget) -> Hashable:
        """The content. Raises TurnSpent."""
        if self._content is None:
            claims = find(self._pod, self._view.ledger.get, self._view.features)
            wanting = (
                () if isinstance(claims, Unschedulable) else [claim for claim in claims if claim.allocation is None]
            )
            self._content = contents(wanting, budget) or (self._pod.metadata.uid,)
        return self._content
