"""The reference of all commands, made of the declarations that `--help` is made of.

Promises: every command that `--help` lists has a section, and every option a row, except for two kinds that stand
once elsewhere: options that say which cluster is asked have a section of their own, settings of `serve` a page.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dra_extender.cli.main import app
from dra_extender.cli.questions import WHERE
from dra_extender.cli.serve import flag
from dra_extender.service.settings import Settings

NAME: Final = "dra-extender"
_SETTINGS: Final = frozenset(flag(name) for name in Settings.model_fields)
_TABLE: Final = ("| option | meaning |", "|---|---|")


def markdown() -> str:
    """The sections, in the order of `--help`."""
    found = get_command(app)
    assert isinstance(found, TyperGroup)
    lines: list[str] = []
    panel = ""
    commands = shown(found)
    panels = [command.rich_help_panel for command in commands]
    for command in sorted(commands, key=lambda command: panels.index(command.rich_help_panel)):
        if command.rich_help_panel != panel:
            panel = command.rich_help_panel
            lines += [f"## {panel}", ""]
        lines += _section(command)
    why = found.commands["why"]
    lines += [f"## {WHERE}", "", "Options of all questions.", ""]
    lines += [*_TABLE, *_rows(each for each in why.params if _is_where(each)), ""]
    return "\n".join(lines)


def shown(group: TyperGroup) -> list[Any]:
    """The commands that `--help` lists."""
    return [command for command in group.commands.values() if not command.hidden]


def _section(command: Any) -> Iterator[str]:
    usage = " ".join([NAME, command.name, *command.collect_usage_pieces(typer.Context(command))])
    settings = [each for each in command.params if command.name == "serve" and _SETTINGS.intersection(each.opts)]
    own = [each for each in command.params if not _is_where(each) and each not in settings]
    yield from (f"### {command.name}", "", f"`{usage}`", "", inspect.cleandoc(command.help or ""), "")
    if own:
        yield from (*_TABLE, *_rows(own), "")
    if settings:
        yield from ("Every [setting](settings.md) is an option as well.", "")
    if isinstance(command, TyperGroup):
        names = ", ".join(f"[`{each.name}`](#{each.name})" for each in shown(command))
        yield from (f"A question is one of {names}, with its options.", "")
    if any(map(_is_where, command.params)):
        yield from (f"And [which cluster](#{WHERE.lower().replace(' ', '-')}) it asks.", "")


def _is_where(parameter: Any) -> bool:
    return bool(parameter.rich_help_panel == WHERE)


def _rows(parameters: Iterable[Any]) -> Iterator[str]:
    for parameter in parameters:
        if record := parameter.get_help_record(typer.Context(typer.core.TyperCommand(NAME))):
            name, meaning = (text.replace("|", r"\|") for text in record)
            yield f"| `{name}` | {meaning} |"
