"""The options that commands share, each declared once: its name, its help, and what a shell offers to complete it.

A command is a struct that extends `Source`: its docstring is the help, its fields are the options. `command` makes a
typer command of it. Completion never fails, writes nothing, and waits at most `SECONDS`; it offers the first page of a
list.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Annotated, Any, Final, Literal, get_type_hints

import typer

from dra_extender.cli.source import FROM, Source

Form = Literal["text", "json", "yaml"]
WideForm = Literal["text", "wide", "json", "yaml"]

# --- completion -------------------------------------------------------------------------------------------------------

SECONDS: Final = 3.0
_KINDS_OF_POD: Final = ("pod/", "pods/", "po/")


def pods(ctx: typer.Context, incomplete: str) -> list[str]:
    """Pods as NAME, pod/NAME or NAMESPACE/NAME, in the form that the word begins with."""
    prefix = next((kind for kind in _KINDS_OF_POD if incomplete.startswith(kind)), "")
    first, slash, _ = incomplete.partition("/")
    elsewhere = first if slash and not prefix else ""
    namespace = elsewhere or str(ctx.params.get("namespace") or "") or _source(ctx).default_namespace()
    return _beginning(incomplete, (f"{prefix or elsewhere + slash}{name}" for name in _names(ctx, "pods", namespace)))


def _beginning(incomplete: str, found: Iterable[str]) -> list[str]:
    return sorted({name for name in found if name.startswith(incomplete) and name.isprintable()})


def _source(ctx: typer.Context) -> Source:
    return Source(**{name: str(ctx.params.get(name) or "") for name in ("kubeconfig", "context", "server", FROM)})


def _names(ctx: typer.Context, kind: str, namespace: str = "") -> list[str]:
    """No names when anything fails. The time to load the client does not count."""
    from dra_extender.api.errors import ApiError
    from dra_extender.cli.cluster import listed
    from dra_extender.kube.credentials import CredentialsError

    try:
        return asyncio.run(asyncio.wait_for(listed(_source(ctx), kind, namespace), SECONDS))
    except (ApiError, CredentialsError, OSError, TimeoutError, ValueError):
        return []


def _completing(kind: str, prefix: str = "") -> Callable[[typer.Context, str], list[str]]:
    return lambda ctx, incomplete: _beginning(incomplete, (prefix + name for name in _names(ctx, kind)))


nodes, classes, namespaces, drivers = map(_completing, ("nodes", "deviceclasses", "namespaces", "drivers"))
like_nodes: Final = _completing("nodes", "like=")
"""For `--add-node like=NODE`."""


# --- options ----------------------------------------------------------------------------------------------------------

Complete = Callable[[typer.Context, str], list[str]]


def argument(metavar: str, help: str, complete: Complete | None = None) -> Any:
    """An optional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, autocompletion=complete)


def text_option(*flags: str, metavar: str, help: str, complete: Complete | None = None) -> Any:
    """An option whose default is not shown."""
    return typer.Option(*flags, metavar=metavar, help=help, show_default=False, autocompletion=complete)


def repeated(flag: str, metavar: str, help: str, complete: Complete | None = None) -> Any:
    """An option that may be given several times."""
    return typer.Option(flag, metavar=metavar, help=f"{help}; may be repeated", autocompletion=complete)


Output = Annotated[Form, typer.Option("--output", "-o", help="form of the answer")]
WideOutput = Annotated[WideForm, typer.Option("--output", "-o", help="form of the answer; wide has more columns")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="answer again whenever the answer changes, until Ctrl-C")]

FORMS_OF_POD: Final = "NAME, pod/NAME or NAMESPACE/NAME"
Pod = Annotated[str | None, argument("POD", FORMS_OF_POD, pods)]


def _namespace(help: str) -> Any:
    return text_option("--namespace", "-n", metavar="NAMESPACE", help=help, complete=namespaces)


def _file(help: str) -> Any:
    return text_option("--filename", "-f", metavar="FILE", help=help)


PodNamespace = Annotated[str, _namespace("namespace of the pod; by default, the namespace of the context")]
HoldersNamespace = Annotated[str, _namespace("only what claims of this namespace hold")]
PodFile = Annotated[str, _file("pods of this file, before they are applied; - is standard input")]
ClaimFile = Annotated[str, _file("a file with ResourceClaims or templates instead; - is standard input")]

Nodes = Annotated[list[str] | None, repeated("--node", "NODE", "only this node", nodes)]
Drivers = Annotated[list[str] | None, repeated("--driver", "DRIVER", "only devices of this driver", drivers)]
Classes = Annotated[
    list[str] | None, repeated("--class", "CLASS", "only devices that this DeviceClass selects", classes)
]
MovedSchedulers = Annotated[list[str] | None, repeated("--scheduler-name", "NAME", "whose pods may be moved")]
SchedulerNames = Annotated[str, text_option(metavar="NAMES", help="as for serve: the schedulers that call the service")]

DEFAULT_SERVICE: Final = "dra-system/dra-extender"
Service = Annotated[
    str, typer.Option(metavar="NAMESPACE/NAME", help="the Service, which answers users who may not list nodes")
]


# --- commands ---------------------------------------------------------------------------------------------------------


Answering = Callable[[Any], Coroutine[Any, Any, int]]
"""Takes the struct of a command, and returns the exit status when awaited."""


def command(kind: type[Source], name: str, load: Callable[[str], Answering]) -> Callable[..., None]:
    """The typer command of this struct. When the command runs, `load` imports the function that answers it."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))
    own = [name for name in defaults if name not in Source.__struct_fields__]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults[name], annotation=hints[name])
        for name in (*own, *Source.__struct_fields__)
    ]

    def called(**given: Any) -> None:
        raise typer.Exit(asyncio.run(load(name)(kind(**given))))

    called.__doc__ = kind.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
