"""The records of scheduling besides the cluster: unused claims, plans, nominations, and binds and releases in progress.

Promises: each process has one of each; a record only stores. `EventHandler` writes the records, and questions read them
through `View`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.decisions import Decisions
from dra_extender.devices.cluster import Cluster
from dra_extender.placement.learner import PlacementLearner
from dra_extender.placement.placement import Placement
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.eventhandler import EventHandler
from dra_extender.scheduling.extended import ResourceNames
from dra_extender.scheduling.idle import IdleAllocations
from dra_extender.scheduling.nomination.nominations import Nominations
from dra_extender.scheduling.ports import Clock
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.setaside import SetAside
from dra_extender.scheduling.signals import Signals
from dra_extender.scheduling.tentativeplans import TentativePlans
from dra_extender.scheduling.unseen import Unseen
from dra_extender.scheduling.view import View


class Records:
    """`binding` and `clearing` are what the view shows under these names; the binder and the clearer write to them."""

    def __init__(self, cluster: Cluster, config: SchedulingConfig, clock: Clock) -> None:
        self._cluster, self._config, self._clock = cluster, config, clock
        self.signals = Signals()
        self.idle = IdleAllocations(clock, config)
        self.unseen = Unseen(clock)
        self.resources = ResourceNames(cluster.classes, clock, config)
        self.tentative_plans = TentativePlans(config.tentative_seconds, clock)
        self.nominations = Nominations()
        self.set_aside = SetAside(clock)
        self.binding: dict[str, str] = {}
        self.clearing: set[str] = set()

    def view(
        self, decisions: Decisions, placement: Placement | None, budgets: Callable[[], Iterator[WorkBudget]]
    ) -> View:
        """Read-only, for questions."""
        return View(
            cluster=self._cluster,
            decisions=decisions,
            pods=self._cluster.pods,
            clock=self._clock,
            config=self._config,
            resources=self.resources,
            binding=MappingProxyType(self.binding),
            clearing=self.clearing,
            is_abandoned=self.idle.is_abandoned,
            budgets=budgets,
            placement=placement,
            kept=self.nominations.kept_from,
            set_aside=self.set_aside.reason,
            preempted=self.nominations.promises,
        )

    def event_handler(self, requeue: RequeueTrigger, placement: PlacementLearner | None) -> EventHandler:
        """For events and replies."""
        return EventHandler(
            cluster=self._cluster,
            requeue=requeue,
            signals=self.signals,
            idle=self.idle,
            unseen=self.unseen,
            resources=self.resources,
            placement=placement,
        )
