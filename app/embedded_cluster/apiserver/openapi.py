"""OpenAPI v3 documents, one per group and version, with what kubectl reads in them.

kubectl asks whether the server validates a kind: whether its PATCH takes `fieldValidation`. It finds no schemas.
Because no PATCH offers strategic merge here, `kubectl apply` uses the types that are built into it; `kubectl explain`
has nothing to show. The OpenAPI v2 document is empty (and in protobuf, where no bytes are an empty document): kubectl
reads it only for kinds that v3 does not have.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson

from embedded_cluster.apiserver.discovery import VERSION
from embedded_cluster.apiserver.registry import Registry, ServedResource
from embedded_cluster.apiserver.requests import APIResponse
from embedded_cluster.apiserver.statuses import JSON, no_such_resource

_SECOND: Final = "/openapi/v2"
_SECOND_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_ROOT: Final = "/openapi/v3"
_REF: Final = "#/components/schemas/"
_TYPES: Final = {"str": "string", "int": "integer", "int64": "integer", "float": "number", "bool": "boolean"}
_PATCHES: Final = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")


class OpenAPI:
    """The documents, each built when it is first asked for."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._built: dict[str, bytes] = {}

    def answer(self, path: str) -> APIResponse:
        """The document at `path`; raises 404."""
        if path == _SECOND:
            return APIResponse(200, b"", content_type=_SECOND_TYPE)
        if path == _ROOT:
            return APIResponse(200, orjson.dumps({"paths": {place: self._link(place) for place in self._places()}}))
        place = path.removeprefix(_ROOT + "/")
        if place not in self._places():
            raise no_such_resource()
        return APIResponse(200, self._document(place))

    def _places(self) -> dict[str, tuple[str, str]]:
        return {
            f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
            for group, versions in self._registry.groups().items()
            for version in versions
        }

    def _link(self, place: str) -> JSON:
        fingerprint = hashlib.sha256(f"{VERSION['gitVersion']}/{place}".encode()).hexdigest().upper()
        return {"serverRelativeURL": f"{_ROOT}/{place}?hash={fingerprint}"}

    def _document(self, place: str) -> bytes:
        if place not in self._built:
            group, version = self._places()[place]
            resources = self._registry.of_version(group, version)
            schemas = {
                resource.model: {"type": "object", "x-kubernetes-group-version-kind": [_gvk(resource)]}
                for resource in resources
            }
            document = {
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
                "paths": {path: item for resource in resources for path, item in _paths(resource).items()},
                "components": {"schemas": schemas},
            }
            self._built[place] = orjson.dumps(document)
        return self._built[place]


def _gvk(resource: ServedResource) -> JSON:
    return {"group": resource.kind.group, "version": resource.version, "kind": resource.kind.kind}


# paths


def _paths(resource: ServedResource) -> dict[str, JSON]:
    kind = resource.kind
    root = f"/apis/{resource.api_version}" if kind.group else f"/api/{resource.version}"
    place = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    paths = {place: _collection(resource), f"{place}/{{name}}": _object(resource)}
    if kind.status:
        paths[f"{place}/{{name}}/status"] = _object(resource, ("get", "put", "patch"))
    return paths


def _operation(resource: ServedResource, action: str, parameters: tuple[str, ...], body: tuple[str, ...] = ()) -> JSON:
    reference = {"schema": {"$ref": _REF + resource.model}}
    operation: JSON = {
        "operationId": f"{action}-{resource.kind.plural}-{resource.api_version}",
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in parameters],
        "responses": {"200": {"description": "OK", "content": {"application/json": reference}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    if body:
        patch: dict[str, Any] = {"schema": {"type": "object"}}
        operation["requestBody"] = {"content": dict.fromkeys(body, patch if action == "patch" else reference)}
    return operation


def _collection(resource: ServedResource) -> JSON:
    return {
        "get": _operation(resource, "list", ("continue", "fieldSelector", "labelSelector", "limit", "watch")),
        "post": _operation(resource, "post", _WRITE_PARAMETERS, ("application/json",)),
        "delete": _operation(resource, "deletecollection", ("dryRun", "fieldSelector", "labelSelector")),
    }


def _object(resource: ServedResource, methods: tuple[str, ...] = ("get", "put", "patch", "delete")) -> JSON:
    bodies: dict[str, tuple[str, ...]] = {"put": ("application/json",), "patch": _PATCHES}
    parameters = {
        "get": (),
        "put": _WRITE_PARAMETERS,
        "patch": (*_WRITE_PARAMETERS, "force"),
        "delete": ("dryRun", "gracePeriodSeconds", "propagationPolicy"),
    }
    return {method: _operation(resource, method, parameters[method], bodies.get(method, ())) for method in methods}
