"""The version whose objects look different from the stored ones: v1 of events.k8s.io.

Pure functions from dict to dict; the argument is not changed, but the result shares parts with it.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.registry import Conversion
from embedded_cluster.apiserver.statuses import JSON

_EVENT_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
_CORE_NAMES: Final = {core: name for name, core in _EVENT_NAMES.items()}


def _event_to_core(event: JSON) -> JSON:
    return {_EVENT_NAMES.get(name, name): value for name, value in event.items()}


def _event_from_core(event: JSON) -> JSON:
    converted = {_CORE_NAMES.get(name, name): value for name, value in event.items()}
    converted["apiVersion"] = "events.k8s.io/v1"
    return converted


EVENTS: Final = Conversion(_event_from_core, _event_to_core)
