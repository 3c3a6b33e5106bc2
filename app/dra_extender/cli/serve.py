"""`dra-extender serve`: the service. Every setting is a flag; the flags are made from the settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic.fields import FieldInfo

from dra_extender.cli.output import complain
from dra_extender.service.settings import Settings, SettingsError, load

_CONFIG = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="YAML file with settings", show_default=False)
]
_DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="print the effective settings and exit")]

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


def serve(config: Path | None = None, dry_run: bool = False, **flags: Any) -> None:
    """Answer kube-scheduler: filter, prioritize, preempt and bind for pods that use devices.

    Settings come from flags, the environment (DRA_EXTENDER_...), the YAML file and defaults, in this order.
    """
    try:
        settings = load(flags, config=config)
    except SettingsError as problem:
        complain(problem)
        raise typer.Exit(2) from None
    if dry_run:
        typer.echo(settings.yaml(), nl=False)
        return
    raise typer.Exit(_run(settings))


def _run(settings: Settings) -> int:
    """Serve until a signal comes. The libraries take a moment to load, which --help and --dry-run need not wait for."""
    import uvloop

    from dra_extender.service import logs
    from dra_extender.service.service import serve_until_signalled

    logs.configure(settings.log_level, settings.log_format)
    return uvloop.run(serve_until_signalled(settings))


def _option(section: str, name: str, field: FieldInfo) -> inspect.Parameter:
    """A flag that is None when it is not given, so that it does not hide the other sources."""
    kind = field.annotation if field.annotation in (bool, int, float) else str
    switch = f"{flag(name)}/--no-{flag(name)[2:]}" if kind is bool else flag(name)
    default = "" if field.default in (None, "") else f" [default: {field.default}]"
    option = typer.Option(switch, help=(field.description or "") + default, show_default=False, rich_help_panel=section)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


_PARAMETERS: Final = (
    inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_CONFIG),
    inspect.Parameter("dry_run", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_DRY_RUN),
    *(_option(section, name, field) for section, name, field in sections()),
)
"""One per setting, as typer reads them."""
serve.__signature__ = inspect.Signature(_PARAMETERS)  # type: ignore[attr-defined]
serve.__annotations__ = {parameter.name: parameter.annotation for parameter in _PARAMETERS}
