"""Manifests of pods and claims for an embedded cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Make = Callable[..., dict[str, Any]]


def pod_manifest(
    name: str,
    *,
    namespace: str = "default",
    scheduler: str = "dra-scheduler",
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod; `claims` maps entries to claim names, `templates` to template names."""
    entries = [{"name": entry, "resourceClaimName": claim} for entry, claim in (claims or {}).items()]
    entries += [{"name": entry, "resourceClaimTemplateName": template} for entry, template in (templates or {}).items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "example"}],
            **({"resourceClaims": entries} if entries else {}),
            **spec,
        },
    }


def claim_manifest(
    name: str,
    *,
    namespace: str = "default",
    template: bool = False,
    selector: str = "",
    driver: str = "gpu.example.com",
    **request: Any,
) -> dict[str, Any]:
    """A claim (or, with `template`, a claim template) for one GPU unless the request says otherwise."""
    exactly = {"deviceClassName": driver, **request}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    spec: dict[str, Any] = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate" if template else "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"metadata": {"labels": {"made-from": name}}, "spec": spec} if template else spec,
    }


def with_classes(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents with a PriorityClass for each priority of a pod: an API server does not accept the number."""
    found: list[dict[str, Any]] = []
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "Pod" and "priority" in spec:
            name = f"priority.{spec['priority']}".replace("-", "minus")
            document = {**document, "spec": {**spec, "priorityClassName": name}}
            value = document["spec"].pop("priority")
            meta = {"name": name}
            found.append(
                {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value}
            )
        found.append(document)
    return found
