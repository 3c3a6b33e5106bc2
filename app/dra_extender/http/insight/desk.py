"""Where questions are answered: what all of them have in common.

Promises: the answers come from the state that the verbs decide on, and asking changes no decision. Long answers are
made in small steps, one at a time, so that the verbs go on meanwhile, in clusters of thousands of nodes as well. Those
that take longest have a queue of their own, which is short: who finds it full is told to ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, Protocol, TypeVar

import msgspec
from fastapi import HTTPException, Query, Response
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from dra_extender.api.core import Pod
from dra_extender.http.reports import Problem, Unanswered
from dra_extender.http.schemas import schema_of
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.slices import Slices, run
from dra_extender.scheduling.view import View

MOST_WAITING: Final = 8
"""Questions that wait for the long one that is being answered."""

T = TypeVar("T")


class Insight(Protocol):
    """The service as seen from here."""

    def unknown(self) -> str:
        """Why nothing can be said about the cluster yet; empty when it can."""

    @property
    def view(self) -> View:
        """What questions may read. Asked for only when something is known."""

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        """On what terms the pod may preempt others; None: preemption is off."""

    def problems(self) -> Slices[Sequence[Problem]]:
        """What is wrong, and what to do about each, in small steps. Asked for only when something is known."""


UNANSWERED: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": Unanswered, "description": "a parameter is missing or malformed"},
    404: {"model": Unanswered, "description": "no such pod, node, driver or class"},
    "4XX": {"model": Unanswered, "description": "any other mistake in the question"},
}


def answering(kind: type[msgspec.Struct], what: str) -> dict[int | str, dict[str, Any]]:
    """Responses of a page whose answer is this struct."""
    schema = {"application/json": {"schema": schema_of(kind)}}
    return UNANSWERED | {200: {"description": what, "content": schema}}


class Desk:
    """One per service; methods raise HTTPException for what becomes another answer than 200."""

    def __init__(self, insight: Insight) -> None:
        self._insight = insight
        self._turn = asyncio.Lock()
        self._long_turn = asyncio.Lock()
        self._waiting = 0

    @property
    def insight(self) -> Insight:
        """The service, which knows the cluster."""
        unknown = self._insight.unknown()
        if unknown:
            raise HTTPException(503, f"dra-extender: {unknown}")
        return self._insight

    @property
    def view(self) -> View:
        """What questions may read."""
        return self.insight.view

    async def answer(self, steps: Slices[T]) -> T:
        """What the steps return at the end, when it is their turn; between any two of them everything else gets its."""
        async with self._turn:
            return await run(steps)

    async def answer_at_length(self, steps: Slices[T]) -> T:
        """As `answer`, for steps that may be thousands: other questions do not wait for them."""
        async with self._queue():
            return await run(steps)

    @asynccontextmanager
    async def _queue(self) -> AsyncIterator[None]:
        if self._waiting >= MOST_WAITING:
            detail = f"{self._waiting} questions of this kind wait for an answer: ask again in a few seconds"
            raise HTTPException(429, detail, {"Retry-After": "2"})
        self._waiting += 1
        try:
            async with self._long_turn:
                yield
        finally:
            self._waiting -= 1


def encoded(answer: msgspec.Struct) -> Response:
    """The answer as JSON."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


# --- parameters -------------------------------------------------------------------------------------------------------


def _pod_key(given: str) -> str:
    """Raises what becomes a 400."""
    namespace, slash, name = given.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise PydanticCustomError("pod_key", "must be NAMESPACE/NAME")
    return given


PodKey = Annotated[
    str, AfterValidator(_pod_key), Query(description="NAMESPACE/NAME", json_schema_extra={"pattern": "^[^/]+/[^/]+$"})
]
NodeNames = Annotated[list[str] | None, Query(description="only this node; may be repeated")]


def find_pod(view: View, key: str) -> Pod:
    """Raises HTTPException."""
    namespace, _, name = key.partition("/")
    pod = view.pods.named(namespace, name)
    if pod is None:
        raise HTTPException(404, f"pod {key} is not known: it does not exist, or has finished")
    return pod


def find_nodes(view: View, names: Sequence[str] | None) -> list[str]:
    """These nodes, or all, in the order of their names. Raises HTTPException."""
    nodes = view.cluster.nodes
    for name in names or ():
        if name not in nodes:
            raise HTTPException(404, f"node {name} is not known")
    return sorted(set(names) if names else nodes)
