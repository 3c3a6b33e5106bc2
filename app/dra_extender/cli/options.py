"""The options that commands share, each declared once: its name, what it says, and what a shell may offer for it.

`asks_cluster` gives a command the options that say where the state is read; the command gets them as one `Source`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, get_type_hints

import typer

from dra_extender.cli import names
from dra_extender.cli.source import Source

Form = Literal["text", "json", "yaml"]
WideForm = Literal["text", "wide", "json", "yaml"]

Output = Annotated[Form, typer.Option("--output", "-o", help="form of the answer")]
WideOutput = Annotated[WideForm, typer.Option("--output", "-o", help="form of the answer; wide has more columns")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="answer again whenever the answer changes, until Ctrl-C")]

Pod = Annotated[
    str | None,
    typer.Argument(
        metavar="POD", help="NAME, pod/NAME or NAMESPACE/NAME", show_default=False, autocompletion=names.pods
    ),
]


def _namespace(help: str) -> Any:
    return typer.Option(
        "--namespace", "-n", metavar="NAMESPACE", help=help, show_default=False, autocompletion=names.namespaces
    )


def _file(help: str) -> Any:
    return typer.Option("--filename", "-f", metavar="FILE", help=help, show_default=False)


PodNamespace = Annotated[str, _namespace("namespace of the pod; else that of the context")]
HoldersNamespace = Annotated[str, _namespace("only what claims of this namespace hold")]
PodFile = Annotated[str, _file("pods of this file, before they are applied; - is standard input")]
ClaimFile = Annotated[str, _file("a file with ResourceClaims or templates instead; - is standard input")]

Nodes = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="NODE", help="only this node; may be repeated", autocompletion=names.nodes),
]
Drivers = Annotated[
    list[str] | None,
    typer.Option(
        "--driver", metavar="DRIVER", help="only devices of this driver; may be repeated", autocompletion=names.drivers
    ),
]
Classes = Annotated[
    list[str] | None,
    typer.Option(
        "--class",
        metavar="CLASS",
        help="only devices that this DeviceClass selects; may be repeated",
        autocompletion=names.classes,
    ),
]
MovedSchedulers = Annotated[
    list[str] | None, typer.Option("--scheduler-name", metavar="NAME", help="whose pods may be moved; may be repeated")
]
SchedulerNames = Annotated[
    str,
    typer.Option(metavar="NAMES", help="as for serve: the schedulers that call the service", show_default=False),
]

WHERE: Final = "Which cluster"
"""The heading of the options that say where the state is read."""
Kubeconfig = Annotated[
    str, typer.Option(metavar="FILE", help="kubeconfig file", show_default=False, rich_help_panel=WHERE)
]
Context = Annotated[
    str, typer.Option(metavar="NAME", help="context of the kubeconfig", show_default=False, rich_help_panel=WHERE)
]
Server = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        metavar="URL",
        help="API server, instead of the kubeconfig's",
        show_default=False,
        rich_help_panel=WHERE,
    ),
]
FeatureGates = Annotated[
    str,
    typer.Option(
        metavar="GATES", help="as for serve: Name=true,Other=false", show_default=False, rich_help_panel=WHERE
    ),
]
FromFile = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="FILE",
        help="a file that snapshot wrote, instead of a cluster",
        show_default=False,
        rich_help_panel=WHERE,
    ),
]

FROM: Final = "from_file"
"""The name of the parameter of `--from`."""
_SOURCE: Final[dict[str, tuple[str, Any]]] = {
    "feature_gates": ("gates", FeatureGates),
    FROM: ("file", FromFile),
    "kubeconfig": ("kubeconfig", Kubeconfig),
    "context": ("context", Context),
    "server": ("server", Server),
}
"""Parameter of a command -> (field of `Source`, its option)."""


def asks_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with options in place of its parameter `source`."""
    hints = get_type_hints(command, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "source"
    ]
    for name, (_, option) in _SOURCE.items():
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default="", annotation=option)
        )

    @functools.wraps(command)
    def asking(**given: Any) -> None:
        source = Source(**{field: given.pop(name) for name, (field, _) in _SOURCE.items()})
        command(source=source, **given)

    asking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    asking.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return asking
