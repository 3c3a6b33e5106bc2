"""The configuration of scheduling with its defaults. Times are in seconds."""

from __future__ import annotations

from typing import Literal

import msgspec

from dra_extender.scheduling.reader import ADMINISTRATOR, Reader

PreemptionMode = Literal["off", "advise", "on"]
NominateMode = Literal["never", "auto", "always"]
EventNames = Literal["own", "all"]


class SchedulingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults fit the scheduler configurations shipped with this project (bind: httpTimeout 30 s)."""

    bind_timeout: float = 24.0
    """A bind call is answered within this time: about four fifths of the scheduler's httpTimeout for bind."""

    write_share: float = 0.8
    """The part of `bind_timeout` in which an attempt may start writes; the rest is for the rollback."""

    watch_seconds: float = 5.0
    """How long a bind waits for its own write to come back on the watch."""

    binding_conditions_timeout: float = 600.0
    """bindingTimeout of kube-scheduler: how long devices may take to become ready, counted from their allocation."""

    replay_seconds: float = 30.0
    """How long the answer to a successful bind is kept for repetitions: while the watch may not show the binding yet.
    After that a call binds again, in case a restore of the API server has lost the binding.
    """

    tentative_ttl: float = 6.0
    """How long the plan made at filter counts for other pods: about twice the filter's httpTimeout."""

    requeue_interval: float = 1.0
    """At least this long passes between two requeues."""

    reading_seconds: float = 1.0
    """How long a filter may wait for claims it has to read. kube-scheduler schedules no other pod in this time."""

    missing_seconds: float = 5.0
    """A claim that a read did not find, or not in time, is not read again within this time: the watch will show it."""

    deallocate_seconds: float = 1.0
    """How long after a refusal on all nodes an unused allocation that caused it is cleared."""

    sweep_after: float = 30.0
    """An allocation that no pod uses, and that no pod was offered a node for, is cleared after this time; 0 = never."""

    doubt_seconds: float = 60.0
    """After this time a request can no longer arrive: the API server ends each after a minute (--request-timeout)."""

    @property
    def abandoned_seconds(self) -> float:
        """No bind relies on a reservation that is unchanged for this time, not even a bind of another replica: binds
        send their last request within `bind_timeout`.
        """
        return self.bind_timeout + self.doubt_seconds

    write_attempts: int = 5
    """How often a write is tried when it conflicts."""

    retry_seconds: float = 0.05
    """The first pause before a request is repeated; it doubles up to `retry_most_seconds`."""

    retry_most_seconds: float = 5.0

    initial_backoff_seconds: float = 5.0
    """The pause before an operation that failed is tried again. It doubles up to `max_backoff_seconds`."""

    max_backoff_seconds: float = 60.0

    remembered_pods: int = 20_000
    """How many refused pods, answers and finished binds are kept."""

    offered_percent: int = 100
    """Percentage of the nodes asked about that filter offers at most. 0 = as many as kube-scheduler looks for by
    default. At least 100 nodes.
    """

    deallocate: bool = True
    """Clear unused allocations that keep a pod from all nodes, as kube-scheduler's PostFilter does. Needs
    percentageOfNodesToScore: 100: otherwise kube-scheduler does not ask about all nodes.
    """

    scheduler_names: frozenset[str] = frozenset()
    """The schedulers that call this service. Pods of other schedulers are not bound, and their claims are not cleared.
    Empty = unknown.
    """

    turn_work: int = 10_000
    """Units of work (about a microsecond each) in one turn of a call."""

    question_work: int = 20_000
    """Units of work for one selector on one device, one compilation, or one search on a node. More is deferred to a
    worker.
    """

    call_work: int = 1_000_000
    """Units of work of all turns of one call. Undecided nodes are refused then, and the pod is requeued."""

    worker_claim_seconds: float = 10.0
    """CPU time of workers for claims with equal content. Long calls for one namespace get three times as much."""

    worker_forgiving_seconds: float = 600.0
    """After this time work is deferred again for claims that have used up their time."""

    worker_pause_seconds: float = 30.0
    """How long no work is deferred after a worker process could not be started."""

    preemption: PreemptionMode = "off"
    """Whether a pod that lacks devices preempts pods with lower priority: `advise` only reports the victims."""

    preemption_margin_seconds: float = 30.0
    """How long devices are held for a preemptor after the grace period of its slowest victim, and after its last victim
    is gone.
    """

    preemption_most_grace_seconds: float = 600.0
    """A longer grace period of a victim counts as this one, as cluster-autoscaler's max-graceful-termination-sec: users
    choose grace periods.
    """

    def grace_seconds(self, period: int | None) -> float:
        """How long preemption waits for a pod with this grace period; None: the API server's default."""
        return min(30.0 if period is None else float(period), self.preemption_most_grace_seconds)

    preemption_lost_seconds: float = 5.0
    """A preemptor that still does not fit on its nominated node after this time loses its nomination."""

    event_names: EventNames = "own"
    """The names in events: those of the event's namespace, or all."""

    nominate: NominateMode = "auto"
    """Whether pods are nominated for the node they fit on before kube-scheduler tries them; `auto`: in clusters of at
    least `nominate_from_nodes` nodes.
    """

    nominate_from_nodes: int = 1_000

    nominated_seconds: float = 30.0
    """A pod that was nominated early and is not bound in this time loses its nomination."""

    def reader(self, namespace: str) -> Reader:
        """Who reads what is written to objects of this namespace."""
        return ADMINISTRATOR if self.event_names == "all" else Reader(namespace)

    def may_clear_for(self, scheduler_name: str) -> bool:
        """True when this service may clear allocations of this scheduler's pods; all pods if none is named."""
        return not self.scheduler_names or scheduler_name in self.scheduler_names
