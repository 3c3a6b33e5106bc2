"""Sets of pods (apps/v1): the defaults that kubectl shows, and the rules that keep a set with its own pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from embedded_cluster.apiserver.statuses import JSON, FieldError, immutable
from embedded_cluster.apiserver.strategies.pods import fill_template
from embedded_cluster.apiserver.strategy import Context, RESTStrategy
from embedded_cluster.apiserver.validation import pods, workloads

GENERATION: Final = "deprecated.daemonset.template.generation"
"""Counts the templates that a DaemonSet has had."""


class _PodSetStrategy(RESTStrategy):
    """What ReplicaSets, Deployments and DaemonSets have in common: the selector stays."""

    generation = True

    def default(self, new: JSON, context: Context) -> None:
        fill_template(new.setdefault("spec", {}).setdefault("template", {}).setdefault("spec", {}))

    def unvalidated(self, new: JSON) -> Iterable[str]:
        spec = ((new.get("spec") or {}).get("template") or {}).get("spec") or {}
        return pods.unvalidated(spec, "spec.template.spec")

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        problems = self.validate_create(new, context)
        if new["spec"].get("selector") != old["spec"].get("selector"):
            problems.append(immutable("spec.selector", new["spec"].get("selector")))
        return problems


class ReplicaSetStrategy(_PodSetStrategy):
    """Stored with the defaults kubectl shows."""

    def default(self, new: JSON, context: Context) -> None:
        super().default(new, context)
        new["spec"].setdefault("replicas", 1)

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {"replicas": 0}

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return workloads.replica_set_problems(new["spec"])


class DeploymentStrategy(ReplicaSetStrategy):
    """The same, and how new pods take over."""

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {}

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return workloads.deployment_problems(new["spec"])

    def default(self, new: JSON, context: Context) -> None:
        super().default(new, context)
        spec = new["spec"]
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxSurge", "25%")
            rolling.setdefault("maxUnavailable", "25%")


class DaemonSetStrategy(_PodSetStrategy):
    """A pod on every node that fits."""

    def default(self, new: JSON, context: Context) -> None:
        super().default(new, context)
        spec = new["spec"]
        spec.setdefault("revisionHistoryLimit", 10)
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)

    def prepare_create(self, new: JSON, context: Context) -> None:
        counts = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
        new["status"] = dict.fromkeys(counts, 0)
        new["metadata"].setdefault("annotations", {})[GENERATION] = "1"

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        count = int(old["metadata"].get("annotations", {}).get(GENERATION, "1"))
        same = new["spec"]["template"] == old["spec"]["template"]
        new["metadata"].setdefault("annotations", {})[GENERATION] = str(count if same else count + 1)

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return workloads.daemon_set_problems(new["spec"])
