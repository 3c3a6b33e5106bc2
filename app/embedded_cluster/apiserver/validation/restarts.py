"""Field errors of when containers are restarted: by themselves, and when they get more or less than before.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    duplicate,
    invalid_value,
    required,
    too_many,
    unsupported,
)

_POLICIES: Final = ("Always", "Never", "OnFailure")
_ACTIONS: Final = ("Restart", "RestartAllContainers")
_OPERATORS: Final = ("In", "NotIn")
_MOST_RULES: Final = 20
_MOST_CODES: Final = 255
_RESIZABLE: Final = ("cpu", "memory")
_RESIZE_POLICIES: Final = ("NotRequired", "RestartContainer")


def problems(container: JSON, at: str) -> list[Problem]:
    """Of the restart policy of a container and its exceptions."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    found: list[Problem] = []
    if policy is None and rules:
        found.append(required(f"{at}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    elif policy is not None and policy not in _POLICIES:
        found.append(unsupported(f"{at}.restartPolicy", policy, _POLICIES))
    if len(rules) > _MOST_RULES:
        found.append(too_many(f"{at}.restartPolicyRules", len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        found += _rule_problems(rule, f"{at}.restartPolicyRules[{index}]")
    return found


def _rule_problems(rule: JSON, at: str) -> list[Problem]:
    found: list[Problem] = []
    if rule.get("action") not in _ACTIONS:
        found.append(unsupported(f"{at}.action", rule.get("action", ""), _ACTIONS))
    codes = rule.get("exitCodes")
    if codes is None:
        return [*found, required(f"{at}.exitCodes", "must be specified")]
    if codes.get("operator") not in _OPERATORS:
        found.append(unsupported(f"{at}.exitCodes.operator", codes.get("operator", ""), _OPERATORS))
    if len(codes.get("values") or ()) > _MOST_CODES:
        found.append(too_many(f"{at}.exitCodes.values", len(codes["values"]), _MOST_CODES))
    return found


def resize_problems(policies: Iterable[JSON], at: str, restart_policy: str) -> list[Problem]:
    """Of `resizePolicy`; a pod that is never restarted cannot be restarted for this either."""
    found: list[Problem] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, wanted = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            found.append(duplicate(f"{at}[{index}]", name))
        seen.add(name)
        for value, choices in ((name, _RESIZABLE), (wanted, _RESIZE_POLICIES)):
            if not value:
                found.append(required(at))
            elif value not in choices:
                found.append(unsupported(at, value, choices))
        if restart_policy == "Never" and wanted != "NotRequired":
            found.append(invalid_value(at, wanted, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
    return found


def initial_resize_problems(container: JSON, at: str) -> list[Problem]:
    """Of an init container that ends before the others start."""
    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    return [
        invalid_value(f"{at}.resizePolicy[{index}].restartPolicy", "RestartContainer", detail)
        for index, policy in enumerate(container.get("resizePolicy") or ())
        if policy.get("restartPolicy") == "RestartContainer"
    ]
