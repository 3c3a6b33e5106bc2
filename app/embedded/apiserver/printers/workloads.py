"""Sets of pods."""

from __future__ import annotations

from typing import Final

from app.embedded.apiserver.printers.cells import AGE, NAME, Row, age, labels_text, name_of, wide
from app.embedded.apiserver.registry import Column, Printer
from app.embedded.apiserver.statuses import JSON


def _deployment_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(obj, now),
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
        labels_text((spec.get("selector") or {}).get("matchLabels")),
    ]


DEPLOYMENT: Final = Printer(
    (
        NAME,
        Column("Ready"),
        Column("Up-to-date", "integer"),
        Column("Available", "integer"),
        AGE,
        *wide("Containers", "Images", "Selector"),
    ),
    _deployment_row,
)


def _replica_set_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return [
        name_of(obj),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(obj, now),
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
        labels_text((spec.get("selector") or {}).get("matchLabels")),
    ]


REPLICA_SET: Final = Printer(
    (
        NAME,
        Column("Desired", "integer"),
        Column("Current", "integer"),
        Column("Ready", "integer"),
        AGE,
        *wide("Containers", "Images", "Selector"),
    ),
    _replica_set_row,
)


def _daemon_set_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    template = spec.get("template", {}).get("spec", {})
    containers = template.get("containers") or ()
    return [
        name_of(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_text(template.get("nodeSelector")),
        age(obj, now),
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
        labels_text((spec.get("selector") or {}).get("matchLabels")),
    ]


DAEMON_SET: Final = Printer(
    (
        NAME,
        *(Column(name, "integer") for name in ("Desired", "Current", "Ready", "Up-to-date", "Available")),
        Column("Node Selector"),
        AGE,
        *wide("Containers", "Images", "Selector"),
    ),
    _daemon_set_row,
)
