"""The variables of admission policies, and the types that the API server declares for them.

What they are evaluated with is plain JSON all the same: a time that is declared is a text, and `UID` is `uid`.

Rules: Kubernetes 1.36, apiserver/pkg/admission/plugin/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dra_extender.cel import types
from dra_extender.cel.types import Type

VARIABLES: Final = Type("struct", "kubernetes.variables")
"""The type of `variables`; its fields are those of the policy."""
NAMESPACE: Final = Type("struct", "kubernetes.Namespace")
REQUEST: Final = Type("struct", "kubernetes.AdmissionRequest")
_METADATA: Final = Type("struct", "kubernetes.NamespaceMetadata")
_SPEC: Final = Type("struct", "kubernetes.NamespaceSpec")
_STATUS: Final = Type("struct", "kubernetes.NamespaceStatus")
_KIND: Final = Type("struct", "kubernetes.GroupVersionKind")
_RESOURCE: Final = Type("struct", "kubernetes.GroupVersionResource")
_USER: Final = Type("struct", "kubernetes.UserInfo")
_CONDITION: Final = Type("struct", "kubernetes.NamespaceCondition")
_STRINGS: Final = types.list_of(types.STRING)
_BY_NAME: Final = types.map_of(types.STRING, types.STRING)

STRUCTS: Final[Mapping[str, Mapping[str, Type]]] = {
    NAMESPACE.name: {"metadata": _METADATA, "spec": _SPEC, "status": _STATUS},
    _METADATA.name: {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), types.STRING),
        **dict.fromkeys(("labels", "annotations"), _BY_NAME),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), types.TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), types.INT),
        "finalizers": _STRINGS,
    },
    _SPEC.name: {"finalizers": _STRINGS},
    _STATUS.name: {"phase": types.STRING, "conditions": types.list_of(_CONDITION)},
    _CONDITION.name: {
        **dict.fromkeys(("status", "type", "message", "reason"), types.STRING),
        "lastTransitionTime": types.TIMESTAMP,
    },
    REQUEST.name: {
        **dict.fromkeys(("kind", "requestKind"), _KIND),
        **dict.fromkeys(("resource", "requestResource"), _RESOURCE),
        **dict.fromkeys(("subResource", "requestSubResource", "name", "namespace", "operation"), types.STRING),
        "userInfo": _USER,
        "dryRun": types.BOOL,
        "options": types.DYN,
    },
    _KIND.name: dict.fromkeys(("group", "version", "kind"), types.STRING),
    _RESOURCE.name: dict.fromkeys(("group", "version", "resource"), types.STRING),
    _USER.name: {
        **dict.fromkeys(("username", "uid"), types.STRING),
        "groups": _STRINGS,
        "extra": types.map_of(types.STRING, _STRINGS),
    },
}
"""The fields of the types, by their names."""

ALWAYS: Final[Mapping[str, Type]] = {
    "object": types.DYN,
    "oldObject": types.DYN,
    "request": REQUEST,
    "namespaceObject": NAMESPACE,
    "authorizer": types.NAMED["kubernetes.authorization.Authorizer"],
}
"""The variables of every expression of a policy."""
