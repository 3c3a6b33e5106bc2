"""Autoscalers."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.printers.cells import AGE, NAME, NONE, Row, age, name_of
from embedded_cluster.apiserver.registry import Column, Printer
from embedded_cluster.apiserver.statuses import JSON

_MOST: Final = 2
_SOURCES: Final = {
    "Resource": "resource", "ContainerResource": "containerResource", "Pods": "pods", "Object": "object",
    "External": "external",
}  # fmt: skip


def _target(metric: JSON) -> str:
    """What is wished of one metric; what it is now is not known here."""
    kind = metric.get("type", "")
    if kind not in _SOURCES:
        return "<unknown type>"
    source = metric.get(_SOURCES[kind]) or {}
    target = source.get("target") or {}
    average = target.get("averageValue")
    if kind in ("Resource", "ContainerResource"):
        share = target.get("averageUtilization")
        wished = average or (f"{share}%" if share is not None else "<auto>")
        return f"{source.get('name', '')}: <unknown>/{wished}"
    if kind == "Pods" or average is None:
        return f"<unknown>/{average or target.get('value', '')}"
    return f"<unknown>/{average} (avg)"


def targets(metrics: list[JSON]) -> str:
    """The column of `kubectl get hpa`."""
    shown = [_target(metric) for metric in metrics[:_MOST]]
    more = f" + {len(metrics) - _MOST} more..." if len(metrics) > _MOST else ""
    return ", ".join(shown) + more if shown else NONE


def _row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    target = spec.get("scaleTargetRef", {})
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        targets(spec.get("metrics") or []),
        str(spec["minReplicas"]) if "minReplicas" in spec else "<unset>",
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age(obj, now),
    ]


AUTOSCALER: Final = Printer(
    (NAME, *map(Column, ("Reference", "Targets", "MinPods", "MaxPods", "Replicas")), AGE),
    _row,
)
