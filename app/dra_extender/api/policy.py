"""policy/v1: disruption budgets, as far as the choice of victims reads them, and the label selector they use.

Source of fields: Kubernetes 1.36, staging/src/k8s.io/api/policy/v1/types.go and apimachinery/pkg/apis/meta/v1/types.go.
"""

from __future__ import annotations

from dra_extender.api.meta import Object, ObjectMeta


class LabelSelectorRequirement(Object, frozen=True, gc=False):
    """`operator` is one of In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Object, frozen=True, gc=False):
    """Labels and requirements are ANDed; without any it selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class PodDisruptionBudgetSpec(Object, frozen=True, gc=False):
    """Without a selector the budget is about no pod."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Object, frozen=True, gc=False):
    """`disrupted_pods`: by name, pods whose eviction has been granted and which are not gone yet."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
