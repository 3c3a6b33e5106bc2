"""Placement as the verbs ask for it: the node for a pod, and its devices there, by the policy that is in force.

Promises: a question has no effect on answers but through what was learned (`learn`, `put`, `drop`). The workload is
learned from the pods that come, each once, and known again after a restart from those that run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, cast

from cachetools import LRUCache

from dra_extender.allocation.budget import Deferred, TurnBudget, TurnSpent
from dra_extender.allocation.plan import Failure
from dra_extender.allocation.requests import DeviceFilter, Filters, PreparedClaims, class_names, prepare
from dra_extender.allocation.selection import suitability
from dra_extender.allocation.signatures import ClaimSignatures, reads_of
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.core import Node, Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.models import DeviceModel
from dra_extender.placement.account import Account
from dra_extender.placement.devices import DeviceChooser
from dra_extender.placement.expected import NOBODY, Expected
from dra_extender.placement.load import Load, Loads, load_of
from dra_extender.placement.podshape import PodShape, filters_of, shape_of
from dra_extender.placement.policies import Fragmentation, Pack, Policy, Spread
from dra_extender.placement.ranking import Ranking
from dra_extender.placement.standing import Standing
from dra_extender.placement.strategy import Strategy
from dra_extender.placement.units import TooCostly
from dra_extender.placement.weighing import Weighing
from dra_extender.placement.workload import Workload

_FIRST_FIT: Final = Strategy()

TURN: Final = 10_000
"""Units of work, about a microsecond each, that evaluating selectors for one question may take,"""
CEILING: Final = 2_000
"""and one selector on one device."""

REMEMBERED_PODS: Final = 50_000
REMEMBERED_SHAPES: Final = 4_096


class Placement:
    """One per cluster. Feed it all pods and nodes (`put`, `drop`), and the pods that come (`learn`)."""

    def __init__(
        self,
        cluster: Cluster,
        strategy: Strategy = _FIRST_FIT,
        expected: Expected = NOBODY,
        filters: Filters | None = None,
    ) -> None:
        self._filters = filters if filters is not None else Filters()
        self._signatures = ClaimSignatures()
        self.strategy = strategy
        self._expected = expected
        self._expected_shapes: dict[int, PodShape] = {}
        self._awaited: list[int] = []
        """Which of the expected pods are to be looked at: they ask for classes that are new."""
        self._cluster = cluster
        self._classes = -1
        self._counted: list[tuple[DeviceFilter, float]] = []
        self.loads = Loads()
        nodes, ledger = cluster.inventory.nodes, cluster.ledger
        self.standing = Standing(nodes, ledger, self.loads, cluster.features, self._weight)
        self.workload = Workload()
        self.fragmentation = Fragmentation()
        policies: tuple[Policy, ...] = (Pack(), Spread(), self.fragmentation)
        self._weighing = Weighing(self.workload, self.standing, self.fragmentation)
        self._rankings: dict[str, Ranking] = {item.name: Ranking(item, self.standing) for item in policies}
        self._learned: LRUCache[str, bool] = LRUCache(REMEMBERED_PODS)
        self._shapes: LRUCache[object, PodShape] = LRUCache(REMEMBERED_SHAPES)
        self._known_reads: LRUCache[DeviceFilter, bool] = LRUCache(REMEMBERED_SHAPES)
        """Those whose reads are known."""
        self._costly: LRUCache[DeviceFilter, bool] = LRUCache(REMEMBERED_SHAPES)
        self._answers = WorkerReplies()
        self.learns = strategy.policy == Fragmentation.name and not expected.only
        """True when it is of use to learn: some pod's policy asks for the workload."""
        self._forced = ""

    def use(self, policy: Policy) -> None:
        """From now on this policy is in force, which may be one that the service does not have."""
        self._rankings[policy.name] = Ranking(policy, self.standing)
        self._forced = policy.name

    @property
    def evaluations(self) -> int:
        """How often states of a node were compared."""
        return sum(ranking.evaluations for ranking in self._rankings.values())

    # --- what is learned --------------------------------------------------------------------------------------------

    def put(self, obj: Pod | Node) -> None:
        """A version of a pod or a node."""
        if isinstance(obj, Pod):
            self.loads.put(obj)
        else:
            self.standing.node_seen(obj)

    def drop(self, pod_uid: str) -> None:
        """The pod is gone."""
        self.loads.drop(pod_uid)

    def learn(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """A pod wants a place; `claims` are those to be allocated. A pod that comes again is not counted again."""
        if pod.metadata.uid in self._learned or self._expected.only:
            return
        self.learns = self.learns or self.policy_of(pod, claims) == Fragmentation.name
        if not self.learns:
            return
        with self._turn():
            shape = self.shape(pod, claims)
            if shape is not None:
                self._learned[pod.metadata.uid] = True
                self.workload.count(shape)

    # --- questions --------------------------------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The work of one question, which ends early when selectors cost too much. A filter whose selectors alone cost
        too much is left out from then on: who has it gets no policy, and nobody else loses theirs.
        """
        self.standing.take(TurnBudget(self._answers, allowance=TURN, ceiling=CEILING))
        try:
            yield
        except TurnSpent:
            pass
        except TooCostly as problem:
            self._costly[problem.filter] = True
            self.workload.forget(problem.filter)

    def shape(self, pod: Pod, claims: Sequence[ResourceClaim]) -> PodShape | None:
        """What the pod looks like; None when its claims cannot be decided on, or their selectors cost too much. Raises
        TooCostly and TurnSpent.
        """
        return self._shape_of(load_of(pod), claims)

    def _shape_of(self, load: Load, claims: Sequence[ResourceClaim]) -> PodShape | None:
        classes = self._cluster.classes
        key = load, self._signatures.of(claims, self.standing.budget), self._cluster.inventory.classes.version
        found = self._shapes.get(key)
        if found is None:
            prepared = prepare(claims, classes, self._cluster.features, self._filters, spend=self.standing.budget.spend)
            if isinstance(prepared, Failure):
                return None
            found = self._shapes[key] = self._shape(load, prepared)
        return None if any(filter in self._costly for filter in filters_of(found)) else found

    def _shape(self, load: Load, prepared: PreparedClaims) -> PodShape:
        shape = shape_of(load, [prepared])
        for filter in filters_of(shape):
            if filter not in self._known_reads:
                try:
                    self.standing.read(reads_of((filter,), (), self.standing.budget))
                except Deferred:
                    raise TooCostly(filter) from None
                self._known_reads[filter] = True
        return shape

    def has_opinion(self, pod: Pod, claims: Sequence[ResourceClaim]) -> bool:
        """False when nothing is to be chosen for the pod: it gets the first devices that fit."""
        return self.policy_of(pod, claims) in self._rankings

    def choose(self, pod: Pod, claims: Sequence[ResourceClaim], names: Sequence[str]) -> str:
        """The node for the pod, of these that fit; empty when the policy has no opinion."""
        with self._turn():
            asked = self._asked(pod, claims) if names else None
            if asked is not None:
                return asked[0].best(asked[1], *self._known(names))
        return ""

    def account(self, pod: Pod, claims: Sequence[ResourceClaim], names: Sequence[str]) -> Account | None:
        """What the best of these nodes, that fit, cost and why; None when the policy has no opinion."""
        with self._turn():
            asked = self._asked(pod, claims) if names else None
            if asked is not None:
                ranking, shape = asked
                nodes = ranking.accounts(shape, *self._known(names))
                return Account(ranking.policy.name, ranking.policy.basis, nodes)
        return None

    def chooser(
        self, pod: Pod, claims: Sequence[ResourceClaim], node: str, beside: Sequence[ResourceClaim] = ()
    ) -> DeviceChooser | None:
        """Who chooses the devices on the node; None: the first ones that fit are taken. `beside`: claims of the pod
        that are allocated.
        """
        with self._turn():
            asked = self._asked(pod, claims)
            if asked is not None:
                return DeviceChooser(asked[0].policy, self.standing, asked[1], node, beside)
        return None

    def _asked(self, pod: Pod, claims: Sequence[ResourceClaim]) -> tuple[Ranking, PodShape] | None:
        """Who answers for the pod, and what it looks like. Raises TooCostly and TurnSpent."""
        ranking = self._rankings.get(self.policy_of(pod, claims))
        self._count_classes()
        if ranking is None:
            return None
        if ranking.policy is self.fragmentation:
            self._expect()
            self._weighing.advance()
        shape = self.shape(pod, claims)
        return (ranking, shape) if shape is not None else None

    def _known(self, names: Sequence[str]) -> tuple[Sequence[str], Sequence[int]]:
        """Those of the nodes that are known, with their indexes."""
        indexes = list(map(self._cluster.inventory.nodes.index.get, names))
        if None not in indexes:
            return names, cast("list[int]", indexes)
        known = [(name, index) for name, index in zip(names, indexes, strict=True) if index is not None]
        return [name for name, _ in known], [index for _, index in known]

    def policy_of(self, pod: Pod, claims: Sequence[ResourceClaim]) -> str:
        """The policy that is in force for the pod: that of its annotation, of a class it asks for, or of everybody."""
        if self._forced:
            return self._forced
        classes = self._cluster.classes
        named = (classes[name].metadata.annotations for name in class_names(claims) if name in classes)
        return self.strategy.named(chain((pod.metadata.annotations,), named))

    def _weight(self, model: DeviceModel) -> float:
        """What a device counts: the most that a class of it does."""
        return max((weight for filter, weight in self._counted if self._is_of(model, filter)), default=1.0)

    def _is_of(self, model: DeviceModel, filter: DeviceFilter) -> bool:
        try:
            return suitability(model, filter, self.standing.budget).selected
        except Deferred:  # an administrator's selector that takes so long counts for nothing
            return False

    def _count_classes(self) -> None:
        """Look at the classes that have a weight, when they are new."""
        classes, weights = self._cluster.inventory.classes, self.strategy.weights
        if self._classes != classes.version and weights:
            features = self._cluster.features
            self._counted = [
                (self._filters.of_class(classes[name], features), weights[name]) for name in weights if name in classes
            ]
            self.standing.start_over()
        if self._classes != classes.version:
            self._awaited = list(range(len(self._expected.pods)))
        self._classes = classes.version

    def _expect(self) -> None:
        """Count the pods that are expected, once what they ask for is known. Raises TooCostly and TurnSpent."""
        while self._awaited:
            number = self._awaited[-1]
            pods = self._expected.pods[number]
            try:
                shape = self._shape_of(pods.load, pods.claims)
            except TooCostly:
                self._awaited.pop()
                raise
            self._awaited.pop()
            before = self._expected_shapes.get(number)
            if shape is not None and shape != before:
                if before is not None:
                    self.workload.discount(before, pods.count)
                self._expected_shapes[number] = shape
                self.workload.count(shape, pods.count)
                self._weighing.renew()
