"""JSON schemas of the house's own structs, for answers that are encoded as they are."""

from __future__ import annotations

from typing import Any

import msgspec


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema without references, to stand anywhere in a document. The struct must not contain itself."""
    (root,), parts = msgspec.json.schema_components((struct,), ref_template="{name}")
    found: dict[str, Any] = _resolved(root, parts)
    return found


def _resolved(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_resolved(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    beside = {key: _resolved(value, parts) for key, value in schema.items() if key != "$ref"}
    return {**_resolved(parts[schema["$ref"]], parts), **beside} if "$ref" in schema else beside
