"""One HTTP request and its answer, free of the HTTP library: what handlers take and return.

`RequestInfo` is what a path, a method and a query ask for, as in the Kubernetes API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import orjson
import yaml

from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.statuses import (
    JSON,
    StatusError,
    bad_request,
    invalid,
    unsupported,
    unsupported_media_type,
)
from embedded_cluster.apiserver.strategy import Caller, WriteOptions
from embedded_cluster.apiserver.watch import Watcher

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


def truthy(value: str | None) -> bool:
    """A boolean query parameter: present and not false."""
    return value is not None and value.lower() not in ("false", "0")


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        if truthy(query.get("watch")):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    return _VERBS.get(method, method.lower())


_OPTION_KINDS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
JSON_TYPE: Final = "application/json"
APPLY_TYPE: Final = "application/apply-patch+yaml"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_NO_PROTOBUF: Final = (
    "the embedded cluster reads JSON and YAML, not protobuf; to create an object, run "
    "`kubectl create ... --dry-run=client -o yaml | kubectl apply -f -`"
)
_YAML_TYPES: Final = ("application/yaml", APPLY_TYPE)


@dataclass(frozen=True)
class Incoming:
    """A request as received; `body` is complete."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @cached_property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @cached_property
    def user_agent(self) -> str:
        return self.headers.get("User-Agent", "")

    @cached_property
    def accept(self) -> str:
        return self.headers.get("Accept", "")

    @cached_property
    def manager(self) -> str:
        """The field manager of a write: as said, else the program's name."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0]

    def document(self) -> Any:
        """The body as JSON, or as YAML for a YAML content type; raises 400 or 415."""
        if self.content_type == _PROTOBUF:
            raise StatusError(415, "UnsupportedMediaType", _NO_PROTOBUF)
        if self.content_type and self.content_type not in (JSON_TYPE, *_YAML_TYPES) and "json" not in self.content_type:
            raise unsupported_media_type((JSON_TYPE, "application/yaml"))
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            if self.content_type not in _YAML_TYPES:
                raise bad_request(f"the body of the request is not valid JSON: {error}") from None
        try:
            return yaml.safe_load(self.body)
        except yaml.YAMLError as error:
            raise bad_request(f"error decoding YAML: {error}") from None

    def json_object(self) -> JSON:
        """The body as a JSON object; raises 400."""
        document = self.document()
        if not isinstance(document, dict):
            raise bad_request("the body of the request must be an object")
        return document


@dataclass(frozen=True)
class APIResponse:
    """A complete answer."""

    code: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON_TYPE
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Streaming:
    """An answer without an end: a watch that was not started yet."""

    watcher: Watcher
    resource: ServedResource
    timeout: float
    bookmarks: bool


@dataclass(frozen=True)
class ResourceRequest:
    """A request for a resource that exists, with what follows from its query."""

    info: RequestInfo
    resource: ServedResource
    incoming: Incoming
    options: WriteOptions


def document(value: object, code: int = 200) -> APIResponse:
    """An answer with a JSON document."""
    return APIResponse(code, orjson.dumps(value))


def failure(error: StatusError) -> APIResponse:
    """An answer with the Status of an error."""
    return APIResponse(error.code, orjson.dumps(error.body()), error.headers)


def options_of(incoming: Incoming, caller: Caller, warnings: list[str]) -> WriteOptions:
    """The options of a write, from its query; raises 400 for values that do not exist."""
    query = incoming.query
    dry_run, validation = query.get("dryRun", ""), query.get("fieldValidation") or "Warn"
    problems = []
    if dry_run not in ("", "All"):
        problems.append(unsupported("dryRun", [dry_run], ("All",)))
    if validation not in ("Strict", "Warn", "Ignore"):
        problems.append(unsupported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
    if problems:
        raise invalid("meta.k8s.io", _OPTION_KINDS.get(incoming.method, "DeleteOptions"), "", problems)
    return WriteOptions(
        dry_run=bool(dry_run),
        manager=query.get("fieldManager", "") if incoming.content_type == APPLY_TYPE else incoming.manager,
        validation=validation,
        force=query.get("force", "").lower() in ("true", "1"),
        caller=caller,
        warnings=warnings,
    )
