"""Errors outside every plan: bugs that a part of the program outlives.

A loop, a verb or the handling of one watched object goes on after any error. Where it does, it reports the error here.
By default a report raises the error again, so that no test passes over a bug. A process that serves people calls
`tolerate` at its start; from then on every report is counted by place and handed on, to a log for example. Kubernetes
divides this in the same way (k8s.io/apimachinery 1.36, util/runtime: HandleError, ReallyCrash).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

Place = Literal[
    "selector", "bind", "verb", "chores", "inventory", "object", "watch", "credentials", "metrics", "controller",
    "apiserver", "workers", "diagnosis", "feed",
]  # fmt: skip

PLACES: Final[dict[Place, str]] = {
    "selector": "a CEL selector; the interpreter answers where the compiled form cannot",
    "bind": "a bind; what it had written was taken back",
    "verb": "an extender verb; kube-scheduler got an error",
    "chores": "clearing unused allocations",
    "inventory": "the first look at all nodes",
    "object": "taking in one watched object, which counts as undecodable",
    "watch": "listing and watching one kind, which starts again",
    "credentials": "reading credentials again; the old ones stay in use",
    "metrics": "a metric or label that is not declared",
    "controller": "a controller of the embedded cluster",
    "apiserver": "a request to the embedded API server",
    "workers": "asking a worker process; the question is asked anew when a pod needs the answer",
    "diagnosis": "saying why a pod waits; it is said again after its next refusal",
    "feed": "finding out what the page shows; it is found out again a moment later",
}
"""Where errors may be outlived, and what becomes of the work."""

Handler = Callable[[Place, Exception, dict[str, object]], None]
"""Gets the place, the error and what is known about the object concerned. Must not raise."""

_counts: Final[Counter[Place]] = Counter()
_handler: Handler | None = None


def unexpected(place: Place, problem: Exception, **about: object) -> None:
    """Report an error that the caller is going to outlive. Raises it unless the process tolerates such errors."""
    _counts[place] += 1
    if _handler is None:
        raise problem
    _handler(place, problem, about)


def tolerate(handler: Handler | None) -> Handler | None:
    """Hand reports to this from now on; None: raise them. Returns what had been set before."""
    global _handler
    before, _handler = _handler, handler
    return before


def counts() -> dict[Place, int]:
    """How many reports each place has made since the start of the process, places without any included."""
    return {place: _counts[place] for place in PLACES}
