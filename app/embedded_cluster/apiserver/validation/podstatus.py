"""Field errors of the status of a pod: its conditions, and what it says of claims.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, duplicate, invalid_value, required
from embedded_cluster.apiserver.validation.parts import set_problems

MOST: Final = 10_000


def status_problems(new: JSON) -> list[Problem]:
    """Problems of a pod's status: its conditions and what it says of claims."""
    entries = new["status"].get("resourceClaimStatuses") or ()
    known = {entry["name"] for entry in new["spec"].get("resourceClaims") or ()}
    at = "status.resourceClaimStatuses"
    problems = set_problems(entries, at, MOST, lambda entry: entry.get("name", ""))
    for index, entry in enumerate(entries):
        name, claim = entry.get("name", ""), entry.get("resourceClaimName")
        if name not in known:
            problems.append(
                invalid_value(f"{at}[{index}].name", name, "must match the name of an entry in `spec.resourceClaims`")
            )
        if claim is not None and (wrong := names.dns_subdomain(claim)):
            problems.append(invalid_value(f"{at}[{index}].resourceClaimName", claim, wrong))
    problems += _extended_claim_problems(new)
    for index, condition in enumerate(new["status"].get("conditions") or ()):
        if wrong := names.qualified_name(condition.get("type", "")):
            problems.append(invalid_value(f"status.conditions[{index}].Type", condition.get("type", ""), wrong))
    return problems


def _extended_claim_problems(new: JSON) -> list[Problem]:
    """The claim behind extended resources: its name and what it gives to which container."""
    extended, at = new["status"].get("extendedResourceClaimStatus"), "status.extendedResourceClaimStatus"
    if extended is None:
        return []
    problems: list[Problem] = []
    if wrong := names.dns_subdomain(extended.get("resourceClaimName", "")):
        problems.append(invalid_value(f"{at}.resourceClaimName", extended.get("resourceClaimName", ""), wrong))
    mappings = extended.get("requestMappings") or ()
    if not mappings:
        problems.append(required(f"{at}.requestMappings", "at least one request mapping is required"))
    asked = {
        container["name"]: container.get("resources", {}).get("requests") or {}
        for part in ("containers", "initContainers")
        for container in new["spec"].get(part) or ()
    }
    seen: set[tuple[str, str]] = set()
    for index, mapping in enumerate(mappings):
        where, container = f"{at}.requestMappings[{index}]", mapping.get("containerName", "")
        resource, request = mapping.get("resourceName", ""), mapping.get("requestName", "")
        if container not in asked:
            problems.append(invalid_value(f"{where}.containerName", container, "must match the name of a container"))
        elif resource not in asked[container]:
            problems.append(invalid_value(f"{where}.resourceName", resource, "must be requested by the container"))
        if wrong := names.dns_label(request):
            problems.append(invalid_value(f"{at}.requestName", request, wrong))
        if (container, resource) in seen:
            problems.append(duplicate(where, f"{container}/{resource}"))
        seen.add((container, resource))
    return problems
