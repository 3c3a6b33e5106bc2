"""Field errors of where a pod may run: node selector, node affinity, tolerations.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from typing import Final

from app.embedded.apiserver import names
from app.embedded.apiserver.statuses import JSON, Problem, invalid_value, unsupported
from app.embedded.apiserver.validation.parts import node_selector_problems

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def problems(spec: JSON, at: str) -> list[Problem]:
    """Of a pod spec."""
    found = names.label_problems(spec.get("nodeSelector") or {}, f"{at}.nodeSelector")
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is not None:
        found += node_selector_problems(required, f"{at}.affinity.nodeAffinity.{_REQUIRED}")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        found += _toleration_problems(toleration, f"{at}.tolerations[{index}]")
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
    elif operator != "Exists":
        found.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
    elif value:
        found.append(invalid_value(f"{at}.operator", toleration, "value must be empty when `operator` is 'Exists'"))
    if effect and effect not in _EFFECTS:
        found.append(unsupported(f"{at}.effect", effect, _EFFECTS))
    return found
