"""What is remembered beside the cluster: of pods, of claims that nobody uses, and of what is kept for whom.

`Records` promises: one of each per process, none of which acts. What the watches bring reaches them through `intake`,
and questions read them through `view`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

from app.allocation.decisions import Decisions
from app.allocation.lane import Lane
from app.devices.cluster import Cluster
from app.placement.placement import Placement
from app.scheduling.disruptionbudgets import DisruptionBudgets
from app.scheduling.idle import IdleAllocations
from app.scheduling.intake import Intake
from app.scheduling.limits import Limits
from app.scheduling.nomination.nominations import Nominations
from app.scheduling.pods import Pods
from app.scheduling.ports import Clock
from app.scheduling.reservations import Reservations
from app.scheduling.resourcenames import ResourceNames
from app.scheduling.signals import Signals
from app.scheduling.unseen import Unseen
from app.scheduling.view import View
from app.scheduling.wakeups import Wakeups


class Records:
    """`binding` and `clearing` are what the view shows under these names; who binds and who clears writes to them."""

    def __init__(self, cluster: Cluster, limits: Limits, clock: Clock) -> None:
        self._cluster, self._limits, self._clock = cluster, limits, clock
        self.pods = Pods()
        self.signals = Signals()
        self.idle = IdleAllocations(clock, limits)
        self.unseen = Unseen(clock)
        self.resources = ResourceNames(cluster.classes, clock, limits)
        self.budgets = DisruptionBudgets()
        self.reservations = Reservations(limits.tentative_seconds, clock)
        self.nominations = Nominations()
        self.binding: dict[str, str] = {}
        self.clearing: set[str] = set()

    def view(self, decisions: Decisions, placement: Placement | None, lanes: Callable[[], Iterator[Lane]]) -> View:
        """For questions, which cannot change anything."""
        return View(
            cluster=self._cluster,
            decisions=decisions,
            pods=self.pods,
            clock=self._clock,
            limits=self._limits,
            resources=self.resources,
            binding=MappingProxyType(self.binding),
            clearing=self.clearing,
            settled=self.idle.is_settled,
            lanes=lanes,
            placement=placement,
            kept=self.nominations.kept_from,
            promised=self.nominations.promises,
        )

    def intake(self, wakeups: Wakeups, placement: Placement | None) -> Intake:
        """For what the watches bring."""
        return Intake(
            cluster=self._cluster,
            pods=self.pods,
            wakeups=wakeups,
            signals=self.signals,
            idle=self.idle,
            unseen=self.unseen,
            resources=self.resources,
            budgets=self.budgets,
            placement=placement,
        )
