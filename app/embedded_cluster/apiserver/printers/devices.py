"""Kinds of resource.k8s.io."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.ages import since
from embedded_cluster.apiserver.printers.cells import AGE, NAME, Row, age, name_of
from embedded_cluster.apiserver.registry import Column, Printer
from embedded_cluster.apiserver.statuses import JSON


def claim_state(claim: JSON) -> str:
    """What the STATE column says of a claim."""
    status, deleted = claim.get("status", {}), bool(claim["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is None:
        if not deleted:
            states.append("pending")
    else:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    return ",".join(states)


CLAIM: Final = Printer((NAME, Column("State"), AGE), lambda obj, now: [name_of(obj), claim_state(obj), age(obj, now)])


def _slice_row(obj: JSON, now: float) -> Row:
    spec = obj["spec"]
    node = spec.get("nodeName") or (
        "<multiple>" if spec.get("nodeSelector") or spec.get("perDeviceNodeSelection") else ""
    )
    return [name_of(obj), node, spec["driver"], spec["pool"]["name"], age(obj, now)]


SLICE: Final = Printer((NAME, Column("Node"), Column("Driver"), Column("Pool"), AGE), _slice_row)

TAINT_RULE: Final = Printer(
    (NAME, Column("Key"), Column("Value"), Column("Effect"), Column("TimeAdded"), AGE),
    lambda obj, now: [
        name_of(obj),
        obj["spec"]["taint"].get("key", ""),
        obj["spec"]["taint"].get("value", ""),
        obj["spec"]["taint"].get("effect", ""),
        since(obj["spec"]["taint"].get("timeAdded"), now),
        age(obj, now),
    ],
)
