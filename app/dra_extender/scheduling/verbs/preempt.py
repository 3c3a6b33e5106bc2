"""The preempt verb: on which of these nodes does evicting the victims help, and which other pods must be evicted too?

Promises: without preemption for devices a node stays only if the devices fit already, because evicting a pod frees its
devices long after kube-scheduler's decision. With preemption for devices, pods of lower priority on the node are added
to the proposed victims: as few as needed, and none that violates a PodDisruptionBudget where that is forbidden. All
proposed victims are kept, the most important first. A node without proposed victims lacks only devices: this service
makes room there itself, so the node stays only if the devices fit already. A pod of a gang fits with its gang.

Rules: Kubernetes 1.36, pkg/scheduler/extender.go (ProcessPreemption); victim lists may be empty, as newer schedulers
send them.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from dra_extender.allocation.budget import Deferred, ask_all
from dra_extender.api.extender import ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaPod, MetaVictims
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.feasibility import PreFilterState, node_statuses, pre_filter
from dra_extender.scheduling.gangs.gang import gang_with_devices
from dra_extender.scheduling.preemption.gangs import Joint, joint
from dra_extender.scheduling.preemption.preemptible import charge, charge_budgets, importance, preemptible_claims
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.preemption.victims import Trials, fewest
from dra_extender.scheduling.view import View

PER_NODE: Final = 400
"""Units of work to look for a place on a node."""
PER_PLACE: Final = 50
"""Units of work to place a pod of the gang."""


class Preempt:
    """One call. `terms`: the terms on which the pod may preempt others for devices; None: it may not."""

    def __init__(self, args: ExtenderPreemptionArgs, terms: PreemptionTerms | None) -> None:
        self._pod = args.Pod
        self._terms = terms if terms is not None and terms.may_preempt else None
        self._proposed = args.NodeNameToMetaVictims or {}
        self._more: dict[str, MetaVictims | None] = {}
        """By node: what earlier turns found where the devices do not fit yet."""
        self._trials = Trials()

    def answer(self, view: View) -> ExtenderPreemptionResult:
        """UIDs of victims by node, the nodes in the order given. Raises TurnSpent: ask again, in another turn."""
        gang = gang_with_devices(view, self._pod) if self._terms is not None else None
        if gang is None and not view.uses_devices(self._pod):
            return ExtenderPreemptionResult(NodeNameToMetaVictims=self._proposed)
        prefiltered = pre_filter(view, self._pod)
        statuses = node_statuses(view, prefiltered, list(self._proposed) if gang is None else [])
        if not isinstance(prefiltered, PreFilterState) or statuses.error or (gang is not None and gang.problem):
            return ExtenderPreemptionResult(NodeNameToMetaVictims={})
        fits = set(statuses.fits)
        rest = [name for name in self._proposed if name not in fits and name not in self._more]
        if rest and self._terms is not None:
            with suppress(Deferred):
                decisions = joint(view, prefiltered, self._terms, gang)
                ask_all(partial(self._enlarge, view, decisions), rest)
        known = ((name, each if name in fits else self._more.get(name)) for name, each in self._proposed.items())
        return ExtenderPreemptionResult(NodeNameToMetaVictims={name: each for name, each in known if each is not None})

    def _enlarge(self, view: View, decisions: Joint, name: str) -> None:
        try:
            self._more[name] = self._with_more(view, decisions, name)
        except Deferred:
            view.decisions.budget.settle()
            raise

    def _with_more(self, view: View, decisions: Joint, name: str) -> MetaVictims | None:
        """The proposed victims and more, so that the devices suffice. None if no victims suffice, or if a proposed
        victim is unknown: its importance is unknown, too.
        """
        proposed = self._proposed[name]
        uids = [victim.UID for victim in proposed.Pods or ()]
        already = [pod for uid in uids if (pod := view.pods.get(uid)) is not None]
        if not uids or len(already) < len(uids):
            return None
        terms = msgspec.structs.replace(decisions.terms, terminating=frozenset(uids), node=name, examined={})
        decisions = msgspec.structs.replace(decisions, terms=terms)

        def fits(gone: Collection[ResourceClaim]) -> bool:
            charge(view, PER_NODE)
            places = decisions.places((name,), gone) or ()
            view.decisions.budget.settle(PER_PLACE * len(places))
            return self._pod.metadata.uid in places

        found = preemptible_claims(view, terms, view.cluster.inventory.pools_seen(name))
        for pod in already:
            charge_budgets(view, terms, pod)
        more = fewest(found, terms, fits, self._trials.on(view, terms, name), already)
        if more is None:
            return None
        pods = sorted([*already, *(victim.pod for victim in more)], key=importance)
        violations = proposed.NumPDBViolations + sum(victim.violates_budget for victim in more)
        return MetaVictims(Pods=[MetaPod(UID=pod.metadata.uid) for pod in pods], NumPDBViolations=violations)
