"""What many rows have in common."""

from __future__ import annotations

from typing import Any, Final

from embedded_cluster.apiserver.ages import since
from embedded_cluster.apiserver.registry import Column, Printer
from embedded_cluster.apiserver.statuses import JSON

Row = list[Any]

NONE: Final = "<none>"
NAME: Final = Column("Name", "string", "name", "Name must be unique within a namespace.")
AGE: Final = Column("Age", description="Time since the object was created.")


def age(obj: JSON, now: float) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def name_of(obj: JSON) -> str:
    name: str = obj["metadata"]["name"]
    return name


def wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


OF_A_TEMPLATE: Final = wide("Containers", "Images", "Selector")


def template_cells(spec: JSON) -> Row:
    """`OF_A_TEMPLATE`: of what makes its pods from a template."""
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return [
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
        labels_text((spec.get("selector") or {}).get("matchLabels")),
    ]


def labels_text(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _plain_row(obj: JSON, now: float) -> Row:
    return [name_of(obj), age(obj, now)]


PLAIN: Final = Printer((NAME, AGE), _plain_row)
CREATED: Final = Printer(
    (NAME, Column("Created At", "date")), lambda obj, now: [name_of(obj), obj["metadata"].get("creationTimestamp", "")]
)
