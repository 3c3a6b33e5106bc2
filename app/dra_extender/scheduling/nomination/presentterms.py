"""On what terms a pod may preempt others at this moment: the settings, and what evictions there have been."""

from __future__ import annotations

from itertools import chain

from dra_extender.api.core import Pod
from dra_extender.scheduling.disruptionbudgets import DisruptionBudgets
from dra_extender.scheduling.nomination.evictions import Evictions
from dra_extender.scheduling.nomination.nominations import Nominations
from dra_extender.scheduling.preemption.terms import PreemptionArgs, PreemptionTerms
from dra_extender.scheduling.view import View


class PresentTerms:
    """One per service."""

    def __init__(self, view: View, nominations: Nominations, budgets: DisruptionBudgets, evictions: Evictions) -> None:
        self._view = view
        self._nominations = nominations
        self._budgets = budgets
        self._evictions = evictions

    def of(self, pod: Pod) -> PreemptionTerms:
        """The terms of the pod. What is kept for other pods the view has."""
        args = PreemptionArgs(scheduler_names=self._view.config.scheduler_names, violate_budgets=False)
        told = (each.victims for each in self._nominations if each.pod.metadata.uid != pod.metadata.uid)
        return PreemptionTerms(
            preemptor=pod,
            args=args,
            budgets=self._budgets.all(),
            leaving=frozenset(chain.from_iterable(told)),
            stuck=self._evictions.stuck,
            spared=self._evictions.refused,
        )
