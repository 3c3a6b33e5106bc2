"""Jobs and CronJobs (batch/v1).

Promises: a Job comes back as a real API server stores it, with the selector and the labels that make its pods its own.
What the Job controller of the embedded cluster does not do is refused, not ignored: a policy about failures or success,
a limit per index, other controllers. CronJobs are refused as a whole: nothing would start their Jobs.

Rules: Kubernetes 1.36, pkg/apis/batch/v1/defaults.go, pkg/registry/batch/job/strategy.go, pkg/apis/batch/validation.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.labelselectors import selects
from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    forbidden,
    immutable,
    invalid_value,
    required,
    unsupported,
)
from embedded_cluster.apiserver.strategies.poddefaults import fill_template
from embedded_cluster.apiserver.strategy import Context, Strategy, keep_status
from embedded_cluster.apiserver.validation import pods, workloads
from embedded_cluster.apiserver.validation.parts import negative_problems
from embedded_cluster.apiserver.validation.selectors import label_selector_problems

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
_JOB_NAME_LABELS: Final = ("job-name", "batch.kubernetes.io/job-name")
_UID_LABELS: Final = ("controller-uid", CONTROLLER_UID)
_MODES: Final = ("NonIndexed", "Indexed")
_NUMBERS: Final = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_FIXED: Final = ("completions", "selector", "template", "completionMode")
_SCHEDULING: Final = ("nodeSelector", "tolerations", "schedulingGates", "affinity")
_NOT_RUN: Final = ("backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy", "successPolicy", "managedBy")


class Jobs(Strategy):
    """Pods that run to an end; the embedded cluster's controller runs them."""

    generation = True
    orphans_by_default = True

    def default(self, new: JSON, context: Context) -> None:
        spec = new.setdefault("spec", {})
        template = spec.setdefault("template", {})
        fill_template(template.setdefault("spec", {}))
        if "parallelism" not in spec:
            spec.setdefault("completions", 1)
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
        spec.setdefault("manualSelector", False)
        labels = template.get("metadata", {}).get("labels")
        if labels and not new["metadata"].get("labels"):
            new["metadata"]["labels"] = dict(labels)

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {}
        if not new["spec"]["manualSelector"]:
            _select_own_pods(new)

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        keep_status(new, old)

    def prepare_status(self, new: JSON, old: JSON, context: Context) -> None:
        status = new.setdefault("status", {})
        for count in ("active", "succeeded", "failed"):
            if status.get(count) == 0:
                del status[count]

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        spec = new["spec"]
        problems = _label_conflicts(new) + negative_problems(spec, "spec", _NUMBERS) + _mode_problems(new)
        problems += pods.template_problems(spec["template"], "spec.template")
        policy = spec["template"]["spec"]["restartPolicy"]
        if policy == "Always":
            problems.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
        elif policy not in ("OnFailure", "Never"):
            problems.append(unsupported("spec.template.spec.restartPolicy", policy, ("OnFailure", "Never")))
        if not spec.get("selector"):
            problems.append(required("spec.selector"))
        wrong = label_selector_problems(spec.get("selector"), "spec.selector")
        return problems + wrong + workloads.label_problems(spec, wrong) + _not_run(spec)

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[Problem]:
        problems = self.validate_create(new, context)
        before, after = _comparable(old, old), _comparable(new, old)
        return problems + [
            immutable(f"spec.{name}", new["spec"].get(name)) for name in _FIXED if after.get(name) != before.get(name)
        ]


def _select_own_pods(job: JSON) -> None:
    """Labels of the template and a selector that no other Job has. A Job without labels gets those of its template."""
    metadata, spec = job["metadata"], job["spec"]
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    inherited = metadata.get("labels", {}) == labels
    for label in _JOB_NAME_LABELS:
        labels.setdefault(label, metadata["name"])
    for label in _UID_LABELS:
        labels.setdefault(label, metadata["uid"])
    chosen = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    chosen.setdefault(CONTROLLER_UID, metadata["uid"])
    if inherited:
        metadata["labels"] = dict(labels)


def _label_conflicts(job: JSON) -> list[Problem]:
    """Labels of the template that are not the ones which the Job's own selector needs, and a selector of others."""
    if job["spec"]["manualSelector"]:
        return []
    labels, metadata = job["spec"]["template"].get("metadata", {}).get("labels", {}), job["metadata"]
    wanted = dict.fromkeys(_UID_LABELS, metadata["uid"]) | dict.fromkeys(_JOB_NAME_LABELS, metadata["name"])
    order = ("controller-uid", "job-name", CONTROLLER_UID, "batch.kubernetes.io/job-name")
    found = [
        invalid_value(f"spec.template.metadata.labels[{label}]", labels, f"must be '{wanted[label]}'")
        for label in order
        if labels.get(label) != wanted[label]
    ]
    selector = job["spec"].get("selector")
    if label_selector_problems(selector, "spec.selector") or selects(selector, wanted):
        return found
    return [*found, invalid_value("spec.selector", selector, "`selector` not auto-generated")]


def _mode_problems(job: JSON) -> list[Problem]:
    spec, name = job["spec"], job["metadata"].get("name", "")
    if spec["completionMode"] not in _MODES:
        return [unsupported("spec.completionMode", spec["completionMode"], _MODES)]
    if spec["completionMode"] == "NonIndexed":
        return []
    if "completions" not in spec:
        return [required("spec.completions", "when completion mode is Indexed")]
    host = f"{name}-{spec['completions'] - 1}"
    if spec["completions"] > 0 and names.dns_label(host):
        return [invalid_value("metadata.name", name, f"will not able to create pod with invalid DNS label: {host}")]
    return []


def _not_run(spec: JSON) -> list[Problem]:
    """What a real cluster does and this one does not."""
    problems = [
        forbidden(f"spec.{name}", "the embedded cluster does not act on it; leave the field out")
        for name in _NOT_RUN
        if name in spec
    ]
    if spec["podReplacementPolicy"] != "TerminatingOrFailed":
        why = "the embedded cluster replaces pods as TerminatingOrFailed says; leave the field out"
        problems.append(forbidden("spec.podReplacementPolicy", why))
    return problems


def _comparable(job: JSON, old: JSON) -> JSON:
    """The fields that do not change; where a Job may be scheduled can be changed while it is suspended and has no pods.

    An indexed Job may change its size if parallelism goes along.
    """
    spec = dict(job["spec"])
    if spec["completionMode"] == "Indexed" and spec.get("completions") == spec["parallelism"]:
        was = old["spec"]
        if was.get("completions") == was["parallelism"]:
            spec["completions"] = was["completions"]
    status = old.get("status", {})
    if old["spec"]["suspend"] and not status.get("startTime") and not status.get("active"):
        template = spec["template"]
        pod = {key: value for key, value in template["spec"].items() if key not in _SCHEDULING}
        spec["template"] = {"spec": pod}
    return spec


class CronJobs(Strategy):
    """Known by name, so that asking for them tells why there are none."""

    generation = True

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        remedy = "create a Job instead: kubectl create job NAME --image=IMAGE"
        return [forbidden("spec.schedule", f"the embedded cluster runs no CronJobs; {remedy}")]
