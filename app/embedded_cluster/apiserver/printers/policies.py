"""Budgets, network policies, roles, priorities and leases."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.printers.cells import AGE, NAME, Row, age, labels_text, name_of, wide
from embedded_cluster.apiserver.registry import Column, Printer
from embedded_cluster.apiserver.statuses import JSON


def _budget_row(obj: JSON, now: float) -> Row:
    spec = obj.get("spec", {})
    least, most = spec.get("minAvailable", "N/A"), spec.get("maxUnavailable", "N/A")
    return [name_of(obj), str(least), str(most), obj.get("status", {}).get("disruptionsAllowed", 0), age(obj, now)]


BUDGET: Final = Printer(
    (NAME, Column("Min Available"), Column("Max Unavailable"), Column("Allowed Disruptions", "integer"), AGE),
    _budget_row,
)


NETWORK_POLICY: Final = Printer(
    (NAME, Column("Pod-Selector"), AGE),
    lambda obj, now: [
        name_of(obj),
        labels_text((obj.get("spec", {}).get("podSelector") or {}).get("matchLabels")),
        age(obj, now),
    ],
)


def _binding_row(obj: JSON, now: float) -> Row:
    role, subjects = obj.get("roleRef", {}), obj.get("subjects") or ()

    def named(kind: str) -> str:
        return ", ".join(
            f"{s['namespace']}/{s.get('name', '')}"
            if kind == "ServiceAccount" and s.get("namespace")
            else s.get("name", "")
            for s in subjects
            if s.get("kind") == kind
        )

    who = [named(kind) for kind in ("User", "Group", "ServiceAccount")]
    return [name_of(obj), f"{role.get('kind')}/{role.get('name')}", age(obj, now), *who]


ROLE_BINDING: Final = Printer((NAME, Column("Role"), AGE, *wide("Users", "Groups", "ServiceAccounts")), _binding_row)
PRIORITY_CLASS: Final = Printer(
    (NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), AGE, Column("PreemptionPolicy")),
    lambda obj, now: [
        name_of(obj),
        obj.get("value", 0),
        obj.get("globalDefault", False),
        age(obj, now),
        obj.get("preemptionPolicy", ""),
    ],
)
LEASE: Final = Printer(
    (NAME, Column("Holder"), AGE),
    lambda obj, now: [name_of(obj), obj.get("spec", {}).get("holderIdentity", ""), age(obj, now)],
)
