"""What a request asks for, read from its method, path and query: the RequestInfo of the Kubernetes API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from embedded_cluster.apiserver.listoptions import truthy

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request for a resource; `name` and `subresource` may be empty. `verb` is as authorisation and audit call it."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str
    name: str
    subresource: str

    @property
    def target(self) -> str:
        """`pods`, `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def resource_request(method: str, path: str, query: Mapping[str, str]) -> RequestInfo | None:
    """The resource request behind `path` (still percent-encoded), or None when it is about something else."""
    parts = [unquote(part) for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    if len(rest) > 3:
        return None
    resource, name, subresource = (*rest, "", "")[:3]
    if resource == "namespaces":
        namespace = ""
    return RequestInfo(_verb(method, name, query), group, version, resource, namespace, name, subresource)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        if truthy(query.get("watch")):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    return _VERBS.get(method, method.lower())
