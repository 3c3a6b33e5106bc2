"""The references of settings and metrics as tables, made of their definitions."""

from __future__ import annotations

import dra_extender.limits
from dra_extender.cli.serve import flag, sections
from dra_extender.http.metrics import PREFIX as METRIC_PREFIX
from dra_extender.http.metrics import SPECS
from dra_extender.limits import Limit
from dra_extender.service.settings import PREFIX


def settings() -> str:
    """All settings, one table per section."""
    rows: list[str] = []
    last = ""
    for section, name, field in sections():
        if section != last:
            last = section
            rows += ["", f"## {section}", "", "| flag | environment | default | meaning |", "|---|---|---|---|"]
        default = "" if field.default in (None, "") else f"`{_plain(field.default)}`"
        rows.append(f"| `{flag(name)}` | `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows[1:]) + "\n"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def limits() -> str:
    """All limits against absurd input."""
    rows = ["| limit | value | reason | test |", "|---|---|---|---|"]
    for name, limit in vars(dra_extender.limits).items():
        if isinstance(limit, Limit):
            rows.append(f"| {name.lower().replace('_', ' ')} | {limit:,} | {limit.reason} | `{limit.test}` |")
    return "\n".join(rows) + "\n"


def metrics() -> str:
    """All metrics."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for spec in SPECS:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        rows.append(f"| `{METRIC_PREFIX}{spec.name}` | {spec.type} | {labels} | {spec.documentation} |")
    return "\n".join(rows) + "\n"
