"""Field errors of label selectors, and of lists of label keys beside them.

Rules: Kubernetes 1.36, apimachinery, pkg/apis/meta/v1/validation/validation.go; pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden, invalid_value, required

WRONG_OPERATOR: Final = "not a valid selector operator"


def label_selector_problems(selector: JSON | None, at: str) -> list[Problem]:
    """A selector of objects by their labels, if there is one."""
    if not selector:
        return []
    found = names.label_problems(selector.get("matchLabels") or {}, f"{at}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        found += requirement_problems(requirement, f"{at}.matchExpressions[{index}]")
    return found


def requirement_problems(
    requirement: JSON, at: str, *, ordered: bool = False, check_values: bool = True
) -> list[Problem]:
    """One requirement; `ordered` ones can compare numbers, too."""
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    found: list[Problem] = []
    if operator in ("In", "NotIn"):
        if not values:
            found.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            found.append(forbidden(f"{at}.values", detail))
    elif ordered and operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.append(required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        found.append(invalid_value(f"{at}.operator", operator, WRONG_OPERATOR))
    found += names.label_name_problems(requirement.get("key"), f"{at}.key")
    return found + _value_problems(values, f"{at}.values") if check_values else found


def _value_problems(values: Sequence[str], at: str) -> list[Problem]:
    """Values that labels are compared with."""
    return [
        invalid_value(f"{at}[{index}]", value, wrong)
        for index, value in enumerate(values)
        if (wrong := names.label_value(value))
    ]


def label_key_problems(term: JSON, at: str) -> list[Problem]:
    """`matchLabelKeys` and `mismatchLabelKeys`: labels of the pod itself that become part of the selector."""
    selector, wanted = term.get("labelSelector"), term.get("matchLabelKeys") or ()
    unwanted = term.get("mismatchLabelKeys") or ()
    found: list[Problem] = []
    for part, keys in (("matchLabelKeys", wanted), ("mismatchLabelKeys", unwanted)):
        if keys and selector is None:
            found.append(forbidden(f"{at}.{part}", "must not be specified when labelSelector is not set"))
        elif keys:
            for index, key in enumerate(keys):
                found += names.label_name_problems(key, f"{at}.{part}[{index}]")
    known = set((selector or {}).get("matchLabels") or {})
    for requirement in (selector or {}).get("matchExpressions") or ():
        key = requirement.get("key", "")
        if key in wanted and key in known:
            detail = "exists in both matchLabelKeys and labelSelector"
            found.append(invalid_value(f"{at}[{wanted.index(key)}]", key, detail))
        known.add(key)
    return found + [
        invalid_value(f"{at}.matchLabelKeys[{index}]", key, "exists in both matchLabelKeys and mismatchLabelKeys")
        for index, key in enumerate(wanted)
        if key in unwanted
    ]
