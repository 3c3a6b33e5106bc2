"""Field errors of label selectors, and of node selectors: of slices, devices and allocations.

Rules: Kubernetes 1.37, apimachinery, pkg/apis/meta/v1/validation/validation.go; pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, FieldError, forbidden, invalid_value, required
from embedded_cluster.apiserver.validation.parts import name_problems

_WRONG_OPERATOR: Final = "not a valid selector operator"


_FIELD: Final = "metadata.name"


def label_selector_problems(selector: JSON | None, at: str) -> list[FieldError]:
    """A selector of objects by their labels, if there is one."""
    if not selector:
        return []
    found = names.label_problems(selector.get("matchLabels") or {}, f"{at}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        found += _requirement_problems(requirement, f"{at}.matchExpressions[{index}]")
    return found


def _requirement_problems(requirement: JSON, at: str, *, ordered: bool = False) -> list[FieldError]:
    """One requirement; `ordered` ones can compare numbers, too."""
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    found: list[FieldError] = []
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
        found.append(invalid_value(f"{at}.operator", operator, _WRONG_OPERATOR))
    found += names.label_name_problems(requirement.get("key"), f"{at}.key")
    return found + _value_problems(values, f"{at}.values")


def _value_problems(values: Sequence[str], at: str) -> list[FieldError]:
    """Values that labels are compared with."""
    return [
        invalid_value(f"{at}[{index}]", value, wrong)
        for index, value in enumerate(values)
        if (wrong := names.label_value(value))
    ]


def node_selector_problems(selector: JSON, at: str, *, exactly_one: bool = False) -> list[FieldError]:
    """Problems of a node selector; some have exactly one term."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        found = [required(f"{at}.nodeSelectorTerms", "must have at least one node selector term")]
        if exactly_one:
            found.append(invalid_value(f"{at}.nodeSelectorTerms", None, "must have exactly one node selector term"))
        return found
    if exactly_one and len(terms) != 1:
        return [invalid_value(f"{at}.nodeSelectorTerms", terms, "must have exactly one node selector term")]
    found = []
    for index, term in enumerate(terms):
        found += _term_problems(term, f"{at}.nodeSelectorTerms[{index}]")
    return found


def _term_problems(term: JSON, at: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        where = f"{at}.matchExpressions[{index}]"
        found += _requirement_problems(requirement, where, ordered=True)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        found += _field_problems(requirement, f"{at}.matchFields[{index}]")
    return found


def _field_problems(requirement: JSON, at: str) -> list[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    found: list[FieldError] = []
    if operator not in ("In", "NotIn"):
        found.append(invalid_value(f"{at}.operator", operator, _WRONG_OPERATOR))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(f"{at}.values", detail))
    key = requirement.get("key", "")
    if key != _FIELD:
        return [*found, invalid_value(f"{at}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        found += name_problems(value, f"{at}.values[{index}]", names.dns_subdomain)
    return found
