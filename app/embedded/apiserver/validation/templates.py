"""Field errors of claim templates: the metadata that claims made from them get."""

from __future__ import annotations

from app.embedded.apiserver import names
from app.embedded.apiserver.statuses import JSON, Problem, forbidden


def metadata_problems(spec: JSON) -> list[Problem]:
    """Only labels and annotations can be given."""
    metadata, at = spec.get("metadata") or {}, "spec.metadata"
    found = names.label_problems(metadata.get("labels") or {}, f"{at}.labels")
    found += names.annotation_problems(metadata.get("annotations") or {}, f"{at}.annotations")
    return found + [
        forbidden(f"{at}.{part}", "cannot be set") for part in metadata if part not in ("labels", "annotations")
    ]
