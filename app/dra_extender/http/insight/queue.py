"""The query queue: how the service answers questions about the cluster.

Promises: answers come from the state that the verbs decide on, and a question changes no decision. Long answers are
computed in small steps, one at a time, so the verbs keep working, in clusters of thousands of nodes too. The longest
questions have a queue of their own with at most `QUEUED_QUESTIONS` entries; when it is full the response is 429.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final, Protocol, TypeVar

import msgspec
from fastapi import HTTPException, Query
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from dra_extender.api.core import Pod
from dra_extender.http.responses import ErrorBody, json_content
from dra_extender.insight.problems import ClusterProblem
from dra_extender.limits import QUEUED_QUESTIONS
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.turns import Turns, run
from dra_extender.scheduling.view import View

T = TypeVar("T")


class Insight(Protocol):
    """The service as questions see it. Everything but `unknown` may be used only while `unknown` returns ""."""

    def unknown(self) -> str:
        """Why the present state of the cluster is not known; empty when it is."""

    @property
    def view(self) -> View:
        """The state that questions read."""

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        """The terms on which the pod may preempt others; None when preemption is off."""

    def problems(self) -> Turns[Sequence[ClusterProblem]]:
        """All problems, in small steps."""


ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorBody, "description": "a parameter is missing or malformed"},
    404: {"model": ErrorBody, "description": "the pod, node, driver, device or class does not exist"},
    "4XX": {"model": ErrorBody, "description": "any other error of the request"},
}


def answering(kind: type[msgspec.Struct], what: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI responses of a route that answers with this struct."""
    return ERRORS | {200: json_content(kind, what)}


class QueryQueue:
    """One per service. Methods raise HTTPException for every response other than 200."""

    def __init__(self, insight: Insight) -> None:
        self._insight = insight
        self._turn = asyncio.Lock()
        self._long_turn = asyncio.Lock()
        self._waiting = 0

    @property
    def insight(self) -> Insight:
        """The service, once it knows the cluster."""
        unknown = self._insight.unknown()
        if unknown:
            raise HTTPException(503, f"dra-extender: {unknown}")
        return self._insight

    @property
    def view(self) -> View:
        """The state that questions read."""
        return self.insight.view

    async def answer(self, steps: Turns[T]) -> T:
        """Wait for the turn of this question, and run its steps; other work runs between two steps."""
        async with self._turn:
            return await run(steps)

    async def answer_at_length(self, steps: Turns[T]) -> T:
        """As `answer`, for thousands of steps: other questions do not wait for them."""
        if self._waiting >= QUEUED_QUESTIONS:
            detail = f"{self._waiting} questions of this kind are waiting already: try again in a few seconds"
            raise HTTPException(429, detail, {"Retry-After": "2"})
        self._waiting += 1
        try:
            async with self._long_turn:
                return await run(steps)
        finally:
            self._waiting -= 1


# --- parameters -------------------------------------------------------------------------------------------------------


def _pod_key(given: str) -> str:
    """Raises PydanticCustomError, which becomes a 400."""
    namespace, slash, name = given.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise PydanticCustomError("pod_key", "must be NAMESPACE/NAME")
    return given


PodKey = Annotated[
    str, AfterValidator(_pod_key), Query(description="NAMESPACE/NAME", json_schema_extra={"pattern": "^[^/]+/[^/]+$"})
]
NodeNames = Annotated[list[str] | None, Query(description="only this node; may be repeated")]
