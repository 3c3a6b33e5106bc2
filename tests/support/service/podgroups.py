"""PodGroups of both APIs on the embedded API server, for tests that need a server with them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from embedded_cluster.apiserver import kinds, printers, schema
from embedded_cluster.apiserver.registry import Kind
from embedded_cluster.apiserver.strategy import RESTStrategy

CORE: Final = "scheduling.k8s.io"
COSCHEDULING: Final = "scheduling.x-k8s.io"


def serve_pod_groups(patch: pytest.MonkeyPatch) -> None:
    """API servers that start from now on serve both kinds. The spec of a custom resource may be anything."""
    patch.setattr(kinds, "KINDS", (*kinds.KINDS, _kind(CORE, "v1alpha2"), _kind(COSCHEDULING, "v1alpha1")))
    fields = {**schema.struct("V1alpha2PodGroup").fields, "spec": schema.FieldSchema("any", "object")}
    patch.setitem(schema._structs, "V1alpha1PodGroup", schema.FieldSchema("struct", "PodGroup", fields=fields))


def _kind(group: str, version: str) -> Kind:
    return Kind(group, version, "PodGroup", "podgroups", True, RESTStrategy(), printers.PLAIN)


def gang(size: int) -> dict[str, Any]:
    """PodGroup default/g of Kubernetes."""
    spec = {"schedulingPolicy": {"gang": {"minCount": size}}}
    return {"apiVersion": f"{CORE}/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


def coscheduled(size: Any) -> dict[str, Any]:
    """PodGroup default/g of coscheduling."""
    spec = {"minMember": size}
    return {"apiVersion": f"{COSCHEDULING}/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
