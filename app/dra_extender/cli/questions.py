"""The commands that answer questions about a cluster, or about a snapshot file: the help and the options of each.

A command is a struct that extends `Source`: its docstring is the help, its fields are the options. `command` makes a
typer command of it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, Literal, get_type_hints

import msgspec
import typer

from dra_extender.cli.output import status_of
from dra_extender.kube.credentials import DEFAULT, namespace_of

WHERE: Final = "Which cluster"
"""The heading of the options that name the cluster."""


def text_option(*flags: str, metavar: str, help: str, panel: str | None = None) -> Any:
    """An option whose default is not shown."""
    return typer.Option(*flags, metavar=metavar, help=help, show_default=False, rich_help_panel=panel)


_where: Final = partial(text_option, panel=WHERE)
Kubeconfig = Annotated[str, _where(metavar="FILE", help="kubeconfig file")]
Context = Annotated[str, _where(metavar="NAME", help="context of the kubeconfig")]
Server = Annotated[str, _where("--server", "-s", metavar="URL", help="API server, instead of the kubeconfig's")]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command reads the cluster: the API server of a kubeconfig, or a file that `snapshot` wrote."""

    feature_gates: Annotated[str, _where(metavar="GATES", help="as for serve: Name=true,Other=false")] = ""
    from_file: Annotated[
        str, _where("--from", metavar="FILE", help="a file that snapshot wrote, instead of a cluster")
    ] = ""
    kubeconfig: Kubeconfig = ""
    context: Context = ""
    server: Server = ""

    def default_namespace(self) -> str:
        """The namespace of objects that are named without one."""
        return DEFAULT if self.from_file else namespace_of(self.kubeconfig, self.context)


Form = Literal["text", "json", "yaml"]


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def repeated(flag: str, metavar: str, help: str) -> Any:
    """An option that may be given several times."""
    return typer.Option(flag, metavar=metavar, help=f"{help}; may be repeated")


Output = Annotated[Form, typer.Option("--output", "-o", help="form of the answer")]
WideOutput = Annotated[
    Literal["text", "wide", "json", "yaml"],
    typer.Option("--output", "-o", help="form of the answer; wide has more columns"),
]

_FORMS: Final = "NAME, pod/NAME or NAMESPACE/NAME"
Pod = Annotated[str | None, argument("POD", _FORMS)]
WaitingPod = Annotated[str | None, argument("POD", f"{_FORMS}; by default all pods that wait for devices")]


_namespace: Final = partial(text_option, "--namespace", "-n", metavar="NAMESPACE")
_file: Final = partial(text_option, "--filename", "-f", metavar="FILE")
PodNamespace = Annotated[str, _namespace(help="namespace of the pod; by default, the namespace of the context")]
HoldersNamespace = Annotated[str, _namespace(help="only what claims of this namespace hold")]
PodFile = Annotated[str, _file(help="pods of this file, before they are applied; - is standard input")]
ClaimFile = Annotated[str, _file(help="a file with ResourceClaims or templates instead; - is standard input")]

Nodes = Annotated[list[str] | None, repeated("--node", "NODE", "only this node")]
Drivers = Annotated[list[str] | None, repeated("--driver", "DRIVER", "only devices of this driver")]
Classes = Annotated[list[str] | None, repeated("--class", "CLASS", "only devices that this DeviceClass selects")]
MovedSchedulers = Annotated[list[str] | None, repeated("--scheduler-name", "NAME", "whose pods may be moved")]
SchedulerNames = Annotated[str, text_option(metavar="NAMES", help="as for serve: the schedulers that call the service")]

DEFAULT_SERVICE: Final = "dra-system/dra-extender"
Service = Annotated[
    str, typer.Option(metavar="NAMESPACE/NAME", help="the Service, which answers users who may not list nodes")
]


Answering = Callable[[Any], Coroutine[Any, Any, int]]
"""Takes the struct of a command, and returns the exit status when awaited."""


