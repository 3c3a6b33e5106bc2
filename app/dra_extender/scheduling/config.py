"""How long things may take and how many are remembered. Seconds throughout."""

from __future__ import annotations

from typing import Literal

import msgspec

PreemptionMode = Literal["off", "advise", "on"]
NominateMode = Literal["never", "auto", "always"]


class SchedulingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults fit the scheduler configurations shipped with this project (bind: httpTimeout 30 s)."""

    bind_seconds: float = 24.0
    """A bind call is answered within this time; about four fifths of the scheduler's httpTimeout for bind."""

    forward_share: float = 0.8
    """The part of `bind_seconds` in which an attempt may start writes; the rest is for undoing them."""

    watch_seconds: float = 5.0
    """How long a bind waits for its own write to come back on the watch."""

    binding_seconds: float = 600.0
    """bindingTimeout of kube-scheduler: how long devices may take to become ready, counted from their allocation."""

    replay_seconds: float = 600.0
    """How long the answer to a successful bind is kept for repetitions."""

    tentative_seconds: float = 6.0
    """How long the plan made at filter is taken into account for other pods; about twice the filter's httpTimeout."""

    requeue_seconds: float = 1.0
    """At least this long passes between two requeues."""

    reading_seconds: float = 1.0
    """How long a filter may wait for claims it has to read; the scheduler does nothing else meanwhile."""

    missing_seconds: float = 5.0
    """A claim that a live read did not find, or not in time, is not looked for again within this time: the watch will
    bring it.
    """

    deallocate_seconds: float = 1.0
    """How long after a refusal on all nodes an unused allocation that stood in the way is cleared."""

    sweep_seconds: float = 30.0
    """An allocation that nobody uses and no pod was offered a node with is cleared after this time; 0 = never."""

    doubt_seconds: float = 60.0
    """After this time no request is under way any more: the API server ends each after a minute (--request-timeout)."""

    @property
    def settled_seconds(self) -> float:
        """When nobody has changed a reservation for so long, no bind can rely on it any more, not even one of another
        replica: it sends its last request within `bind_seconds`.
        """
        return self.bind_seconds + self.doubt_seconds

    write_attempts: int = 5
    """How often a write is tried in the face of conflicts."""

    retry_seconds: float = 0.05
    """The first pause before something is repeated; it doubles up to `retry_most_seconds`."""

    retry_most_seconds: float = 5.0

    again_seconds: float = 5.0
    """What the API server has refused for good, as far as one can see, is tried again after this time, then after
    twice as much, up to `again_most_seconds`.
    """

    again_most_seconds: float = 60.0

    remembered_pods: int = 20_000
    """How many refused pods, answers and finished binds are kept."""

    offered_percent: int = 100
    """How many of the nodes asked about are offered, at most, when they fit: by default all of them. 0 = as many as
    kube-scheduler looks for when nobody tells it otherwise. Never fewer than 100 nodes.
    """

    deallocate: bool = True
    """Clear allocations that stand in the way of a pod, as kube-scheduler's PostFilter does. Needs
    percentageOfNodesToScore: 100, without which a refusal on all nodes is not what it seems.
    """

    scheduler_names: frozenset[str] = frozenset()
    """Schedulers that call us. Allocations of the pods of others are never cleared, and pods of others are not bound;
    empty = not known.
    """

    turn_work: int = 10_000
    """Units of work (about a microsecond each) after which a call lets others go first."""

    question_work: int = 20_000
    """Units of work for one selector on one device, one compilation, or one search on a node: what needs more is left
    to a worker.
    """

    call_work: int = 1_000_000
    """Units of work of one call, all turns together: what is not decided by then is refused, and the pod woken to go
    on.
    """

    worker_claim_seconds: float = 10.0
    """CPU time of workers for claims of one content."""

    worker_forgiving_seconds: float = 600.0
    """After this time claims that were given up may ask workers again."""

    worker_pause_seconds: float = 30.0
    """When no worker process can be started, none is asked for so long."""

    preemption: PreemptionMode = "off"
    """Whether pods that are refused for want of devices take those of pods with lower priority: `advise` says what
    would be done, `on` does it.
    """

    preemption_margin_seconds: float = 30.0
    """How long after the grace period of its slowest victim devices are held for a pod, and after its last victim is
    gone.
    """

    preemption_lost_seconds: float = 5.0
    """A pod that does not fit on its nominated node so long after its victims are gone has lost its place there."""

    nominate: NominateMode = "auto"
    """Whether pods are nominated ahead of kube-scheduler's queue for the node they fit on; `auto`: in clusters of
    `nominate_from_nodes` nodes and more.
    """

    nominate_from_nodes: int = 1_000

    nominate_preferring: bool = False
    """Nominate also pods that prefer some nodes that they fit on: what they prefer has no say then."""

    nominated_seconds: float = 10.0
    """A pod that is nominated ahead of the queue and not bound loses its nomination when no scheduler has asked about
    any pod for so long,
    """

    nominated_most_seconds: float = 60.0
    """and after this time in any case."""

    def may_clear_for(self, scheduler_name: str) -> bool:
        """Whether allocations of pods of this scheduler are ours to clear. Of all pods, when ours are not known."""
        return not self.scheduler_names or scheduler_name in self.scheduler_names
