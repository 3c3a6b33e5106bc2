"""Field errors of claim templates: the metadata that claims made from them get."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden

_NOT_GIVEN: Final = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_CALLED: Final = {"uid": "uID"}
"""What messages call a field, where that differs."""


def metadata_problems(spec: JSON) -> list[Problem]:
    """Only labels and annotations can be given."""
    metadata, at = spec.get("metadata") or {}, "spec.metadata"
    found = names.label_problems(metadata.get("labels") or {}, f"{at}.labels")
    found += names.annotation_problems(metadata.get("annotations") or {}, f"{at}.annotations")
    return found + [
        forbidden(f"{at}.{_CALLED.get(part, part)}", "cannot be set") for part in _NOT_GIVEN if part in metadata
    ]
