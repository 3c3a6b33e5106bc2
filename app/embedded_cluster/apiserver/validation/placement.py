"""Field errors of where a pod may run: affinity, tolerations, spreading over a topology.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, duplicate, invalid_value, required, unsupported
from embedded_cluster.apiserver.validation import nodeselectors
from embedded_cluster.apiserver.validation.parts import name_problems
from embedded_cluster.apiserver.validation.selectors import label_key_problems, label_selector_problems

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HEAVIEST: Final = 100
_COMPARISONS: Final = ("Lt", "Gt")
_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSIONS: Final = ("Honor", "Ignore")


def affinity_problems(affinity: JSON, at: str) -> list[Problem]:
    """Of the nodes that a pod wants, and of the pods that it wants to be with or apart from."""
    found: list[Problem] = []
    if "nodeAffinity" in affinity:
        found += _node_affinity_problems(affinity["nodeAffinity"], f"{at}.nodeAffinity")
    for part in ("podAffinity", "podAntiAffinity"):
        if part in affinity:
            found += _pod_affinity_problems(affinity[part], f"{at}.{part}")
    return found


def _node_affinity_problems(affinity: JSON, at: str) -> list[Problem]:
    wanted = affinity.get(_REQUIRED)
    found = [] if wanted is None else nodeselectors.problems(wanted, f"{at}.{_REQUIRED}")
    for index, term in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{at}.{_PREFERRED}[{index}]"
        found += _weight_problems(term, where)
        found += nodeselectors.term_problems(term.get("preference") or {}, f"{where}.preference", check_values=False)
    return found


def _weight_problems(term: JSON, at: str) -> list[Problem]:
    weight = term.get("weight", 0)
    return [] if 1 <= weight <= _HEAVIEST else [invalid_value(f"{at}.weight", weight, "must be in the range 1-100")]


def _pod_affinity_problems(affinity: JSON, at: str) -> list[Problem]:
    found: list[Problem] = []
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        found += _pod_term_problems(term, f"{at}.{_REQUIRED}[{index}]")
    for index, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{at}.{_PREFERRED}[{index}]"
        found += _weight_problems(weighted, where)
        found += _pod_term_problems(weighted.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")
    return found


def _pod_term_problems(term: JSON, at: str) -> list[Problem]:
    found = label_selector_problems(term.get("labelSelector"), f"{at}.labelSelector")
    found += label_selector_problems(term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for name in term.get("namespaces") or ():
        found += name_problems(name, f"{at}.namespace", names.dns_label)
    found += label_key_problems(term, at)
    key = term.get("topologyKey", "")
    if not key:
        found.append(required(f"{at}.topologyKey", "can not be empty"))
    return found + names.label_name_problems(key, f"{at}.topologyKey")


def toleration_problems(tolerations: Iterable[JSON], at: str) -> list[Problem]:
    """Of the taints that a pod puts up with."""
    found: list[Problem] = []
    for index, toleration in enumerate(tolerations):
        found += _toleration_problems(toleration, f"{at}[{index}]")
    return found


def _toleration_problems(toleration: JSON, at: str) -> list[Problem]:
    key, operator, value = (toleration.get(part, "") for part in ("key", "operator", "value"))
    effect, found = toleration.get("effect", ""), []
    if key and (wrong := names.qualified_name(key)):
        found.append(invalid_value(f"{at}.key", key, wrong))
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(invalid_value(f"{at}.operator", operator, detail))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(invalid_value(f"{at}.effect", effect, detail))
    if operator in ("", "Equal"):
        if wrong := names.label_value(value):
            found.append(invalid_value(f"{at}.operator", value, wrong))
    elif operator in _COMPARISONS:  # behind a feature gate that is off
        found.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists", *_COMPARISONS)))
    elif operator != "Exists":
        found.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
    elif value:
        found.append(invalid_value(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'"))
    if effect and effect not in _EFFECTS:
        found.append(unsupported(f"{at}.effect", effect, _EFFECTS))
    return found


def spread_problems(constraints: Sequence[JSON], at: str) -> list[Problem]:
    """Of how evenly pods are spread."""
    found: list[Problem] = []
    for index, constraint in enumerate(constraints):
        where = f"{at}[{index}]"
        found += _topology_problems(constraint, where)
        key, action = _identity(constraint)
        if (key, action) in map(_identity, constraints[index + 1 :]):
            found.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        found += _domain_problems(constraint, action, where)
        for part in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(part, "Honor") not in _INCLUSIONS:
                found.append(unsupported(f"{where}.{part}", constraint[part], _INCLUSIONS))
        found += label_key_problems(constraint, where)
        found += label_selector_problems(constraint.get("labelSelector"), f"{where}.labelSelector")
    return found


def _identity(constraint: JSON) -> tuple[str, str]:
    return constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")


def _topology_problems(constraint: JSON, at: str) -> list[Problem]:
    (key, action), skew = _identity(constraint), constraint.get("maxSkew", 0)
    found = [] if skew > 0 else [invalid_value(f"{at}.maxSkew", skew, "must be greater than zero")]
    if not key:
        found.append(required(f"{at}.topologyKey", "can not be empty"))
    if action not in _ACTIONS:
        found.append(unsupported(f"{at}.whenUnsatisfiable", action, _ACTIONS))
    return found


def _domain_problems(constraint: JSON, action: str, at: str) -> list[Problem]:
    least = constraint.get("minDomains")
    if least is None:
        return []
    found = [] if least > 0 else [invalid_value(f"{at}.minDomains", least, "must be greater than zero")]
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        found.append(invalid_value(f"{at}.minDomains", least, detail))
    return found
