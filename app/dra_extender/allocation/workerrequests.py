"""Requests to worker processes, for work that may block the event loop for too long. Workers run the same code.

Promises: a request is immutable and complete, so the reply depends only on the request. `Overrun` is a reply too: the
worker was stopped at one of its limits, and the answer stays unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Literal

import msgspec
from cachetools import LRUCache

from dra_extender.allocation.requests import PreparedClaims
from dra_extender.api.resource import DeviceAttribute
from dra_extender.cel import CelGates, DeviceView, ReadSet
from dra_extender.devices.pools import NodeView
from dra_extender.devices.usage import PoolHoldings, PoolID
from dra_extender.limits import SIZE_OF_DERIVED

REMEMBERED_BYTES: Final = 64 * 2**20
"""Of requests with their replies, without what other objects share with them: some 20,000 small ones."""
REMEMBERED_EXPRESSIONS: Final = 4_096

REQUEST: Final = 3_000
PART: Final = 1_000
"""Bytes of a request, and of one of its device requests or devices."""


class CompileRequest(msgspec.Struct, frozen=True, tag="compile"):
    """Does the expression compile, and what does it read?"""

    expression: str
    gates: CelGates


class EvaluateRequest(msgspec.Struct, frozen=True, eq=False):
    """Does the device match?"""

    expression: str
    gates: CelGates
    view: DeviceView


class SearchRequest(msgspec.Struct, frozen=True, eq=False):
    """Which devices do the claims get on the node? `held` is what is held in its pools."""

    prepared: PreparedClaims
    view: NodeView
    held: Mapping[PoolID, PoolHoldings]


WorkerRequest = CompileRequest | EvaluateRequest | SearchRequest

RequestKind = Literal["compile", "evaluate", "search"]


def kind_of(request: WorkerRequest) -> RequestKind:
    """The kind, as metrics and logs count it."""
    if isinstance(request, CompileRequest):
        return "compile"
    return "evaluate" if isinstance(request, EvaluateRequest) else "search"


class CompileReply(msgspec.Struct, frozen=True, tag="compiled"):
    """A selector that workers have compiled, and evaluate. `problem`: why it fails on every device, as a whole text;
    `final` unless a worker was stopped at a limit.
    """

    reads: ReadSet = ReadSet()
    problem: str = ""
    final: bool = True


class EvaluateReply(msgspec.Struct, frozen=True, tag="evaluated"):
    """`attribute`: what the expression of a derived attribute computes. `problem`: why the evaluation failed."""

    matches: bool = False
    problem: str = ""
    attribute: DeviceAttribute | None = None


class SearchReply(msgspec.Struct, frozen=True, tag="searched"):
    """The devices that were taken, in order, each as (request, alternative, device), all counted in the order of the
    search. None of them: the node is unfit for `reason`, or `error` is fatal for the attempt. An error about a claim is
    the text that follows the claim's name, and `claim` the index of the claim.
    """

    steps: int
    taken: tuple[tuple[int, int, int], ...] = ()
    reason: str = ""
    error: str = ""
    claim: int | None = None


class Overrun(msgspec.Struct, frozen=True, tag="overrun"):
    """`text` continues a sentence about the request: "needs more than 2 s"."""

    limit: Literal["time", "memory", "crash", "start"]
    text: str


WorkerReply = CompileReply | EvaluateReply | SearchReply | Overrun


class TimedReply(msgspec.Struct, frozen=True):
    """A reply, and the seconds of CPU time that it took."""

    reply: WorkerReply
    seconds: float


class Answered(msgspec.Struct, frozen=True, eq=False):
    request: WorkerRequest
    reply: WorkerReply


def size_of(request: WorkerRequest) -> int:
    """Bytes that are kept for the request, about, when its claims and slices are gone."""
    if not isinstance(request, SearchRequest):
        return REQUEST + len(request.expression)
    asks = [ask for found in request.prepared.requests for ask in found.asks]
    texts = sum(len(text) for ask in asks for text in ask.filter.selectors)
    return REQUEST + texts + PART * (len(asks) + len(request.view.devices))


def _size(known: Answered) -> int:
    derives = isinstance(known.reply, EvaluateReply) and known.reply.attribute is not None
    return size_of(known.request) + (2 * SIZE_OF_DERIVED if derives else 0)


class WorkerReplies:
    """What workers have replied, by the key of the request, and which requests are `open`: sent and not answered.

    `too_large` are keys of expressions of which one evaluation was too large: workers evaluate them.
    """

    def __init__(self, most: int = REMEMBERED_BYTES) -> None:
        self.open: set[Hashable] = set()
        self.too_large: LRUCache[Hashable, bool] = LRUCache(REMEMBERED_EXPRESSIONS)
        self._known: LRUCache[Hashable, Answered] = LRUCache(most, lambda known: min(most, _size(known)))

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable) -> Answered | None:
        found: Answered | None = self._known.get(key)
        return found

    def learn(self, key: Hashable, request: WorkerRequest, reply: WorkerReply) -> None:
        self.open.discard(key)
        self._known[key] = Answered(request, reply)
