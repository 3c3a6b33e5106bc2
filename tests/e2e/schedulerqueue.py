"""What kube-scheduler tells of its own queue: where pods rest, and what brought them back."""

from __future__ import annotations

from tests.e2e.components import metric
from tests.e2e.ground import SCHEDULER, Ground


class Queue:
    """The queue of the secondary scheduler."""

    def __init__(self, ground: Ground) -> None:
        self._plane = ground.plane

    def _page(self) -> str:
        return self._plane.metrics(SCHEDULER)

    def rests(self, pods: int) -> bool:
        """True when this number of pods exists and all of them are left alone: only an event, or five minutes, bring
        them back to where they are tried again.
        """
        page = self._page()
        names = ("active", "backoff", "gated", "unschedulable")
        return [metric(page, "scheduler_pending_pods", queue=name) for name in names] == [0, 0, 0, pods]

    def flushed(self) -> int:
        """How often a pod was tried again only because those five minutes were over: nothing had woken it."""
        page, name = self._page(), "scheduler_queue_incoming_pods_total"
        # A scheduler that has seen no pod yet does not tell of this.
        return int(metric(page, name, event="UnschedulableTimeout")) if f"# TYPE {name} " in page else 0
