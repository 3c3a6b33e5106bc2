"""Field errors of node selectors: of pods, of slices and devices, of allocations.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, invalid_value, required
from embedded_cluster.apiserver.validation.parts import name_problems
from embedded_cluster.apiserver.validation.selectors import WRONG_OPERATOR, requirement_problems

_FIELD: Final = "metadata.name"


def problems(selector: JSON, at: str, *, exactly_one: bool = False) -> list[Problem]:
    """Of a node selector, which has terms; some have exactly one."""
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
        found += term_problems(term, f"{at}.nodeSelectorTerms[{index}]", check_values=True)
    return found


def term_problems(term: JSON, at: str, *, check_values: bool) -> list[Problem]:
    """Of one term. Terms that nodes only should meet may have values that no label has."""
    found: list[Problem] = []
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        where = f"{at}.matchExpressions[{index}]"
        found += requirement_problems(requirement, where, ordered=True, check_values=check_values)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        found += _field_problems(requirement, f"{at}.matchFields[{index}]")
    return found


def _field_problems(requirement: JSON, at: str) -> list[Problem]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    found: list[Problem] = []
    if operator not in ("In", "NotIn"):
        found.append(invalid_value(f"{at}.operator", operator, WRONG_OPERATOR))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(f"{at}.values", detail))
    key = requirement.get("key", "")
    if key != _FIELD:
        return [*found, invalid_value(f"{at}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        found += name_problems(value, f"{at}.values[{index}]", names.dns_subdomain)
    return found
