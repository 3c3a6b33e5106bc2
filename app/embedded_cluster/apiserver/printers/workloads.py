"""Sets of pods."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.printers.cells import (
    AGE,
    NAME,
    OF_A_TEMPLATE,
    Row,
    age,
    labels_text,
    name_of,
    template_cells,
)
from embedded_cluster.apiserver.registry import Column, Printer
from embedded_cluster.apiserver.statuses import JSON


def _deployment_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(obj, now),
        *template_cells(spec),
    ]


DEPLOYMENT: Final = Printer(
    (
        NAME,
        Column("Ready"),
        Column("Up-to-date", "integer"),
        Column("Available", "integer"),
        AGE,
        *OF_A_TEMPLATE,
    ),
    _deployment_row,
)


def _replica_set_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    return [
        name_of(obj),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(obj, now),
        *template_cells(spec),
    ]


REPLICA_SET: Final = Printer(
    (
        NAME,
        Column("Desired", "integer"),
        Column("Current", "integer"),
        Column("Ready", "integer"),
        AGE,
        *OF_A_TEMPLATE,
    ),
    _replica_set_row,
)


def _daemon_set_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    return [
        name_of(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_text(spec.get("template", {}).get("spec", {}).get("nodeSelector")),
        age(obj, now),
        *template_cells(spec),
    ]


DAEMON_SET: Final = Printer(
    (
        NAME,
        *(Column(name, "integer") for name in ("Desired", "Current", "Ready", "Up-to-date", "Available")),
        Column("Node Selector"),
        AGE,
        *OF_A_TEMPLATE,
    ),
    _daemon_set_row,
)
