"""The terms on which a pod may preempt others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace

NEVER: Final = "Never"


class PreemptionArgs(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration, in the terms of kube-scheduler's DefaultPreemptionArgs.

    - `scheduler_names`: victims belong to one of these schedulers; empty: to the preemptor's scheduler.
    - `violate_budgets`: True, as in kube-scheduler: violate a budget when no other node and no other pod will do.
      False: never violate one, because the Eviction API would refuse.
    - `min_candidate_nodes`, `min_candidate_percentage`: on at most this many nodes that seem equally good the victims
      are worked out (minCandidateNodesAbsolute, minCandidateNodesPercentage).
    """

    scheduler_names: frozenset[str] = frozenset()
    violate_budgets: bool = True
    min_candidate_nodes: int = 100
    min_candidate_percentage: int = 10

    def most_candidates(self, nodes: int) -> int:
        """The number of candidates to examine when preemption is possible on `nodes` nodes."""
        return max(self.min_candidate_nodes, nodes * self.min_candidate_percentage // 100)


class PreemptionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration together with the state of the moment. The view knows what is kept for other pods.

    All sets hold UIDs. `terminating`: pods that terminate in any case. `stuck`: pods that were evicted long ago and are
    still there; preemption does not wait for them. `spared`: pods that must not be victims for now. `own`: the
    preemptor's claims. `node`: victims must run on this node; empty: on any node. `examined`: by UID, the pods that do
    not terminate, and whether these terms let them be evicted; other terms need another one.
    """

    preemptor: Pod
    args: PreemptionArgs = PreemptionArgs()
    budgets: BudgetsByNamespace = msgspec.field(default_factory=BudgetsByNamespace)
    terminating: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    node: str = ""
    examined: dict[str, tuple[Pod, bool]] = msgspec.field(default_factory=dict)

    def with_claims(self, claims: Iterable[ResourceClaim]) -> PreemptionTerms:
        """The same terms with the preemptor's claims."""
        return msgspec.structs.replace(self, own=frozenset(claim.metadata.uid for claim in claims))

    def on_node(self, claims: Iterable[ResourceClaim], *, terminating: Iterable[str], node: str) -> PreemptionTerms:
        """The same terms with the preemptor's claims, for a node that the `terminating` pods leave."""
        gone = frozenset(terminating)
        return msgspec.structs.replace(self.with_claims(claims), terminating=gone, node=node, examined={})

    @property
    def may_preempt(self) -> bool:
        """False for a pod with `preemptionPolicy: Never`."""
        return self.preemptor.spec.preemption_policy != NEVER

    def may_evict(self, pod: Pod) -> bool:
        """True when priority and scheduler of the pod allow it to be a victim."""
        schedulers = self.args.scheduler_names or (self.preemptor.spec.scheduler_name,)
        return pod.spec.priority < self.preemptor.spec.priority and pod.spec.scheduler_name in schedulers
