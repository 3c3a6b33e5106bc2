"""Field errors of admission policies and their bindings.

Rules: Kubernetes 1.36, pkg/apis/admissionregistration/validation/validation.go. What this server does not evaluate is
refused with what to do instead; nothing is accepted and then ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.policies.compiled import compile_policy
from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    duplicate,
    forbidden,
    invalid_value,
    required,
    unsupported,
)
from embedded_cluster.apiserver.strategy import Context
from embedded_cluster.apiserver.validation.selectors import label_selector_problems

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_KIND: Final = re.compile(r"[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?")
_BOTH: Final = "validations or auditAnnotations must contain at least one item"
_NO_LANGUAGE: Final = (
    "this embedded API server was started without an expression language, so that it cannot enforce policies: "
    "start it with one (language), or leave the policy out"
)
_NO_AUDIT: Final = "the embedded API server makes no audit annotations: remove them, or try the policy on a cluster"


def policy_problems(spec: JSON, context: Context) -> list[Problem]:
    """Problems of a ValidatingAdmissionPolicySpec."""
    if context.language is None:
        return [forbidden("spec", _NO_LANGUAGE)]
    found = _choice(spec.get("failurePolicy"), "spec.failurePolicy", ("Fail", "Ignore"))
    if spec.get("paramKind") is not None:
        found += _param_kind_problems(spec["paramKind"])
    constraints = spec.get("matchConstraints")
    if constraints is None:
        found.append(required("spec.matchConstraints"))
    else:
        if not constraints.get("resourceRules"):
            found.append(required("spec.matchConstraints.resourceRules"))
        found += match_problems(constraints, "spec.matchConstraints")
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        found += [required("spec.validations", _BOTH), required("spec.auditAnnotations", _BOTH)]
    if spec.get("auditAnnotations"):
        found.append(forbidden("spec.auditAnnotations", _NO_AUDIT))
    return found + compile_policy(spec, context.language)[1]


def _choice(value: str | None, at: str, choices: Sequence[str]) -> list[Problem]:
    return [unsupported(at, value, choices)] if value and value not in choices else []


def _param_kind_problems(kind: JSON) -> list[Problem]:
    at, found = "spec.paramKind", []
    version = kind.get("apiVersion", "")
    if not version:
        found.append(required(f"{at}.apiVersion"))
    elif version.count("/") > 1:
        found.append(invalid_value(f"{at}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    if not kind.get("kind"):
        found.append(required(f"{at}.kind"))
    elif not _KIND.fullmatch(kind["kind"]):
        wrong = (
            "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric "
            "characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. "
            "'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        )
        found.append(invalid_value(f"{at}.kind", kind["kind"], wrong))
    return found


def match_problems(resources: JSON, at: str) -> list[Problem]:
    """Problems of MatchResources: rules, selectors and how versions match."""
    found = _choice(resources.get("matchPolicy"), f"{at}.matchPolicy", ("Equivalent", "Exact"))
    for part in ("namespaceSelector", "objectSelector"):
        found += label_selector_problems(resources.get(part), f"{at}.{part}")
    for part in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(resources.get(part) or ()):
            found += _rule_problems(rule, f"{at}.{part}[{index}]")
    return found


def _rule_problems(rule: JSON, at: str) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        where = f"{at}.resourceNames[{index}]"
        if "/" in name:
            found.append(invalid_value(where, name, "may not contain '/'"))
        elif name in seen:
            found.append(duplicate(where, name))
        seen.add(name)
    operations = rule.get("operations") or ()
    if not operations:
        found.append(required(f"{at}.operations"))
    elif "*" in operations and len(operations) > 1:
        found.append(
            invalid_value(f"{at}.operations", operations, "if '*' is present, must not specify other operations")
        )
    for index, operation in enumerate(operations):
        found += _choice(operation or " ", f"{at}.operations[{index}]", _OPERATIONS)
    for part, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(part) or ()
        if not values:
            found.append(required(f"{at}.{part}"))
        elif "*" in values and len(values) > 1:
            found.append(invalid_value(f"{at}.{part}", values, f"if '*' is present, must not specify other {what}"))
    found += _resources_problems(rule.get("resources") or (), f"{at}.resources")
    return found + _choice(rule.get("scope"), f"{at}.scope", ("*", "Cluster", "Namespaced"))


def _resources_problems(resources: Collection[str], at: str) -> list[Problem]:
    if not resources:
        return [required(at)]
    if "*/*" in resources and len(resources) > 1:
        return [invalid_value(at, resources, "if '*/*' is present, must not specify other resources")]
    if "*" in resources and any(name != "*" and "/" not in name for name in resources):
        detail = "if '*' is present, must not specify other resources without subresources"
        return [invalid_value(at, resources, detail)]
    return []


def binding_problems(spec: JSON) -> list[Problem]:
    """Problems of a ValidatingAdmissionPolicyBindingSpec."""
    found: list[Problem] = []
    policy, actions = spec.get("policyName", ""), spec.get("validationActions") or ()
    if not policy:
        found.append(required("spec.policyName"))
    elif wrong := names.dns_subdomain(policy):
        found.append(invalid_value("spec.policyName", policy, wrong))
    if spec.get("paramRef") is not None:
        found += _param_ref_problems(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        found += match_problems(spec["matchResources"], "spec.matchResources")
    return found + _action_problems(actions, "spec.validationActions")


def _action_problems(actions: Sequence[str], at: str) -> list[Problem]:
    if not actions:
        return [required(at, "at least one validation action is required")]
    found: list[Problem] = []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            found.append(unsupported(f"{at}[{index}]", action, _ACTIONS))
        elif action in actions[:index]:
            found.append(duplicate(f"{at}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn "
            "(repeating the same validation failure information in the API response and headers serves no purpose)"
        )
        found.append(invalid_value(at, actions, detail))
    return found


def _param_ref_problems(reference: JSON, at: str) -> list[Problem]:
    found: list[Problem] = []
    if reference.get("name") and reference.get("selector") is not None:
        both = "name and selector are mutually exclusive"
        found += [forbidden(f"{at}.name", both), forbidden(f"{at}.selector", both)]
    elif not reference.get("name") and reference.get("selector") is None:
        found.append(required(at, "one of name or selector must be specified"))
    found += label_selector_problems(reference.get("selector"), f"{at}.selector")
    action = reference.get("parameterNotFoundAction")
    if not action:
        return [*found, required(f"{at}.parameterNotFoundAction")]
    return found + _choice(action, f"{at}.parameterNotFoundAction", ("Deny", "Allow"))
