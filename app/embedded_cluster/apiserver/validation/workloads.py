"""Field errors of sets of pods: what they choose, what they make, and how the new replaces the old.

Rules: Kubernetes 1.37, pkg/apis/apps/validation/validation.go.
"""

from __future__ import annotations

import re
from typing import Final

from embedded_cluster.apiserver.selectors import selects
from embedded_cluster.apiserver.statuses import JSON, FieldError, forbidden, invalid_value, required, unsupported
from embedded_cluster.apiserver.validation import pods
from embedded_cluster.apiserver.validation.parts import negative_problems
from embedded_cluster.apiserver.validation.selectors import label_selector_problems

_PERCENT: Final = re.compile(r"[0-9]+%")


def label_problems(spec: JSON, selector_problems: list[FieldError]) -> list[FieldError]:
    """Of a selector that does not choose the pods of its own template; none chooses nothing, an empty one all."""
    labels, selector = (spec["template"].get("metadata") or {}).get("labels"), spec.get("selector")
    if selector_problems or (selector is not None and selects(selector, labels or {})):
        return []
    labels = None if labels is None else dict(sorted(labels.items()))
    return [invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")]


def template_problems(spec: JSON, owner: str) -> list[FieldError]:
    """Of the pods that a set makes again and again."""
    template, at = spec["template"], "spec.template"
    found = pods.template_problems(template, at)
    policy = template["spec"]["restartPolicy"]
    if policy != "Always":
        found.append(unsupported(f"{at}.spec.restartPolicy", policy, ("Always",)))
    if "activeDeadlineSeconds" in template["spec"]:
        why = f"activeDeadlineSeconds in {owner} is not Supported"
        found.append(forbidden(f"{at}.spec.activeDeadlineSeconds", why))
    return found


def replica_set_problems(spec: JSON) -> list[FieldError]:
    """Of the spec of a ReplicaSet."""
    return negative_problems(spec, "spec", ("replicas", "minReadySeconds")) + _replicated_problems(spec)


def deployment_problems(spec: JSON) -> list[FieldError]:
    """Of the spec of a Deployment."""
    found = negative_problems(spec, "spec", ("replicas",)) + _replicated_problems(spec)
    strategy, at = spec["strategy"], "spec.strategy"
    if strategy["type"] == "Recreate":
        if "rollingUpdate" in strategy:
            why = "may not be specified when strategy `type` is 'Recreate'"
            found.append(forbidden(f"{at}.rollingUpdate", why))
    elif strategy["type"] == "RollingUpdate":
        for name in ("maxUnavailable", "maxSurge"):
            found += _amount_problems(strategy["rollingUpdate"][name], f"{at}.rollingUpdate.{name}")
    return found + negative_problems(
        spec, "spec", ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    )


def daemon_set_problems(spec: JSON) -> list[FieldError]:
    """Of the spec of a DaemonSet."""
    selector, at = spec.get("selector"), "spec.selector"
    wrong = label_selector_problems(selector, at)
    found = wrong + label_problems(spec, wrong)
    if selector is not None and not selector:
        found.append(invalid_value(at, selector, "empty selector is invalid for daemonset"))
    found += template_problems(spec, "DaemonSet")
    return found + negative_problems(spec, "spec", ("minReadySeconds", "revisionHistoryLimit"))


def _replicated_problems(spec: JSON) -> list[FieldError]:
    selector, at = spec.get("selector"), "spec.selector"
    if selector is None:
        return [required(at), *label_problems(spec, []), *template_problems(spec, "ReplicaSet")]
    wrong = label_selector_problems(selector, at)
    found = [*wrong]
    if not selector:
        found.append(invalid_value(at, selector, "empty selector is invalid for deployment"))
    if wrong:
        return [*found, invalid_value(at, selector, "invalid label selector")]
    return found + label_problems(spec, wrong) + template_problems(spec, "ReplicaSet")


def _amount_problems(amount: int | str, at: str) -> list[FieldError]:
    """Of a number of pods, or of a share of them."""
    if isinstance(amount, int):
        return [] if amount >= 0 else [invalid_value(at, amount, "must be greater than or equal to 0")]
    if _PERCENT.fullmatch(amount):
        return []
    detail = (
        "a valid percent string must be a numeric string followed by an ending '%' "
        f"(e.g. '1%',  or '93%', regex used for validation is '{_PERCENT.pattern}')"
    )
    return [invalid_value(at, amount, detail)]
