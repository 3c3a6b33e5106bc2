"""Discovery: which groups, versions and resources are served, one document per group and version."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver import reviews
from embedded_cluster.apiserver.registry import Registry, ServedResource
from embedded_cluster.apiserver.statuses import JSON

VERSION: Final[JSON] = {
    "major": "1",
    "minor": "37",
    "emulationMajor": "1",
    "emulationMinor": "37",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "36",
    "gitVersion": "v1.37.2+embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "embedded",
}

_SUBRESOURCES: Final[dict[str, JSON]] = {
    "binding": {"kind": "Binding"},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
}
_CHANGED: Final = ("get", "patch", "update")
_VERBS_BELOW: Final = {"status": _CHANGED, "scale": _CHANGED, "binding": ("create",), "eviction": ("create",)}


class Discovery:
    """Documents computed from the registry; `address` is the host:port clients reach the server at."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._groups = registry.groups()
        for group, _ in reviews.KINDS:
            self._groups.setdefault(group, ["v1"])

    def versions(self, address: str) -> JSON:
        """/api"""
        serves = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": serves}

    def groups(self) -> JSON:
        """/apis"""
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [self._group(name) for name in self._groups if name],
        }

    def group(self, name: str) -> JSON | None:
        """/apis/GROUP"""
        if not name or name not in self._groups:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **self._group(name)}

    def _group(self, name: str) -> JSON:
        versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in self._groups[name]]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def resources(self, group: str, version: str) -> JSON | None:
        """/api/v1, /apis/GROUP/VERSION"""
        if version not in self._groups.get(group, ()):
            return None
        listed: list[JSON] = [
            {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
            for plural, kind in _reviews(group)
        ]
        for resource in self._registry.of_version(group, version):
            listed += self._plain(resource)
        group_version = f"{group}/{version}" if group else version
        head = {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {})}
        return {**head, "groupVersion": group_version, "resources": listed}

    @staticmethod
    def _plain(resource: ServedResource) -> list[JSON]:
        kind = resource.kind
        own: JSON = {"namespaced": kind.namespaced, "kind": kind.kind}
        main: JSON = {"name": kind.plural, "singularName": kind.singular, **own, "verbs": list(kind.verbs)}
        if kind.short_names:
            main["shortNames"] = list(kind.short_names)
        if kind.categories:
            main["categories"] = list(kind.categories)
        below = {"status": own} if kind.status else {}
        below |= {name: {**own, **_SUBRESOURCES[name]} for name in kind.subresources}
        return [main] + [
            {"name": f"{kind.plural}/{name}", "singularName": "", **more, "verbs": list(_VERBS_BELOW[name])}
            for name, more in below.items()
        ]


def _reviews(group: str) -> list[tuple[str, str]]:
    """Plural and kind of the reviews of a group."""
    return [(plural, kind) for (of, plural), kind in reviews.KINDS.items() if of == group]