def command(kind: type[Source], load: Callable[[], Answering]) -> Callable[..., None]:
    """The typer command of this struct. When the command runs, `load` imports the function that answers."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))
    own = [name for name in defaults if name not in Source.__struct_fields__]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=defaults[name], annotation=hints[name])
        for name in (*own, *Source.__struct_fields__)
    ]

    def called(**given: Any) -> None:
        raise typer.Exit(asyncio.run(status_of(load()(kind(**given)))))

    called.__doc__ = kind.__doc__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


class WhyOptions(Source, frozen=True, kw_only=True):
    """Show why a pod cannot be scheduled, and which changes would let it fit.

    The service would decide the same. Each suggestion was verified: with that change the pod fits. Without a pod, the
    command groups all pods that wait for devices by reason; each pod is checked as if it were alone.

    Exit status: 0 if a node fits, 1 if a pod fits no node or was not diagnosed, 2 if the command cannot answer.
    """

    pod: WaitingPod = None
    filename: PodFile = ""
    namespace: PodNamespace = ""
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="without a pod: the pods of all namespaces")
    ] = False
    everything: Annotated[bool, typer.Option("--all", help="show all findings, node by node")] = False
    output: Output = "text"
    node: Nodes = None
    scheduler_names: SchedulerNames = ""
    service: Service = DEFAULT_SERVICE


DeviceStateName = StrEnum("DeviceStateName", ["free", "shared", "used", "blocked", "tainted", "unusable"])
"""The values of `dra_extender.insight.devicereport.report.DeviceState`, for the command line parser."""


class DevicesOptions(Source, frozen=True, kw_only=True):
    """List devices, their state, and the claims that hold them.

    `blocked`: the device is not allocated, but other devices consume counters that it needs. `unusable`: no device of
    its pool can be allocated, or this device cannot be with these feature gates. `-o wide` adds pools, classes, taints
    and counters.

    Exit status: 0 if devices are listed, 1 if none is listed, 2 if the command cannot answer.
    """

    node: Nodes = None
    driver: Drivers = None
    device_class: Classes = None
    state: Annotated[
        list[DeviceStateName] | None,
        repeated("--state", "STATE", "only devices in this state: free, shared, used, blocked, tainted or unusable"),
    ] = None
    namespace: HoldersNamespace = ""
    output: WideOutput = "text"


class TopOptions(Source, frozen=True, kw_only=True):
    """Show how many devices are free and how many are in use.

    Groups the devices by node, driver, class or namespace. FILL is the share of the devices that is in use: a device
    that one claim holds counts fully, a shared device by its fullest capacity. States without devices are not shown.

    Exit status: 0 if a group is listed, 1 if none is listed, 2 if the command cannot answer.
    """

    by: Annotated[
        Literal["nodes", "drivers", "classes", "namespaces"], typer.Argument(help="what to group the devices by")
    ] = "nodes"
    node: Nodes = None
    driver: Drivers = None
    device_class: Classes = None
    namespace: HoldersNamespace = ""
    output: Output = "text"


class HeadroomOptions(Source, frozen=True, kw_only=True):
    """Count how many more pods fit that use devices of a class, or the claims of a file.

    Allocates devices for one pod after the other, as the service would. Only devices count: CPU, memory and taints of
    nodes are not checked. Cordoned nodes are skipped.

    Exit status: 0 if at least one pod fits, 1 if none fits, 2 if the command cannot answer.
    """

    device_class: Annotated[str | None, argument("CLASS", "the DeviceClass of the pods' devices")] = None
    filename: ClaimFile = ""
    count: Annotated[int, typer.Option(metavar="COUNT", min=1, help="devices of the class per pod")] = 1
    gang_size: Annotated[int, typer.Option(metavar="COUNT", min=0, help="also count gangs of this number of pods")] = 0
    topology: Annotated[
        str, typer.Option(metavar="LABEL", help="all pods of a gang are on nodes with one value of this label")
    ] = ""
    output: Output = "text"


class WhatIfOptions(Source, frozen=True, kw_only=True):
    """Show which pods would fit, and which would no longer fit, after hypothetical changes.

    The cluster is not changed. Pods are scheduled one after the other: first the pods that lose their node, then
    the named pod, or all pending pods.

    Exit status: 0 if all pods would fit, 1 if some would not, 2 if the command cannot answer.
    """

    pod: WaitingPod = None
    filename: PodFile = ""
    add_node: Annotated[
        list[str] | None,
        repeated(
            "--add-node",
            "like=NODE,count=N",
            "add nodes like this one; nodepool=NAME,count=N: like the first node of this NodePool of Karpenter",
        ),
    ] = None
    without_pod: Annotated[list[str] | None, repeated("--without-pod", "POD", "delete this pod")] = None
    drain: Annotated[list[str] | None, repeated("--drain", "NODE", "drain this node")] = None
    with_file: Annotated[
        list[str] | None, repeated("--with", "FILE", "add the slices, classes and claims of this file")
    ] = None
    namespace: PodNamespace = ""
    output: Output = "text"
    scheduler_names: SchedulerNames = ""


class SimulateOptions(Source, frozen=True, kw_only=True):
    """Show which nodes would fit a pod, existing and new ones, and how many new nodes more such pods would need.

    Answers the request of POST /v1/simulate in a file, as YAML or JSON.

    Exit status: 0 if all pods would fit, 1 if some would not, 2 if the command cannot answer.
    """

    filename: Annotated[str, _file(help="the request; - is standard input")] = "-"
    output: Annotated[Literal["json", "yaml"], typer.Option("--output", "-o", help="form of the answer")] = "yaml"
    scheduler_names: SchedulerNames = ""


class CompactOptions(Source, frozen=True, kw_only=True):
    """List which pods to evict, in which order, so that a pending pod or a claim fits.

    Each evicted pod fits on another node: the command decides every move as the service would, in the order of the
    list. It never evicts a pod. By default only pods of the pending pod's own scheduler may be evicted, or of
    dra-scheduler if no pod is named.

    Exit status: 0 if there is a way, 1 if no evictions help, 2 if the command cannot answer.
    """

    pod: Pod = None
    filename: ClaimFile = ""
    namespace: PodNamespace = ""
    scheduler_name: MovedSchedulers = None
    output: Output = "text"


class MigrateOptions(Source, frozen=True, kw_only=True):
    """Show what changes when DRA drivers replace device plugins, or print the manifests for it.

    check: nodes that offer hardware twice, claims of pods with extended resources and where the pods fit, quotas, and
    the order of nodes to drain. plan: the manifests to apply. The cluster is not changed.

    Exit status: 0 if nothing is offered twice and all pods keep a place, 1 if not, 2 if the command cannot answer.
    """

    what: Annotated[Literal["check", "plan"], typer.Argument(help="the answer")] = "check"
    device_class: Annotated[list[str] | None, repeated("--class", "RESOURCE=CLASS", "a class for the resource")] = None
    output: Output = "text"


class SelectorOptions(Source, frozen=True, kw_only=True):
    """Show which devices a CEL selector matches, and why it does not match the others.

    Evaluates the selector for the devices in the ResourceSlices of the cluster, or of a file.

    Exit status: 0 if a device matches, 1 if no device matches, 2 if the selector is invalid or fails for a device.
    """

    expression: Annotated[str | None, typer.Argument(help="the CEL expression", show_default=False)] = None
    slices: Annotated[
        str, text_option("--slice", metavar="FILE", help="use the ResourceSlices of this file; - reads standard input")
    ] = ""
    batch: Annotated[
        bool, typer.Option("--batch", help="JSON lines in and out: name, expression, gates, device → name, result")
    ] = False
    output: Output = "text"


class AuditOptions(Source, frozen=True, kw_only=True):
    """List devices, counters and capacity that are allocated twice.

    Checks the allocations of all claims, whichever scheduler wrote them. Each line names what is allocated twice
    (driver/pool/device, or driver/pool for counters), the claims, and by how much.

    Exit status: 0 if nothing is allocated twice, 1 if something is, 2 if the command cannot answer.
    """

    output: Output = "text"


class ShadowOptions(Source, frozen=True, kw_only=True):
    """Report what other schedulers did, and what the service in mode shadow would have done.

    Each pod counts for one rule; an example is the node and devices of its scheduler -> those of the service.

    Exit status: 0 if all pods agree or none was recorded, 1 if some differ, 2 if the command cannot answer.
    """

    output: Output = "text"
    service: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="the Service, asked through the API server, or a URL")
    ] = DEFAULT_SERVICE
