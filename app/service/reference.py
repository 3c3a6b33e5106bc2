"""The reference of all settings in README.md; a test keeps the two equal."""

from __future__ import annotations

from app.service.settings import PREFIX, flag, sections


def markdown_table() -> str:
    """The reference of all settings as tables."""
    rows: list[str] = []
    last = ""
    for section, name, field in sections():
        if section != last:
            last = section
            rows += ["", f"### {section}", "", "| flag | environment | default | meaning |", "|---|---|---|---|"]
        default = "" if field.default in (None, "") else f"`{_plain(field.default)}`"
        rows.append(f"| `{flag(name)}` | `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows[1:]) + "\n"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
