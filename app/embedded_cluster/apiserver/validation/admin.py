"""Admin access: only in namespaces that carry the label for it."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden
from embedded_cluster.apiserver.strategy import Context

LABEL: Final = "resource.kubernetes.io/admin-access"
_WHY: Final = f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"


def namespace_allows(namespace: str, context: Context) -> bool:
    found = context.lookup("namespaces", "", namespace) or {}
    labels = found.get("metadata", {}).get("labels", {})
    return bool(labels.get(LABEL) == "true")


def admin_access_problems(spec: JSON, namespace: str, context: Context, at: str) -> list[Problem]:
    """Requests of a claim spec with adminAccess in a namespace that does not allow it."""
    asking = [
        index
        for index, request in enumerate(spec.get("devices", {}).get("requests") or ())
        if (request.get("exactly") or {}).get("adminAccess")
    ]
    if not asking or namespace_allows(namespace, context):
        return []
    return [forbidden(f"{at}.requests[{index}].adminAccess", _WHY) for index in asking]


def result_problems(results: list[JSON], namespace: str, context: Context, at: str) -> list[Problem]:
    """Allocation results with adminAccess in a namespace that does not allow it."""
    asking = [index for index, result in enumerate(results) if result.get("adminAccess")]
    if not asking or namespace_allows(namespace, context):
        return []
    return [forbidden(f"{at}[{index}].adminAccess", _WHY) for index in asking]
