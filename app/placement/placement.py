"""Placement as the verbs ask for it: the node for a pod, and its devices there, by the policy that is in force.

Promises: a question has no effect on answers but through what was learned (`learn`, `put`, `drop`). The workload is
learned from the pods that come, each once, and known again after a restart from those that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, cast

from cachetools import LRUCache

from app.allocation.cache.reduction import reads_of
from app.allocation.plan import Failure
from app.allocation.requests import Filter, PreparedClaims, class_names, filter_of, prepare
from app.allocation.selection import suitability
from app.api.core import Node, Pod
from app.api.resource import ResourceClaim
from app.devices.cluster import Cluster
from app.devices.content import digest
from app.devices.models import DeviceModel
from app.placement.account import Account
from app.placement.devices import DeviceChooser
from app.placement.load import Load, Loads, load_of
from app.placement.podshape import PodShape, shape_of
from app.placement.policies import Fragmentation, Pack, Policy, Spread
from app.placement.ranking import Ranking
from app.placement.standing import Standing
from app.placement.strategy import Strategy
from app.placement.weighing import Weighing
from app.placement.workload import Workload

_FIRST_FIT: Final = Strategy()

REMEMBERED_PODS: Final = 50_000
REMEMBERED_SHAPES: Final = 4_096


class Placement:
    """One per cluster. Feed it all pods and nodes (`put`, `drop`), and the pods that come (`learn`)."""

    def __init__(self, cluster: Cluster, strategy: Strategy = _FIRST_FIT) -> None:
        self.strategy = strategy
        self._cluster = cluster
        self._classes = -1
        self._counted: list[tuple[Filter, float]] = []
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
        self._filters: dict[Filter, None] = {}
        self.learns = strategy.policy == Fragmentation.name
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
            self.standing.node_changed(obj.name)

    def drop(self, pod: Pod) -> None:
        """The pod is gone."""
        self.loads.drop(pod.metadata.uid)

    def learn(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """A pod wants a place; `claims` are those to be allocated. A pod that comes again is not counted again."""
        if pod.metadata.uid in self._learned:
            return
        self.learns = self.learns or self.policy_of(pod, claims) == Fragmentation.name
        if not self.learns:
            return
        shape = self.shape(pod, claims)
        if shape is not None:
            self._learned[pod.metadata.uid] = True
            self.workload.count(shape)

    # --- questions --------------------------------------------------------------------------------------------------

    def shape(self, pod: Pod, claims: Sequence[ResourceClaim]) -> PodShape | None:
        """What the pod looks like; None when its claims cannot be decided on."""
        load = load_of(pod)
        classes = self._cluster.classes
        key = load, tuple(digest(claim.spec) for claim in claims), self._cluster.inventory.classes.version
        found = self._shapes.get(key)
        if found is None:
            prepared = prepare(claims, classes, self._cluster.features)
            if isinstance(prepared, Failure):
                return None
            found = self._shapes[key] = self._shape(load, prepared)
        return found

    def _shape(self, load: Load, prepared: PreparedClaims) -> PodShape:
        shape = shape_of(load, [prepared])
        new = {filter for demand in shape.need for filter, _ in demand.alternatives if filter not in self._filters}
        if new:
            self._filters.update(dict.fromkeys(new))
            self.standing.read(reads_of(new, ()))
        return shape

    def choose(self, pod: Pod, claims: Sequence[ResourceClaim], names: Sequence[str]) -> str:
        """The node for the pod, of these that fit; empty when the policy has no opinion."""
        ranking = self._ranking(pod, claims)
        shape = self.shape(pod, claims) if ranking is not None and names else None
        if ranking is None or shape is None:
            return ""
        return ranking.best(shape, *self._known(names))

    def account(self, pod: Pod, claims: Sequence[ResourceClaim], names: Sequence[str]) -> Account | None:
        """What the best of these nodes, that fit, cost and why; None when the policy has no opinion."""
        ranking = self._ranking(pod, claims)
        shape = self.shape(pod, claims) if ranking is not None and names else None
        if ranking is None or shape is None:
            return None
        return Account(ranking.policy.name, ranking.policy.basis, ranking.accounts(shape, *self._known(names)))

    def _known(self, names: Sequence[str]) -> tuple[Sequence[str], Sequence[int]]:
        """Those of the nodes that are known, with their indexes."""
        indexes = list(map(self._cluster.inventory.nodes.index.get, names))
        if None not in indexes:
            return names, cast("list[int]", indexes)
        known = [(name, index) for name, index in zip(names, indexes, strict=True) if index is not None]
        return [name for name, _ in known], [index for _, index in known]

    def chooser(
        self, pod: Pod, claims: Sequence[ResourceClaim], node: str, beside: Sequence[ResourceClaim] = ()
    ) -> DeviceChooser | None:
        """Who chooses the devices on the node; None: the first ones that fit are taken. `beside`: claims of the pod
        that are allocated.
        """
        ranking = self._ranking(pod, claims)
        shape = self.shape(pod, claims) if ranking is not None else None
        if ranking is None or shape is None:
            return None
        return DeviceChooser(ranking.policy, self.standing, shape, node, beside)

    def _ranking(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Ranking | None:
        ranking = self._rankings.get(self.policy_of(pod, claims))
        self._count_classes()
        if ranking is not None and ranking.policy is self.fragmentation:
            self._weighing.advance()
        return ranking

    def policy_of(self, pod: Pod, claims: Sequence[ResourceClaim]) -> str:
        """The policy that is in force for the pod: that of its annotation, of a class it asks for, or of everybody."""
        if self._forced:
            return self._forced
        classes = self._cluster.classes
        named = (classes[name].metadata.annotations for name in class_names(claims) if name in classes)
        return self.strategy.named(chain((pod.metadata.annotations,), named))

    def _weight(self, model: DeviceModel) -> float:
        """What a device counts: the most that a class of it does."""
        return max((weight for filter, weight in self._counted if suitability(model, filter).selected), default=1.0)

    def _count_classes(self) -> None:
        """Look at the classes that have a weight, when they are new."""
        classes, weights = self._cluster.inventory.classes, self.strategy.weights
        if self._classes != classes.version and weights:
            features = self._cluster.features
            self._counted = [(filter_of(classes[name], features), weights[name]) for name in weights if name in classes]
            self.standing.start_over()
        self._classes = classes.version
