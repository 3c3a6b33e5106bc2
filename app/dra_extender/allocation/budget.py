"""Which budget work takes: on the spot, or to a worker, because the event loop cannot wait for it.

Promises
- A `WorkBudget` is for one call, which does all its work in one go and asks it before any
  work whose size others determine.
- The budget of commands and workers never says no.
- A `TurnBudget` ends the call with `TurnSpent` when it has done as much as one turn of the event loop may take. What
  was found out until then is remembered, so that the same call gets further in its next turn.
- One question that is larger than the `ceiling` is left to workers: `Deferred` is raised, with the reason for people,
  and the question is in `asked`. An answer is kept by content in `Answers`; the same question is not tried again.
- The turns of one call share what they have to wait for (`waited`), which the next turn does not find out again, and
  so the questions (`asked`).

Units of work are those of `dra_extender.cel.work`: about a microsecond each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NoReturn, TypeVar

import msgspec
from cachetools import LRUCache

from dra_extender.allocation.questions import (
    Answer,
    Compiled,
    CompileQuestion,
    Evaluated,
    EvaluateQuestion,
    Overrun,
    Question,
    SearchQuestion,
)
from dra_extender.cel import CelGates, CelRuntimeError, DeviceView, Program, Work, WorkExceeded, compile_selector

T = TypeVar("T")

EVALUATING: Final = "selector is being evaluated"
SEARCHING: Final = "search is under way"

REMEMBERED_BYTES: Final = 64 * 2**20
"""Of questions with their answers, as far as they keep what nobody else does: some 20,000 small ones."""
REMEMBERED_EXPRESSIONS: Final = 4_096

ROOM: Final = 64
"""How many questions a call puts at most."""

QUESTION: Final = 3_000
PART: Final = 1_000
"""Bytes of a question, and of one of its requests or devices."""

LEFT: Final = 5
"""Units that finding a question among those left to workers costs."""


Waited = dict[tuple[object, str], str]
"""By what is decided and node: the reason why nobody can say yet, as an earlier turn of the call found it."""


class TurnSpent(Exception):
    """The call has to let others go first."""


class Deferred(Exception):
    """A worker has to answer first. The text is the reason, constant, for people."""


class WorkBudget:
    """Everything on the spot, without a limit."""

    __slots__ = ()

    used: int = 0
    """Units of work that were counted: none where nothing limits them."""

    def spend(self, units: int) -> None:
        """Before work that cannot be interrupted, and is known to be small. Raises TurnSpent and Deferred."""

    def attempt(self, do: Callable[[Work | None], T], share: int = 1) -> T:
        """Try one question with the `share`-th part of the ceiling. Raises WorkExceeded, TurnSpent and Deferred."""
        return do(None)

    def has_waited(self) -> bool:
        """True when an earlier turn of the call, or this one, could not decide something: ask `waiting` then."""
        return False

    def waiting(self, what: object, node: str) -> str:
        """Why an earlier turn of the call could not decide this on the node; empty when it did not try, or could."""
        return ""

    def wait(self, what: object, node: str, reason: str) -> None:
        """Let later turns of the call know that this cannot be decided on the node yet."""

    def known(self, key: Hashable) -> Answered | None:
        """What a worker has answered."""
        return None

    def is_left(self, key: Hashable) -> bool:
        """True when a worker is being asked."""
        return False

    def leave(self, key: Hashable, question: Question, reason: str) -> Deferred:
        """Leave the question to a worker; what is returned is to be raised. Always possible: an attempt that was too
        large has often used up the turn, and would do so in every turn if the question were not put in this one.
        """
        raise NotImplementedError("a budget without a limit leaves nothing")

    def compiled(self, expression: str, gates: CelGates) -> Program | Compiled:
        """The selector, ready to be evaluated. Raises CelCompileError, TurnSpent and Deferred."""
        return compile_selector(expression, gates)

    def matches(self, program: Program | Compiled, expression: str, gates: CelGates, view: DeviceView) -> bool | str:
        """What the selector says of the device, or the text of its error. Raises TurnSpent and Deferred."""
        return evaluated(program if isinstance(program, Program) else compile_selector(expression, gates), view)


def evaluated(program: Program, view: DeviceView, work: Work | None = None) -> bool | str:
    """What the selector says of the device, or the text of its error. Raises WorkExceeded."""
    try:
        return program.evaluate(view, work)
    except CelRuntimeError as error:
        return f"CEL runtime error: {error}"


UNLIMITED: Final = WorkBudget()


class Answered(msgspec.Struct, frozen=True, eq=False):
    """A question with its answer."""

    question: Question
    answer: Answer


def size_of(question: Question) -> int:
    """Bytes that are kept for the question, about, when its claims and slices are gone."""
    if not isinstance(question, SearchQuestion):
        return QUESTION + len(question.expression)
    asks = [ask for request in question.prepared.requests for ask in request.asks]
    texts = sum(len(text) for ask in asks for text in ask.filter.selectors)
    return QUESTION + texts + PART * (len(asks) + len(question.view.devices))


class Answers:
    """What workers have answered, by the key of the question, and which questions are `open`: asked and not answered.

    `heavy` are expressions of which one evaluation was too large: workers evaluate them.
    """

    def __init__(self, most: int = REMEMBERED_BYTES) -> None:
        self.open: set[Hashable] = set()
        self.heavy: LRUCache[tuple[str, CelGates], bool] = LRUCache(REMEMBERED_EXPRESSIONS)
        self._known: LRUCache[Hashable, Answered] = LRUCache(most, lambda known: min(most, size_of(known.question)))

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable) -> Answered | None:
        found: Answered | None = self._known.get(key)
        return found

    def learn(self, key: Hashable, question: Question, answer: Answer) -> None:
        """A worker has answered."""
        self.open.discard(key)
        self._known[key] = Answered(question, answer)


class TurnBudget(WorkBudget):
    """One turn of a call on the event loop: about `allowance` units of work, and no question larger than `ceiling`.

    `last`: there is no next turn, so what is not found out in this one is refused, as `stopped` says. `refusal` says
    why workers are not asked for this call; empty when they are. At most `room` questions are put.
    """

    __slots__ = (
        "_answers", "_ceiling", "_last", "_left", "_refusal", "_room", "_stopped", "_waited", "asked", "unfinished",
        "used", "waits",
    )  # fmt: skip

    def __init__(
        self,
        answers: Answers,
        *,
        allowance: int,
        ceiling: int,
        last: bool = False,
        stopped: str = SEARCHING,
        room: int = ROOM,
        refusal: Callable[[], str] = str,
        waited: Waited | None = None,
        asked: dict[Hashable, Question] | None = None,
    ) -> None:
        self.asked: dict[Hashable, Question] = {} if asked is None else asked
        self.used = 0
        self.waits = False
        """Workers have to answer before everything is known."""
        self.unfinished = False
        """Another turn would have got further."""
        self._answers = answers
        self._left = allowance
        self._ceiling = ceiling
        self._last = last
        self._stopped = stopped
        self._room = room
        self._refusal = refusal
        self._waited: Waited = {} if waited is None else waited

    def spend(self, units: int) -> None:
        if self._left <= 0:
            self._stop()
        self._left -= units
        self.used += units

    def _stop(self) -> NoReturn:
        if not self._last:
            raise TurnSpent
        self.unfinished = True
        raise Deferred(self._stopped)

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

    def has_waited(self) -> bool:
        return bool(self._waited)

    def waiting(self, what: object, node: str) -> str:
        reason = self._waited.get((what, node), "")
        self.waits = self.waits or reason in (EVALUATING, SEARCHING)
        return reason

    def wait(self, what: object, node: str, reason: str) -> None:
        if not self.unfinished:
            self._waited[what, node] = reason

    def known(self, key: Hashable) -> Answered | None:
        return self._answers.get(key)

    def is_left(self, key: Hashable) -> bool:
        return key in self._answers.open or key in self.asked

    def leave(self, key: Hashable, question: Question, reason: str) -> Deferred:
        self._left -= LEFT
        self.used += LEFT
        if key not in self._answers.open and key not in self.asked:
            refusal = self._refusal()
            if refusal:
                return Deferred(refusal)
            if len(self.asked) < self._room:
                self.asked[key] = question
        self.waits = True
        return Deferred(reason)

    # --- selectors ---------------------------------------------------------------------------------------------------

    def compiled(self, expression: str, gates: CelGates) -> Program | Compiled:
        key = "compile", expression, gates
        known = self._answers.get(key)
        if known is not None:
            found = known.answer
            return found if isinstance(found, Compiled) else Compiled(problem=_overrun(found, "to compile"))
        if not self.is_left(key):
            try:
                return self.attempt(lambda work: compile_selector(expression, gates, work))
            except WorkExceeded:
                pass
        raise self.leave(key, CompileQuestion(expression, gates), EVALUATING)

    def matches(self, program: Program | Compiled, expression: str, gates: CelGates, view: DeviceView) -> bool | str:
        content = expression, gates
        if isinstance(program, Program) and content not in self._answers.heavy:
            try:
                return self.attempt(lambda work: evaluated(program, view, work))
            except WorkExceeded:
                self._answers.heavy[content] = True
        key = "evaluate", expression, gates, view.read_key(program.reads)
        known = self._answers.get(key)
        if known is None:
            raise self.leave(key, EvaluateQuestion(expression, gates, view), EVALUATING)
        found = known.answer
        if isinstance(found, Evaluated):
            return found.problem or found.matches
        return _overrun(found, "on a device")


def _overrun(answer: Answer, what: str) -> str:
    """The text of an error."""
    return f"{answer.text} {what}" if isinstance(answer, Overrun) else f"unexpected answer of a worker {what}"
