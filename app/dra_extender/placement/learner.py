"""What placement learns: the load of nodes, and the workload, with the weights that follow from it.

Promises: only the learner writes what `Placement` reads. Each new pod counts once. After a restart, each running pod
counts once. Weights follow the workload and the cluster with a delay of a few pods: each pod pays for a fixed amount of
work, and the old weights are in force until the new ones are ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet

from cachetools import LRUCache

from dra_extender.allocation.budget import TurnSpent, WorkBudget
from dra_extender.allocation.requests import DeviceFilter, Filters
from dra_extender.api.core import Node, Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.cluster import Cluster
from dra_extender.placement.freestates import FreeStates
from dra_extender.placement.partitiongroups import TooCostly
from dra_extender.placement.placement import FIRST_FIT, Placement
from dra_extender.placement.podshape import Loads
from dra_extender.placement.policies import Fragmentation, PlacementStrategy, Scarcity, Workload, plain

REMEMBERED_PODS: Final = 50_000
EAGER: Final = 64
"""Weights are renewed for each of the first pods,"""
INTERVAL: Final = 400
"""and then once per this many pods."""
PORTION: Final = 400_000
"""Work for one pod: shapes compared with states of nodes, some 40 milliseconds."""


class PlacementLearner:
    """One per cluster. The caller reports all pods and nodes (`put`, `drop`), and new pods (`learn`)."""

    def __init__(
        self, cluster: Cluster, strategy: PlacementStrategy = FIRST_FIT, filters: Filters | None = None
    ) -> None:
        self._loads = Loads()
        self.free_states = free = FreeStates(cluster.inventory.nodes, cluster.ledger, self._loads, cluster.features)
        self.workload, self.fragmentation = Workload(), Fragmentation()
        self.placement = Placement(cluster, strategy, free, self.fragmentation, filters or Filters())
        """For questions."""
        self._weighed_pods = -1
        """The pods that the weights in force, or under way, know; -1: weigh at once."""
        self._weighed_epoch = -1
        self._under_way: Scarcity | None = None
        self._learned: LRUCache[str, bool] = LRUCache(REMEMBERED_PODS)
        self._forgotten: WeakSet[DeviceFilter] = WeakSet()
        self.learns = strategy.policy == Fragmentation.name
        """True when some pod's policy uses the workload of pods that came."""

    def put(self, obj: Pod | Node) -> None:
        """A version of a pod or a node."""
        if isinstance(obj, Pod):
            self._loads.put(obj)
        else:
            self.free_states.node_seen(obj)

    def drop(self, pod_uid: str) -> None:
        self._loads.drop(pod_uid)

    def learn(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """A pod is to be placed; `claims` are those to be allocated. A pod that comes again is not counted again."""
        self.learns = self.learns or self.placement.policy_of(pod, claims) == Fragmentation.name
        if self.learns and pod.metadata.uid not in self._learned:
            with self._turn() as budget:
                shape = self.placement.shape(pod, claims, budget)
                if shape is not None:
                    self._learned[pod.metadata.uid] = True
                    self.workload.count(shape)
        self.refresh()

    def refresh(self) -> None:
        """Let the weights follow the workload and the cluster, by one portion of work."""
        if self.learns:
            with self._turn() as budget:
                self._advance(budget)

    @contextmanager
    def _turn(self) -> Iterator[WorkBudget]:
        """A turn that may end early. A filter whose selectors cost too much is left out from then on."""
        try:
            yield self.placement.budget()
        except TurnSpent:
            pass
        except TooCostly as problem:
            self.placement.costly.add(problem.filter)
            self._forgotten.discard(problem.filter)
        for filter in self.placement.costly - self._forgotten:
            self._forgotten.add(filter)
            if self.workload.forget(filter):
                self._start_over()

    def _start_over(self) -> None:
        """Weigh the present workload, from the start."""
        self._weighed_pods, self._under_way = -1, None

    def _advance(self, budget: WorkBudget) -> None:
        """Weigh the shapes of the workload by the free states of the nodes: begin when it is time, and do a portion of
        what has begun. Raises TooCostly and TurnSpent.
        """
        self.free_states.catch_up(budget)
        if self._weighed_epoch != self.free_states.epoch:
            for shape, _ in self.workload.frequencies():
                self.placement.read(shape, budget)
            self._weighed_epoch = self.free_states.epoch
            self._start_over()
        if self._under_way is None and self._is_due():
            if not self.fragmentation.version:
                self.fragmentation.weigh(plain(self.workload.frequencies()))
            self._under_way = Scarcity(self.workload.frequencies(), self.free_states.by_state(budget))
            self._weighed_pods = self.workload.pods
        work = 0
        while self._under_way is not None and work < PORTION:
            try:
                step = self._under_way.step(budget)
            except TooCostly:
                self._start_over()
                raise
            work += step
            if not step:
                self.fragmentation.weigh(self._under_way.weights())
                self._under_way = None

    def _is_due(self) -> bool:
        pods, weighed = self.workload.pods, self._weighed_pods
        return weighed != pods and (weighed < 0 or pods <= EAGER or pods - weighed >= INTERVAL)
