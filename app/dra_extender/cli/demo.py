"""`dra-extender demo`: the flags. What happens then is in `embedded_cluster.demo`, which takes a moment to load.

Promises: nothing else imports `demo`, and this command does so when it runs, because container images leave it out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dra_extender.cli.output import complain

_ABSENT = """\
this installation has no demo: {} is missing. Container images leave the embedded cluster out.
Run `make demo` in a checkout of the source, or install the package with its extra: pip install 'dra-extender[demo]'"""


def _count(least: int, most: int, help: str) -> Any:
    return typer.Option(metavar="COUNT", min=least, max=most, help=help)


def _port(help: str) -> Any:
    return typer.Option(metavar="PORT", min=0, max=65535, help=help)


def demo(
    nodes: Annotated[int, _count(1, 5000, "nodes of the embedded cluster")] = 4,
    devices: Annotated[int, _count(0, 128, "GPUs per node; every fourth node has small ones; 0: no driver either")] = 8,
    port: Annotated[int, _port("port of the API server; 0 picks a free one")] = 0,
    service_port: Annotated[int, _port("port of the service; 0: 8888, or a free one when that is taken")] = 0,
    directory: Annotated[Path, typer.Option(metavar="FOLDER", help="directory for kubeconfig and log")] = Path(".demo"),
    with_samples: Annotated[bool, typer.Option("--samples/--no-samples", help="apply the sample workloads")] = True,
    once: Annotated[
        bool, typer.Option("--once", help="exit 0 when all pods run or wait as expected, 1 after --timeout")
    ] = False,
    tour: Annotated[
        bool, typer.Option("--tour", help="a guided tour of 4 nodes: why pods wait, what helps, preemption, moves")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="seconds that --once waits")] = 60.0,
) -> None:
    """Show the main job live: a cluster in this process, the service in another, pods that need devices."""
    import uvloop

    from dra_extender.service import logs

    try:
        from embedded_cluster.demo.show import DemoOptions, Show, console
    except ModuleNotFoundError as absence:
        complain(_ABSENT.format(absence.name))
        raise typer.Exit(2) from None

    logs.configure("error")
    options = DemoOptions(nodes, devices, port, service_port, directory, with_samples, once, timeout, tour)
    try:
        status = uvloop.run(Show(options, console()).run_until_signalled())
    except KeyboardInterrupt:
        status = 0
    except OSError as problem:
        complain(problem)
        status = 1
    raise typer.Exit(status)
