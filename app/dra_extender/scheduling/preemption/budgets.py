"""Which evictions would violate a PodDisruptionBudget.

Rules: Kubernetes 1.36, filterPodsWithPDBViolation of pkg/scheduler/framework/plugins/defaultpreemption. One difference
follows the Eviction API (pkg/registry/core/pod/storage/eviction.go): an empty selector selects every pod of the
namespace, also pods without labels. An invalid selector selects nothing. When the budgets of a namespace have more than
`PARTS_OF_BUDGETS` parts, or more than `BUDGETS_OF_POD` budgets select a pod, one budget that allows no disruption
stands for them: evaluating them for every pod would take too long, and their author could have written that one. It
stands for those of a namespace with more than `FEW` parts when the question has compared `PARTS_OF_QUESTION`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dra_extender.api.core import (
    LabelSelector,
    LabelSelectorRequirement,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from dra_extender.api.meta import ObjectMeta
from dra_extender.limits import BUDGETS_OF_POD, PARTS_OF_BUDGETS, PARTS_OF_QUESTION

FEW: Final = 100


class BudgetsByNamespace:
    """The budgets of one question, by namespace and by `namespace/name`. It reads a namespace when the question is
    first about one of its pods, and evaluates the selectors once for each pod.
    """

    def __init__(self, namespaces: Mapping[str, Mapping[str, PodDisruptionBudget]] | None = None) -> None:
        self._namespaces = namespaces or {}
        self._read: dict[str, tuple[Sequence[PodDisruptionBudget], int]] = {}
        self._covering: dict[str, tuple[Pod, Sequence[PodDisruptionBudget]]] = {}
        self._compared = 0
        """Parts, in namespaces with more than a few."""

    def parts(self, pod: Pod) -> int:
        """How many parts of selectors `covering` has to compare with the pod; 0 when it has done so."""
        known = self._covering.get(pod.metadata.uid)
        return 0 if known is not None and known[0] is pod else self._of(pod)[1]

    def covering(self, pod: Pod) -> Sequence[PodDisruptionBudget]:
        known = self._covering.get(pod.metadata.uid)
        if known is None or known[0] is not pod:
            labels, (budgets, parts) = pod.metadata.labels, self._of(pod)
            self._compared += parts if parts > FEW else 0
            found = [b for b in budgets if b.spec.selector is not None and selects(b.spec.selector, labels)]
            covering = found if len(found) <= BUDGETS_OF_POD else _protected(pod.metadata.namespace)[0]
            known = self._covering[pod.metadata.uid] = pod, covering
        return known[1]

    def forbid(self, pod: Pod) -> bool:
        """True when the Eviction API would refuse to evict the pod now: a budget allows no disruption, or several
        budgets select the pod, which the Eviction API treats as an error.
        """
        return len(self.covering(pod)) > 1 or bool(violating((pod,), self))

    def _of(self, pod: Pod) -> tuple[Sequence[PodDisruptionBudget], int]:
        """The budgets of the pod's namespace, and their parts."""
        namespace = pod.metadata.namespace
        if namespace not in self._read:
            self._read[namespace] = _limited(namespace, self._namespaces.get(namespace, {}).values())
        found = self._read[namespace]
        return _protected(namespace) if found[1] > FEW and self._compared > PARTS_OF_QUESTION else found


def violating(pods: Iterable[Pod], budgets: BudgetsByNamespace) -> frozenset[str]:
    """The UIDs of the pods whose eviction, in this order, exceeds the disruptions that a budget allows. At most
    `BUDGETS_OF_POD` budgets are counted for each pod.
    """
    allowed: dict[str, int] = {}
    found: set[str] = set()
    for pod in pods:
        for budget in budgets.covering(pod):
            if counts(pod, budget):
                key = budget.metadata.key
                allowed[key] = allowed.get(key, budget.status.disruptions_allowed) - 1
                if allowed[key] < 0:
                    found.add(pod.metadata.uid)
    return frozenset(found)


def counts(pod: Pod, budget: PodDisruptionBudget) -> bool:
    """True when evicting a pod that the budget selects uses up a disruption. A pod in `disruptedPods` has used one up
    already.
    """
    return pod.metadata.name not in budget.status.disrupted_pods


def _limited(namespace: str, budgets: Iterable[PodDisruptionBudget]) -> tuple[Sequence[PodDisruptionBudget], int]:
    """The budgets with their parts, or one budget that protects every pod. Looks at no more parts than the limit."""
    found, total = [], 0
    for budget in budgets:
        found.append(budget)
        total += 1
        selector = budget.spec.selector
        if selector is not None:
            total += len(selector.match_labels) + len(selector.match_expressions)
            if total <= PARTS_OF_BUDGETS:
                total += sum(len(each.values) for each in selector.match_expressions)
        if total > PARTS_OF_BUDGETS:
            return _protected(namespace)
    return found, total


def _protected(namespace: str) -> tuple[Sequence[PodDisruptionBudget], int]:
    meta = ObjectMeta(name="*", namespace=namespace)
    return (PodDisruptionBudget(meta, PodDisruptionBudgetSpec(LabelSelector())),), 1


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """True when the selector selects these labels. An invalid one selects nothing."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return bool(values) and value not in values
        case "Exists":
            return not values and value is not None
        case "DoesNotExist":
            return not values and value is None
    return False
