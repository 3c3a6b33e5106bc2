"""The work budget of a decision. It ends a turn of the event loop, and defers work that is too large to workers.

Promises
- A decision charges its `WorkBudget` before work whose size depends on objects of the cluster. A budget belongs to one
  turn of one call. No shared object keeps one.
- `UNLIMITED`, the budget of commands and workers, never ends a turn.
- A `TurnBudget` raises `TurnSpent` when the decision has done the work of one turn. The decision's objects keep the
  results of this work, so the same decision gets further in its next turn.
- If one piece of work is larger than the `ceiling`, the budget raises `Deferred` with a reason for people, and puts the
  request into `requests` of the call. `WorkerReplies` keeps the reply by the content of the request.
- The turns of one call share a `CallState`, so the next turn does not try deferred work again.

Units of work are those of `dra_extender.cel.work`: about a microsecond each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

from dra_extender.allocation.workerrequests import Answered, WorkerReplies, WorkerRequest
from dra_extender.cel import Work

S = TypeVar("S")
T = TypeVar("T")

EVALUATING: Final = "selector is being evaluated"
SEARCHING: Final = "search is under way"

MOST_REQUESTS: Final = 64
"""How many requests a call defers at most."""

LOOKUP: Final = 5
"""Units that it costs to find a request among those already deferred."""


class TurnSpent(Exception):
    """The turn of the event loop is over: run the decision again in the next one."""


class Deferred(Exception):
    """A worker has to answer first. The text is the reason, constant, for people. Keep the text, not the exception: a
    frame that holds the exception it raises again is a reference cycle.
    """


class CallEnded(Deferred):
    """The call has no further turn: nothing more is done in this one."""


def ask_all(ask: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """The answers about all items. Raises Deferred after each was asked, so that all requests to workers are deferred;
    and what else `ask` raises.
    """
    found: list[T] = []
    waiting = ""
    for item in items:
        try:
            found.append(ask(item))
        except CallEnded:
            raise
        except Deferred as problem:
            waiting = str(problem)
    if waiting:
        raise Deferred(waiting)
    return found


class WorkBudget:
    """A budget without a limit, which counts."""

    limited: bool = False
    waited: Mapping[tuple[object, str], str] = {}
    """By decision and node: why an earlier turn of the call left it undecided."""
    too_large: MutableMapping[Hashable, bool]
    """Of a budget with a limit: the kinds of work that were too large for a turn before."""

    used: int = 0
    """Units of work counted so far. Without a limit, `attempt` counts none."""
    unfinished: bool = False
    """The call ended here, and another turn would have got further."""

    @property
    def found(self) -> dict[Hashable, Any]:
        """What the turns of this call have found, by content: later turns do not look for it again."""
        return {}

    def spend(self, units: int, owed: int = 0) -> None:
        """Charge small work that cannot be interrupted, before it is done. `owed`: units that `settle` charges later;
        until then they do not end the turn. Raises TurnSpent and Deferred.
        """
        self.used += units + owed

    def settle(self, more: int = 0) -> None:
        """Charge what is owed, and `more` for work that is done: the caller keeps the result."""
        self.used += more

    def attempt(self, do: Callable[[Work | None], T], share: int = 1) -> T:
        """Do one piece of work with the `share`-th part of the ceiling. Raises WorkExceeded, TurnSpent and Deferred."""
        return do(None)

    def wait(self, what: object, node: str, reason: str) -> None:
        """Let later turns of the call know that this cannot be decided on the node yet."""

    def known(self, key: Hashable) -> Answered | None:
        return None

    def is_deferred(self, key: Hashable) -> bool:
        """True when a worker has the request and has not answered yet."""
        return False

    def defer(self, key: Hashable, request: WorkerRequest, reason: str) -> Deferred:
        """Defer the request to a worker. The caller raises the returned exception. A spent turn can defer too, because
        an attempt that was too large often spends the turn, and would spend every later turn.
        """
        raise NotImplementedError("a budget without a limit defers nothing")


UNLIMITED: Final = WorkBudget()


def search_work(steps: int) -> Work:
    """The work of a search that has this step budget and no other limit: on average a hundred units for a step."""
    return Work(100_000 + 100 * steps)


@dataclass(slots=True, eq=False)
class CallState:
    """The state that the turns of one call share. `waited`, `found`: see `WorkBudget`. `requests`: the deferred
    requests. `refusal`: why this call must not ask workers; empty if it may. `stopped`: the reason for decisions that
    the last turn leaves open.
    """

    refusal: Callable[[], str] = str
    stopped: str = SEARCHING
    waited: dict[tuple[object, str], str] = field(default_factory=dict)
    requests: dict[Hashable, WorkerRequest] = field(default_factory=dict)
    found: dict[Hashable, Any] = field(default_factory=dict)
    waits: bool = False
    """Workers have to answer before everything is decided, as some turn has found."""
    awaited: set[Hashable] = field(default_factory=set)
    """The deferred requests that the call needs, also those of earlier calls."""


class TurnBudget(WorkBudget):
    """One turn of a call on the event loop: about `allowance` units of work, and no single piece larger than `ceiling`.

    `last`: the call has no next turn, so what stays undecided in this one is refused with the call's `stopped`.
    """

    limited = True

    def __init__(
        self, replies: WorkerReplies, *, allowance: int, ceiling: int, last: bool = False, call: CallState | None = None
    ) -> None:
        self.call = call if call is not None else CallState()
        self.waited = self.call.waited
        self._replies = replies
        self.too_large = replies.too_large
        self._left = allowance
        self._owed = 0
        self._ceiling = ceiling
        self._last = last

    @property
    def found(self) -> dict[Hashable, Any]:
        return self.call.found

    def spend(self, units: int, owed: int = 0) -> None:
        if self._left <= 0:
            self._stop()
        self._left -= units
        self.used += units
        self._owed += owed

    def settle(self, more: int = 0) -> None:
        self._left -= self._owed + more
        self.used += self._owed + more
        self._owed = 0

    def _stop(self) -> NoReturn:
        if not self._last:
            raise TurnSpent
        self.unfinished = True
        raise CallEnded(self.call.stopped)

    def attempt(self, do: Callable[[Work | None], T], share: int = 1) -> T:
        if self._left <= 0:
            self._stop()
        allowed = self._ceiling // share
        work = Work(allowed)
        try:
            return do(work)
        finally:
            used = max(1, allowed - work.left)
            self._left -= used
            self.used += used

    def wait(self, what: object, node: str, reason: str) -> None:
        if not self.unfinished:
            self.call.waited[what, node] = reason

    def known(self, key: Hashable) -> Answered | None:
        return self._replies.get(key)

    def is_deferred(self, key: Hashable) -> bool:
        return key in self._replies.open or key in self.call.requests

    def defer(self, key: Hashable, request: WorkerRequest, reason: str) -> Deferred:
        self._left -= LOOKUP
        self.used += LOOKUP
        if not self.is_deferred(key):
            refusal = self.call.refusal()
            if refusal:
                return Deferred(refusal)
            if len(self.call.requests) < MOST_REQUESTS:
                self.call.requests[key] = request
        if self.is_deferred(key):
            self.call.awaited.add(key)
        self.call.waits = True
        return Deferred(reason)
