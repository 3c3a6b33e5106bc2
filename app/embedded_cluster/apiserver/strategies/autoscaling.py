"""HorizontalPodAutoscalers (autoscaling/v2).

Rules: Kubernetes 1.36, pkg/apis/autoscaling/v2/defaults.go and pkg/apis/autoscaling/validation, as far as they are
about size and target; metrics are stored as they come, since none are measured here.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden, invalid_value, required
from embedded_cluster.apiserver.strategy import Context, Strategy, keep_status

_CPU: Final[JSON] = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


class Autoscalers(Strategy):
    """How many pods a set may have, and what should decide it."""

    def default(self, new: JSON, context: Context) -> None:
        spec = new.setdefault("spec", {})
        spec.setdefault("minReplicas", 1)
        if not spec.get("metrics"):
            spec["metrics"] = [_CPU]

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {"desiredReplicas": 0, "currentMetrics": None}

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        keep_status(new, old)

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        spec = new["spec"]
        least, most = spec["minReplicas"], spec.get("maxReplicas", 0)
        problems = []
        if least < 1:
            problems.append(invalid_value("spec.minReplicas", least, "must be greater than or equal to 1"))
        if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in spec["metrics"]):
            why = "must specify at least one Object or External metric to support scaling to zero replicas"
            problems.append(forbidden("spec.metrics", why))
        if most == 0:
            problems.append(required("spec.maxReplicas", "must be set and greater than 0"))
        elif most < 0:
            problems.append(invalid_value("spec.maxReplicas", most, "must be greater than or equal to 1"))
        if most < least:
            detail = "must be greater than or equal to `minReplicas`"
            problems.append(invalid_value("spec.maxReplicas", most, detail))
        target = spec.get("scaleTargetRef") or {}
        problems += [required(f"spec.scaleTargetRef.{name}") for name in ("kind", "name") if not target.get(name)]
        return problems + _group_problems(target)

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[Problem]:
        return self.validate_create(new, context)


def _group_problems(target: JSON) -> list[Problem]:
    """Only the replication controllers of old are in the group without a name."""
    told, where = target.get("apiVersion", ""), "spec.scaleTargetRef.apiVersion"
    if told.count("/") > 1:
        return [invalid_value(where, told, f"unexpected GroupVersion string: {told}")]
    if "/" in told or target.get("kind", "") == "ReplicationController":
        return []
    return [invalid_value(where, told, "apiVersion must specify API group")]
