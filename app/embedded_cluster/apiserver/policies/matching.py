"""Which requests a policy or a binding is about.

Rules: Kubernetes 1.36, apiserver/pkg/admission/plugin/policy/matching and plugin/webhook/predicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from embedded_cluster.apiserver.labelselectors import selects
from embedded_cluster.apiserver.policies.operation import Operation
from embedded_cluster.apiserver.registry import Registry, Resource
from embedded_cluster.apiserver.statuses import JSON
from embedded_cluster.apiserver.strategy import Lookup


class Matcher:
    """Matches requests to a server with these resources."""

    def __init__(self, registry: Registry, lookup: Lookup) -> None:
        self._registry = registry
        self._lookup = lookup

    def matched(self, resources: JSON, operation: Operation) -> Resource | None:
        """The resource as which the request matches: the one it names, or another version of that; None if it does
        not."""
        if resources.get("namespaceSelector") and not self._namespace_selected(resources, operation):
            return None
        selector = resources.get("objectSelector")
        if selector and not any(selects(selector, _labels(obj)) for obj in operation.objects):
            return None
        exact = resources.get("matchPolicy") == "Exact"
        if self._ruled(resources.get("excludeResourceRules") or (), operation, exact) is not None:
            return None
        if not resources.get("resourceRules"):
            return operation.resource
        return self._ruled(resources["resourceRules"], operation, exact)

    def _namespace_selected(self, resources: JSON, operation: Operation) -> bool:
        """Of a namespace its own labels count; other cluster-wide objects are always selected."""
        kind = operation.resource.kind
        if kind.key == ("", "namespaces") and not operation.subresource:
            return selects(resources["namespaceSelector"], _labels(operation.objects[0]))
        if not kind.namespaced:
            return True
        return selects(resources["namespaceSelector"], _labels(self._lookup("namespaces", "", operation.namespace)))

    def _ruled(self, rules: Iterable[JSON], operation: Operation, exact: bool) -> Resource | None:
        own, listed = operation.resource, list(rules)
        others = [] if exact else [r for r in self._registry.resources if r.kind.key == own.kind.key and r is not own]
        for resource in (own, *others):
            if any(_applies(rule, operation, resource) for rule in listed):
                return resource
        return None


def _labels(obj: JSON | None) -> Mapping[str, str]:
    labels: Mapping[str, str] = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return labels


def _applies(rule: JSON, operation: Operation, resource: Resource) -> bool:
    kind, names = resource.kind, rule.get("resourceNames")
    scope = "Namespaced" if kind.namespaced else "Cluster"
    return (
        rule.get("scope", "*") in ("*", scope)
        and _among(operation.verb, rule["operations"])
        and _among(kind.group, rule["apiGroups"])
        and _among(resource.version, rule["apiVersions"])
        and any(_names(pattern, kind.plural, operation.subresource) for pattern in rule["resources"])
        and (not names or operation.name in names)
    )


def _among(value: str, values: list[str]) -> bool:
    return "*" in values or value in values


def _names(pattern: str, plural: str, subresource: str) -> bool:
    """`pods`, `*`, `pods/status`, `pods/*`, `*/status`, `*/*`."""
    wanted, slash, below = pattern.partition("/")
    if wanted not in ("*", plural):
        return False
    return (below in ("*", subresource)) if slash else not subresource
