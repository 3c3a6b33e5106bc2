"""Which objects a label selector chooses."""

from __future__ import annotations

from collections.abc import Mapping

from embedded_cluster.apiserver.statuses import JSON


def selects(selector: JSON | None, labels: Mapping[str, str]) -> bool:
    """True when a label selector that was validated accepts the labels."""
    selector = selector or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_met(requirement, labels) for requirement in selector.get("matchExpressions") or ())


def _met(requirement: JSON, labels: Mapping[str, str]) -> bool:
    operator, present = requirement["operator"], requirement["key"] in labels
    if operator in ("Exists", "DoesNotExist"):
        return present is (operator == "Exists")
    among = present and labels[requirement["key"]] in requirement["values"]
    return among is (operator == "In")
