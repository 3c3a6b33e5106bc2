"""The reference of all settings: docs/settings.md, which a test keeps current, and the flags of the command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic.fields import FieldInfo

from dra_extender.service.settings import Settings

_SECTIONS: Final = {
    "listen": "Where it listens",
    "kubeconfig": "The API server",
    "namespace": "Who it is",
    "feature_gates": "Decisions",
    "log_level": "Logs",
}
"""The first setting of each section."""


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def sections() -> Iterator[tuple[str, str, FieldInfo]]:
    """Section, name and definition of every setting, in order."""
    section = ""
    for name, field in Settings.model_fields.items():
        section = _SECTIONS.get(name, section)
        yield section, name, field
