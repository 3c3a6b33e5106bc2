"""Sets of pods (apps/v1): the defaults that kubectl shows, and the rules that keep a set with its own pods."""

from __future__ import annotations

from typing import Final

from app.embedded.apiserver.statuses import JSON, Problem, forbidden, immutable, invalid_value, required, unsupported
from app.embedded.apiserver.strategies.pods import default_template
from app.embedded.apiserver.strategy import Context, Strategy, keep_status
from app.embedded.apiserver.validation import pods

GENERATION: Final = "deprecated.daemonset.template.generation"
"""Counts the templates that a DaemonSet has had."""


def label_problems(spec: JSON) -> list[Problem]:
    """Of a selector that does not choose the pods of its own template."""
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    wanted = (spec.get("selector") or {}).get("matchLabels", {})
    if all(labels.get(key) == value for key, value in wanted.items()):
        return []
    return [invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")]


def template_problems(spec: JSON) -> list[Problem]:
    """Of the pods that a set would make."""
    return label_problems(spec) + pods.spec_problems(spec["template"]["spec"], "spec.template.spec")


def negative_problems(spec: JSON, *names: str) -> list[Problem]:
    """Of numbers in a spec that must not be below zero."""
    return [
        invalid_value(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in names
        if spec.get(name, 0) < 0
    ]


class ReplicaSets(Strategy):
    """Stored with the defaults kubectl shows; controllers of the embedded cluster run them. The selector stays."""

    generation = True

    def default(self, new: JSON, context: Context) -> None:
        spec = new.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        default_template(spec.setdefault("template", {}).setdefault("spec", {}))

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {"replicas": 0}

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        keep_status(new, old)

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        spec = new["spec"]
        problems = negative_problems(spec, "replicas")
        if not spec.get("selector"):
            problems.append(required("spec.selector"))
        problems += template_problems(spec)
        policy = spec["template"]["spec"]["restartPolicy"]
        if policy != "Always":
            problems.append(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
        return problems

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[Problem]:
        problems = self.validate_create(new, context)
        if new["spec"].get("selector") != old["spec"].get("selector"):
            problems.append(immutable("spec.selector", new["spec"].get("selector")))
        return problems


class Deployments(ReplicaSets):
    """The same, and how new pods take over."""

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {}

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


class DaemonSets(Strategy):
    """A pod on every node that fits. The selector stays."""

    generation = True

    def default(self, new: JSON, context: Context) -> None:
        spec = new.setdefault("spec", {})
        default_template(spec.setdefault("template", {}).setdefault("spec", {}))
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
        keep_status(new, old)
        count = int(old["metadata"].get("annotations", {}).get(GENERATION, "1"))
        same = new["spec"]["template"] == old["spec"]["template"]
        new["metadata"].setdefault("annotations", {})[GENERATION] = str(count if same else count + 1)

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        spec, template = new["spec"], new["spec"]["template"]["spec"]
        problems = [] if spec.get("selector") else [required("spec.selector")]
        problems += template_problems(spec)
        if template["restartPolicy"] != "Always":
            problems.append(unsupported("spec.template.spec.restartPolicy", template["restartPolicy"], ("Always",)))
        if "activeDeadlineSeconds" in template:
            why = "activeDeadlineSeconds in DaemonSet is not Supported"
            problems.append(forbidden("spec.template.spec.activeDeadlineSeconds", why))
        return problems + negative_problems(spec, "minReadySeconds", "revisionHistoryLimit")

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[Problem]:
        problems = self.validate_create(new, context)
        if new["spec"].get("selector") != old["spec"].get("selector"):
            problems.append(immutable("spec.selector", new["spec"].get("selector")))
        return problems
