"""The counters and timers of scheduling: name, label, and the meaning of each value, in one place.

The values of a label are a Literal type, so mypy rejects any other value where code counts. `dra_extender.http.metrics`
makes the metrics and their reference in docs/metrics.md from this module.
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

L = TypeVar("L", bound=str)


class LabelledCounter(msgspec.Struct, Generic[L], frozen=True):
    """A counter with one label. `values` has all values of the label with their meaning ("" where that is plain)."""

    name: str
    help: str
    label: str
    values: dict[L, str]


FilterResult = Literal["untouched", "fits", "refused", "error"]

FILTER_RESULTS: Final = LabelledCounter[FilterResult](
    "filter_results_total",
    "answers of filter",
    "result",
    {"untouched": "the pod uses no devices", "fits": "", "refused": "no node fits", "error": ""},
)

BindResult = Literal[
    "bound",
    "replayed",
    "joined",
    "refused",
    "conflict",
    "failed",
    "waiting",
    "cancelled",
    "late",
    "unfinished",
    "broken",
]

BIND_RESULTS: Final = LabelledCounter[BindResult](
    "bind_results_total",
    "answers of bind",
    "result",
    {
        "bound": "",
        "replayed": "bound before",
        "joined": "got the answer of a bind in progress",
        "refused": "the devices cannot be allocated, or the pod is of another scheduler",
        "conflict": "another writer was first",
        "failed": "the API server or a device driver refused",
        "waiting": "for devices to become ready",
        "cancelled": "the pod is gone, or another replica leads",
        "late": "out of time",
        "unfinished": "failed, and its writes could not be rolled back at once",
        "broken": "a bug",
    },
)

CONFLICTS: Final = LabelledCounter[Literal["claim_changed", "device_taken", "pod_bound"]](
    "conflicts_total",
    "binds in which another writer was first",
    "reason",
    {
        "claim_changed": "the claim has a newer resourceVersion",
        "device_taken": "an earlier write allocated the device",
        "pod_bound": "the pod is bound already",
    },
)

UNANSWERED_WRITES: Final = LabelledCounter[Literal["claim", "claim_creation", "binding"]](
    "unanswered_writes_total",
    "writes to the API server that were not answered",
    "write",
    {"claim": "finalizer or status", "claim_creation": "", "binding": ""},
)

UnresolvedReason = Literal["refused", "undecodable", "unanswered"]

UNDOS_PUT_OFF: Final = LabelledCounter[UnresolvedReason](
    "undos_put_off_total",
    "failed binds that could not be rolled back; the service retries, and the devices stay held",
    "reason",
    {
        "refused": "by the API server, because a permission is missing for example",
        "undecodable": "a reply of the API server",
        "unanswered": "the API server could not be reached for long",
    },
)

REQUEUES: Final = LabelledCounter[Literal["triggered", "failed"]](
    "requeues_total", "attempts to make kube-scheduler retry refused pods", "result", {"triggered": "", "failed": ""}
)

ClearReason = Literal["in_the_way", "idle", "abandoned", "leftover", "preempted"]

_CLEAR_REASONS: Final[dict[ClearReason, str]] = {
    "in_the_way": "the claim's pod fits elsewhere",
    "idle": "no pod uses the claim",
    "abandoned": "the claim's pod was not bound",
    "leftover": "a claim for extended resources that no pod uses",
    "preempted": "the pods that used the claim were evicted for another one",
}

ALLOCATIONS_CLEARED: Final = LabelledCounter[ClearReason](
    "allocations_cleared_total", "unused allocations cleared", "reason", _CLEAR_REASONS
)

CLEAR_ERRORS: Final = LabelledCounter[ClearReason](
    "allocation_clear_errors_total", "unused allocations that could not be cleared", "reason", _CLEAR_REASONS
)

PreemptionResult = Literal["nominated", "advised", "hopeless", "needless", "forbidden", "waiting", "failed"]

PREEMPTIONS: Final = LabelledCounter[PreemptionResult](
    "preemptions_total",
    "pods refused for want of devices for which preemption was evaluated",
    "result",
    {
        "nominated": "victims are evicted for the pod",
        "advised": "victims would be evicted with --preemption on",
        "hopeless": "evicting pods of lower priority does not help, or the pod must not preempt",
        "needless": "the pod fits now, or will fit once terminating pods are gone",
        "forbidden": "a PodDisruptionBudget protects the victims",
        "waiting": "the evaluation is not complete: a worker has not answered yet, or it needs another call",
        "failed": "the API server refused a request",
    },
)

NominationEnd = Literal["bound", "elsewhere", "gone", "fits", "forbidden", "lost", "expired", "stuck"]

NOMINATIONS_ENDED: Final = LabelledCounter[NominationEnd](
    "preemption_nominations_ended_total",
    "nominations by preemption that have ended",
    "result",
    {
        "bound": "on the nominated node",
        "elsewhere": "bound on another node",
        "gone": "the pod was deleted",
        "fits": "the pod fits before all victims were evicted; the other victims stay",
        "forbidden": "a PodDisruptionBudget protects the victims after all",
        "lost": "a pod of higher priority, or of another allocator, has the devices",
        "expired": "the pod was not bound in time",
        "stuck": "a victim is not gone in time",
    },
)

VictimResult = Literal["evicted", "forbidden", "failed"]

PREEMPTION_VICTIMS: Final = LabelledCounter[VictimResult](
    "preemption_victims_total",
    "evictions of pods for pods of higher priority",
    "result",
    {"evicted": "", "forbidden": "by a PodDisruptionBudget, for now", "failed": "the API server refused"},
)

EarlyNominationResult = Literal["made", "failed", "bound", "missed"]

EARLY_NOMINATIONS: Final = LabelledCounter[EarlyNominationResult](
    "nominations_ahead_total",
    "early nominations: pods nominated ahead of the queue, and how the nominations ended",
    "result",
    {
        "made": "the pod has been nominated",
        "failed": "the API server refused, or the pod changed at the same time",
        "bound": "on the nominated node",
        "missed": "the pod was bound on another node or deleted, or has lost its nomination",
    },
)

WORKER_ANSWERS: Final = LabelledCounter[Literal["compile", "evaluate", "search", "time", "memory", "crash", "start"]](
    "worker_answers_total",
    "work that was too large for the event loop and was deferred to a worker process",
    "result",
    {
        "compile": "a selector is compiled, or does not compile",
        "evaluate": "a selector is evaluated on a device",
        "search": "devices are searched for on a node",
        "time": "stopped for its CPU time",
        "memory": "stopped for its memory",
        "crash": "the process ended",
        "start": "no process could be started",
    },
)

GangPlanResult = Literal["made", "bound", "expired", "lost", "gone"]

GANG_PLANS: Final = LabelledCounter[GangPlanResult](
    "gang_plans_total",
    "plans of gangs that were made, and how they ended",
    "result",
    {
        "made": "devices are held for the pods of the gang",
        "bound": "all pods of the plan are bound",
        "expired": "the next pod was not bound in time",
        "lost": "a pod does not get its place, and no other plan was found",
        "gone": "a pod of the plan was deleted or left its gang",
    },
)

OUTCOMES: Final[tuple[LabelledCounter[Any], ...]] = tuple(
    found for found in vars().copy().values() if isinstance(found, LabelledCounter)
)
"""All counters above, in the order of the documentation."""

Step = Literal["bind", "finalizer", "status", "own_write_on_watch", "binding"]

STEPS: Final[dict[Step, str]] = {
    "bind": "all of it",
    "finalizer": "",
    "status": "",
    "own_write_on_watch": "until the watch shows the status",
    "binding": "",
}
"""Parts of a bind that are timed."""


UNDIAGNOSED: Final = "not diagnosed"
"""Label value for a pending pod until the rule that refuses it is known."""


class Reading(msgspec.Struct, frozen=True):
    """A value of a metric that is read at a scrape. `labels`: the values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()
