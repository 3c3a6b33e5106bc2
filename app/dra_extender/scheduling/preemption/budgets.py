"""Which evictions would violate a PodDisruptionBudget.

Rules: Kubernetes 1.36, filterPodsWithPDBViolation of pkg/scheduler/framework/plugins/defaultpreemption. One difference
follows the Eviction API (pkg/registry/core/pod/storage/eviction.go): an empty selector selects every pod of the
namespace, also pods without labels. An invalid selector selects nothing. A selector with more than `PARTS_OF_SELECTOR`
parts selects everything: evaluating it for every pod would take too long, and its author could have written an empty
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dra_extender.api.core import Pod
from dra_extender.api.policy import LabelSelector, LabelSelectorRequirement, PodDisruptionBudget
from dra_extender.limits import PARTS_OF_SELECTOR


class BudgetsByNamespace:
    """An index for clusters with thousands of pods and budgets."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for budget in budgets:
            self._by_namespace.setdefault(budget.metadata.namespace, []).append(budget)

    def of(self, pod: Pod) -> Sequence[PodDisruptionBudget]:
        """The budgets of the pod's namespace."""
        return self._by_namespace.get(pod.metadata.namespace, ())

    def forbid(self, pod: Pod) -> bool:
        """True when the Eviction API would refuse to evict the pod now: a budget allows no disruption, or several
        budgets select the pod, which the Eviction API treats as an error.
        """
        budgets = self.of(pod)
        return bool(violating((pod,), budgets)) or sum(_covers(pod, budget) for budget in budgets) > 1


def violating(pods: Iterable[Pod], budgets: Sequence[PodDisruptionBudget]) -> frozenset[str]:
    """The UIDs of the pods whose eviction, in this order, exceeds the disruptions that a budget allows."""
    if not budgets:
        return frozenset()
    grouped = BudgetsByNamespace(budgets)
    allowed: dict[str, int] = {}
    found: set[str] = set()
    for pod in pods:
        for budget in grouped.of(pod):
            if counts(pod, budget):
                key = budget.metadata.key
                allowed[key] = allowed.get(key, budget.status.disruptions_allowed) - 1
                if allowed[key] < 0:
                    found.add(pod.metadata.uid)
    return frozenset(found)


def counts(pod: Pod, budget: PodDisruptionBudget) -> bool:
    """True when evicting the pod uses up a disruption. A pod in `disruptedPods` has used one up already."""
    return pod.metadata.name not in budget.status.disrupted_pods and _covers(pod, budget)


def _covers(pod: Pod, budget: PodDisruptionBudget) -> bool:
    return (
        budget.metadata.namespace == pod.metadata.namespace
        and budget.spec.selector is not None
        and selects(budget.spec.selector, pod.metadata.labels)
    )


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """True when the selector selects these labels."""
    if _is_large(selector):
        return True
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    if not all(map(_is_valid, selector.match_expressions)):
        return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _is_large(selector: LabelSelector) -> bool:
    parts = len(selector.match_labels) + len(selector.match_expressions)
    return parts > PARTS_OF_SELECTOR or sum(len(each.values) for each in selector.match_expressions) > PARTS_OF_SELECTOR


def _is_valid(requirement: LabelSelectorRequirement) -> bool:
    if requirement.operator in ("In", "NotIn"):
        return bool(requirement.values)
    return requirement.operator in ("Exists", "DoesNotExist") and not requirement.values


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case _:
            return value is None
