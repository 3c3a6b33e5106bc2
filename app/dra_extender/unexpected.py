"""Unexpected errors: bugs after which the process continues.

A loop, a verb or the handling of one watched object continues after any error, and reports the error here. By default
a report raises the error again, so no test passes over a bug. A process that serves calls `tolerate` at its start; from
then on every report is counted by place and passed to a handler, for example to a log. Kubernetes does the same
(k8s.io/apimachinery 1.36, util/runtime: HandleError, ReallyCrash).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar

T = TypeVar("T")

ErrorPlace = Literal[
    "bind", "verb", "chores", "inventory", "object", "watch", "credentials", "metrics", "controller",
    "apiserver", "workers", "diagnosis", "feed", "shadow", "expander", "provisioning",
]  # fmt: skip

PLACES: Final[dict[ErrorPlace, str]] = {
    "bind": "a bind; its writes were rolled back",
    "verb": "an extender verb; kube-scheduler got an error",
    "chores": "a controller, as for releases, preemption and gangs; it continues",
    "inventory": "the first evaluation of all nodes",
    "object": "applying one watched object, which counts as undecodable",
    "watch": "listing and watching one kind; both start again",
    "credentials": "reading credentials again; the old ones stay in use",
    "metrics": "a metric or label that is not declared",
    "controller": "a controller of the embedded cluster",
    "apiserver": "a request to the embedded API server",
    "workers": "a call of a worker process; it is repeated when a pod needs the result",
    "diagnosis": "diagnosing a pending pod; repeated after its next refusal",
    "feed": "updating the page; repeated at the next update",
    "shadow": "recording an event in shadow mode; the record may differ from the cluster",
    "expander": "a call of the expander; cluster-autoscaler keeps all node groups",
    "provisioning": "comparing ProvisioningRequests with gangs; repeated after a pause",
}
"""Where the process continues after an unexpected error, and what happens to the work."""

Handler = Callable[[ErrorPlace, Exception, dict[str, object]], None]
"""Called with place, error, and fields about the object concerned. Must not raise."""

_counts: Final[Counter[ErrorPlace]] = Counter()
_handler: Handler | None = None


def unexpected(place: ErrorPlace, problem: Exception, **about: object) -> None:
    """Report an error after which the caller continues. Raises the error unless the process tolerates it."""
    _counts[place] += 1
    if _handler is None:
        raise problem
    _handler(place, problem, about)


async def continuing(place: ErrorPlace, work: Awaitable[T]) -> T | None:
    """The result of the work; None after an unexpected error, which is reported."""
    try:
        return await work
    except Exception as problem:
        unexpected(place, problem)
        return None


def tolerate(handler: Handler | None) -> Handler | None:
    """Pass reports to this handler; None: raise them. Returns the previous handler."""
    global _handler
    before, _handler = _handler, handler
    return before


def counts() -> dict[ErrorPlace, int]:
    """Number of reports since the start of the process, for every place."""
    return {place: _counts[place] for place in PLACES}
