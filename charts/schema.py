"""The part of values.schema.json that is about `settings`: what `dra-extender serve` takes, by name and kind.

A setting that does not exist is refused before anything is installed. Ranges and combinations stay with the service.
"""

from __future__ import annotations

import json
from typing import Any

from charts.reference import CHART
from dra_extender.cli.serve import sections
from dra_extender.service.settings import Settings

SCHEMA = CHART / "values.schema.json"


def settings() -> dict[str, Any]:
    """The schema of the value `settings`."""
    known = Settings.model_json_schema()["properties"]
    properties = {name: _plain(known[name]) | {"description": field.description} for _, name, field in sections()}
    # `on` and `off` without quotation marks are booleans in YAML; the chart takes them for what they say.
    properties["preemption"] = {**properties["preemption"], "enum": ["off", "advise", "on", False, True]}
    del properties["preemption"]["type"]
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _plain(definition: dict[str, Any]) -> dict[str, Any]:
    """The kind of a setting, less what Helm does not know or the service says better."""
    found = next((each for each in definition.get("anyOf", ()) if each.get("type") != "null"), definition)
    if "$ref" in found:
        return {"type": "object"}
    return {key: found[key] for key in ("type", "enum") if key in found}


def with_settings(text: str) -> str:
    """The text of values.schema.json with this part as it has to be."""
    schema = json.loads(text)
    schema["properties"]["settings"] = settings()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
