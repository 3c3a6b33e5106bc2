"""On what terms a pod may preempt others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.api.resource import ResourceClaim

NEVER: Final = "Never"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say.

    `scheduler_names`: whose pods may be victims; empty: those of the preemptor's own scheduler. `violate_budgets`: as
    kube-scheduler does it, a victim is taken in violation of a budget where no other node and no other pod will do;
    otherwise never: the Eviction API would refuse. `least_candidates` and `percent`: of so many nodes that are equal as
    far as can be told at once the victims are worked out, as minCandidateNodesAbsolute and minCandidateNodesPercentage
    of kube-scheduler have it.
    """

    scheduler_names: frozenset[str] = frozenset()
    violate_budgets: bool = True
    least_candidates: int = 100
    percent: int = 10

    def most_candidates(self, nodes: int) -> int:
        """Of so many nodes, at how many to look closely."""
        return max(self.least_candidates, nodes * self.percent // 100)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The rules, and what is known of the moment.

    `leaving`: UIDs of pods that go in any case. `stuck`: of pods that were told to go long ago and did not, besides
    those whose deletion tells it: nothing is expected of them. `spared`: of pods that are no victims for now. `own`:
    UIDs of claims of the preemptor. `node`: victims must be on this node; empty: wherever they are. What is kept for
    other pods the view knows.
    """

    preemptor: Pod
    rules: Rules = Rules()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    leaving: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    node: str = ""

    def about(self, claims: Iterable[ResourceClaim]) -> Terms:
        """The same, with the preemptor's claims known."""
        return msgspec.structs.replace(self, own=frozenset(claim.metadata.uid for claim in claims))

    def beside(self, claims: Iterable[ResourceClaim], *, leaving: Iterable[str], node: str) -> Terms:
        """The same, with the preemptor's claims known, for more victims on a node where these pods go already."""
        return msgspec.structs.replace(self.about(claims), leaving=frozenset(leaving), node=node)

    @property
    def may_preempt(self) -> bool:
        """False for pods that must wait until there is room."""
        return self.preemptor.spec.preemption_policy != NEVER

    def may_evict(self, pod: Pod) -> bool:
        """True when the pod may be a victim, as far as the pod itself can tell."""
        ours = self.rules.scheduler_names or (self.preemptor.spec.scheduler_name,)
        return pod.spec.priority < self.preemptor.spec.priority and pod.spec.scheduler_name in ours
