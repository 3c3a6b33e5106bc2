"""The options that commands share, each declared once: its name, its help, and what a shell offers to complete it.

A command's options are the fields of a struct that extends `Source`; `command` makes a typer command of it. Completion
never fails, writes nothing, and waits at most `SECONDS`; it offers the first page of a list.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeVar, get_type_hints

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


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(ctx, "nodes"))


def like_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """For `--add-node like=NODE`."""
    return _beginning(incomplete, (f"like={name}" for name in _names(ctx, "nodes")))


def classes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(ctx, "deviceclasses"))


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(ctx, "namespaces"))


def drivers(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(ctx, "drivers"))


def _beginning(incomplete: str, found: Iterable[str]) -> list[str]:
    return sorted({name for name in found if name.startswith(incomplete)})


def _source(ctx: typer.Context) -> Source:
    return Source(**{name: str(ctx.params.get(name) or "") for name in ("kubeconfig", "context", "server", FROM)})


def _names(ctx: typer.Context, kind: str, namespace: str = "") -> list[str]:
    """No names when anything fails. The time to load the client does not count."""
    from dra_extender.api.errors import ApiError
    from dra_extender.cli.listing import listed
    from dra_extender.kube.credentials import CredentialsError

    try:
        return asyncio.run(asyncio.wait_for(listed(_source(ctx), kind, namespace), SECONDS))
    except (ApiError, CredentialsError, OSError, TimeoutError, ValueError):
        return []


# --- options ----------------------------------------------------------------------------------------------------------

Output = Annotated[Form, typer.Option("--output", "-o", help="form of the answer")]
WideOutput = Annotated[WideForm, typer.Option("--output", "-o", help="form of the answer; wide has more columns")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="answer again whenever the answer changes, until Ctrl-C")]

Pod = Annotated[
    str | None,
    typer.Argument(metavar="POD", help="NAME, pod/NAME or NAMESPACE/NAME", show_default=False, autocompletion=pods),
]


def _namespace(help: str) -> Any:
    return typer.Option(
        "--namespace", "-n", metavar="NAMESPACE", help=help, show_default=False, autocompletion=namespaces
    )


def _file(help: str) -> Any:
    return typer.Option("--filename", "-f", metavar="FILE", help=help, show_default=False)


PodNamespace = Annotated[str, _namespace("namespace of the pod; by default, the namespace of the context")]
HoldersNamespace = Annotated[str, _namespace("only what claims of this namespace hold")]
PodFile = Annotated[str, _file("pods of this file, before they are applied; - is standard input")]
ClaimFile = Annotated[str, _file("a file with ResourceClaims or templates instead; - is standard input")]

Nodes = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="NODE", help="only this node; may be repeated", autocompletion=nodes),
]
Drivers = Annotated[
    list[str] | None,
    typer.Option(
        "--driver", metavar="DRIVER", help="only devices of this driver; may be repeated", autocompletion=drivers
    ),
]
Classes = Annotated[
    list[str] | None,
    typer.Option(
        "--class",
        metavar="CLASS",
        help="only devices that this DeviceClass selects; may be repeated",
        autocompletion=classes,
    ),
]
MovedSchedulers = Annotated[
    list[str] | None, typer.Option("--scheduler-name", metavar="NAME", help="whose pods may be moved; may be repeated")
]
SchedulerNames = Annotated[
    str,
    typer.Option(metavar="NAMES", help="as for serve: the schedulers that call the service", show_default=False),
]


# --- the options of each command --------------------------------------------------------------------------------------

MOST_ALLOCATIONS: Final = 2_000


class WhyOptions(Source, frozen=True, kw_only=True):
    """The options of `why`: one pod of the cluster, or the pods of a file."""

    pod: Pod = None
    filename: PodFile = ""
    namespace: PodNamespace = ""
    everything: Annotated[bool, typer.Option("--all", help="show all findings, node by node")] = False
    output: Output = "text"
    watch: Watch = False
    node: Nodes = None
    placement: Annotated[
        str,
        typer.Option(metavar="POLICY", help="as for serve: show what this policy prefers, and why"),
    ] = ""
    scheduler_names: SchedulerNames = ""


class DeviceStateName(StrEnum):
    """The values of `dra_extender.insight.devicereport.report.DeviceState`, for the command line parser."""

    FREE = "free"
    SHARED = "shared"
    USED = "used"
    BLOCKED = "blocked"
    TAINTED = "tainted"
    UNUSABLE = "unusable"


class DevicesOptions(Source, frozen=True, kw_only=True):
    """The options that `devices` and `top` share: which devices. No option means all devices."""

    node: Nodes = None
    driver: Drivers = None
    device_class: Classes = None
    state: Annotated[
        list[DeviceStateName] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="only devices in this state: free, shared, used, blocked, tainted or unusable; may be repeated",
        ),
    ] = None
    free: Annotated[bool, typer.Option("--free", help="short for --state free")] = False
    held: Annotated[bool, typer.Option("--held", help="short for --state used --state shared")] = False
    namespace: HoldersNamespace = ""
    output: WideOutput = "text"
    watch: Watch = False


class TopOptions(Source, frozen=True, kw_only=True):
    """The options of `top`."""

    by: Annotated[
        Literal["nodes", "drivers", "classes", "namespaces"], typer.Argument(help="what to group the devices by")
    ] = "nodes"
    node: Nodes = None
    driver: Drivers = None
    device_class: Classes = None
    namespace: HoldersNamespace = ""
    output: Output = "text"
    watch: Watch = False


class HeadroomOptions(Source, frozen=True, kw_only=True):
    """The options of `headroom`: pods with devices of a class, or with the claims of a file."""

    device_class: Annotated[
        str | None,
        typer.Argument(
            metavar="CLASS",
            help="the DeviceClass of the pods' devices",
            show_default=False,
            autocompletion=classes,
        ),
    ] = None
    filename: ClaimFile = ""
    count: Annotated[int, typer.Option(metavar="COUNT", min=1, help="devices of the class per pod")] = 1
    after_compaction: Annotated[
        bool, typer.Option("--after-compaction", help="also count after the evictions that compact proposes")
    ] = False
    scheduler_name: MovedSchedulers = None
    limit: Annotated[int, typer.Option(metavar="COUNT", min=1, help="maximum number of allocations to try")] = (
        MOST_ALLOCATIONS
    )
    output: Output = "text"
    watch: Watch = False


class WhatIfOptions(Source, frozen=True, kw_only=True):
    """The options of `whatif`: the hypothetical changes, and which pods to schedule."""

    pod: Annotated[
        str | None,
        typer.Argument(
            help="NAME, pod/NAME or NAMESPACE/NAME; by default all pods that wait for devices",
            show_default=False,
            autocompletion=pods,
        ),
    ] = None
    filename: PodFile = ""
    add_node: Annotated[
        list[str] | None,
        typer.Option(
            "--add-node",
            metavar="like=NODE,count=N",
            help="add nodes like this one; may be repeated",
            autocompletion=like_nodes,
        ),
    ] = None
    without_pod: Annotated[
        list[str] | None,
        typer.Option("--without-pod", metavar="POD", help="delete this pod; may be repeated", autocompletion=pods),
    ] = None
    drain: Annotated[
        list[str] | None,
        typer.Option("--drain", metavar="NODE", help="drain this node; may be repeated", autocompletion=nodes),
    ] = None
    with_file: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="add the slices, classes and claims of this file; may be repeated",
        ),
    ] = None
    toleration: Annotated[
        list[str] | None,
        typer.Option(
            "--toleration",
            metavar="KEY[=VALUE][:EFFECT]",
            help="add this toleration to the pods and their claims; may be repeated",
        ),
    ] = None
    namespace: PodNamespace = ""
    output: Output = "text"
    scheduler_names: SchedulerNames = ""  # fmt: skip


class CompactOptions(Source, frozen=True, kw_only=True):
    """The options of `compact`: room for a pod, for the claims of a file, or for whole devices."""

    pod: Pod = None
    filename: ClaimFile = ""
    namespace: PodNamespace = ""
    scheduler_name: MovedSchedulers = None
    all_schedulers: Annotated[bool, typer.Option("--all-schedulers", help="pods of every scheduler may be evicted")] = (
        False
    )
    output: Output = "text"


class SelectorOptions(Source, frozen=True, kw_only=True):
    """The options of `selector`."""

    expression: Annotated[str | None, typer.Argument(help="the CEL expression", show_default=False)] = None
    slices: Annotated[
        str,
        typer.Option(
            "--slice",
            metavar="FILE",
            help="use the ResourceSlices of this file; - reads standard input",
            show_default=False,
        ),
    ] = ""
    batch: Annotated[
        bool, typer.Option("--batch", help="JSON lines in and out: name, expression, gates, device → name, result")
    ] = False
    list_attributes: Annotated[bool, typer.Option(help="turn on the feature gate DRAListTypeAttributes")] = False
    output: Output = "text"  # fmt: skip


class AuditOptions(Source, frozen=True, kw_only=True):
    """The options of `audit`."""

    output: Output = "text"


# --- commands ---------------------------------------------------------------------------------------------------------

Given = TypeVar("Given", bound=Source)


def command(run: Callable[[Given], Coroutine[Any, Any, int]]) -> Callable[..., None]:
    """The typer command whose options are the fields of the struct that `run` takes. What `run` returns when awaited is
    the exit status.
    """
    kind: type[Given] = get_type_hints(run)["given"]
    hints = get_type_hints(kind, include_extras=True)
    defaults = dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))
    own = [name for name in defaults if name not in Source.__struct_fields__]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults[name], annotation=hints[name])
        for name in (*own, *Source.__struct_fields__)
    ]

    @functools.wraps(run)
    def called(**given: Any) -> None:
        raise typer.Exit(asyncio.run(run(kind(**given))))

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
