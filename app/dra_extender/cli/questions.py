"""The commands that answer questions about a cluster, or about a snapshot file.

They load the client, the CEL interpreter and YAML only when they run, because help and completion need none of them.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from dra_extender.cli.options import (
    AuditOptions,
    CompactOptions,
    DevicesOptions,
    HeadroomOptions,
    SelectorOptions,
    TopOptions,
    WhatIfOptions,
    WhyOptions,
    command,
)
from dra_extender.cli.output import FAILED, YES
from dra_extender.cli.source import Source


@command
async def why(given: WhyOptions) -> int:
    """Show why a pod cannot be scheduled, and which changes would let it fit.

    The service would decide the same. Each suggestion was verified: with that change the pod fits.

    Exit status: 0 if a node fits, 1 if no node fits, 2 if the command cannot answer.
    """
    if (given.pod is None) == (not given.filename):
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    from dra_extender.cli.answers.why import answer

    return await answer(given)


@command
async def devices(given: DevicesOptions) -> int:
    """List devices, their state, and the claims that hold them.

    `blocked`: the device is not allocated, but other devices consume counters that it needs. `unusable`: no device of
    its pool can be allocated, or this device cannot be with these feature gates. `-o wide` adds pools, classes, taints
    and counters.

    Exit status: 0 if devices are listed, 1 if there are none, 2 if the command cannot answer.
    """
    from dra_extender.cli.answers.devices import list_devices

    return await list_devices(given)


@command
async def top(given: TopOptions) -> int:
    """Show how many devices are free and how many are in use.

    Groups the devices by node, driver, class or namespace. FILL is the share of the devices that is in use: a device
    that one claim holds counts fully, a shared device by its fullest capacity. States without devices are not shown.

    Exit status: 0 if a group is listed, 1 if there are no devices, 2 if the command cannot answer.
    """
    from dra_extender.cli.answers.devices import sum_devices

    return await sum_devices(given)


@command
async def headroom(given: HeadroomOptions) -> int:
    """Count how many more pods fit that use devices of a class, or the claims of a file.

    Allocates devices for one pod after the other, as the service would. Only devices count: CPU, memory and taints of
    nodes are not checked. Cordoned nodes are skipped.

    Exit status: 0 if at least one pod fits, 1 if none fits, 2 if the command cannot answer.
    """
    if (given.device_class is None) == (not given.filename):
        raise typer.BadParameter("name a DeviceClass, or a file with -f", param_hint="CLASS")
    from dra_extender.cli.answers.headroom import answer

    return await answer(given)


@command
async def whatif(given: WhatIfOptions) -> int:
    """Show which pods would fit, and which would no longer fit, after hypothetical changes.

    The cluster is not changed. Pods are scheduled one after the other: first the pods that lose their node, then
    the named pod, or all pending pods.

    Exit status: 0 if all pods would fit, 1 if some would not, 2 if the command cannot answer.
    """
    if given.pod is not None and given.filename:
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    from dra_extender.cli.answers.whatif import answer

    return await answer(given)


@command
async def compact(given: CompactOptions) -> int:
    """List which pods to evict, in which order, so that a pending pod or a claim fits.

    Without a pod or a file it frees as many whole devices as possible. Each evicted pod fits on another node: the
    command decides every move as the service would, in the order of the list. It never evicts a pod. By default only
    pods of the pending pod's own scheduler may be evicted, or of dra-scheduler if no pod is named.

    Exit status: 0 if there is a way, 1 if no evictions help, 2 if the command cannot answer.
    """
    if given.pod is not None and given.filename:
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    from dra_extender.cli.answers.compact import answer

    return await answer(given)


@command
async def selector(given: SelectorOptions) -> int:
    """Show which devices a CEL selector matches, and why it does not match the others.

    Evaluates the selector for the devices in the ResourceSlices of the cluster, or of a file.

    Exit status: 0 if a device matches, 1 if no device matches, 2 if the selector is invalid or fails for a device.
    """
    if given.batch:
        return _batch()
    if given.expression is None:
        raise typer.BadParameter("give an expression, or --batch", param_hint="EXPRESSION")
    from dra_extender.cli.answers.selector import answer

    return await answer(given)


def _batch() -> int:
    from dra_extender.cel import Programs
    from dra_extender.cel.batch import answer
    from dra_extender.cli.scenarios import answer_lines

    programs = Programs()

    def complain(name: str, problem: str) -> dict[str, Any]:
        return {"name": name, "result": "error", "message": problem}

    def said(case: dict[str, Any]) -> dict[str, Any]:
        return answer(case, programs)

    return FAILED if answer_lines(sys.stdin.buffer, sys.stdout.buffer, said, complain) else YES


@command
async def audit(given: AuditOptions) -> int:
    """List devices, counters and capacity that are allocated twice.

    Checks the allocations of all claims, whichever scheduler wrote them. Each line names what is allocated twice
    (driver/pool/device, or driver/pool for counters), the claims, and by how much.

    Exit status: 0 if nothing is allocated twice, 1 if something is, 2 if the command cannot answer.
    """
    from dra_extender.cli.answers.audit import answer

    return await answer(given)


@command
async def workload(given: Source) -> int:
    """Print the kinds of pods that use devices, and how many pods of each kind there are.

    The output is the YAML file that `serve --placement-workload` reads. It covers running and pending pods, the most
    frequent kind first.

    Exit status: 0 if the file was printed, 1 if no pod uses devices, 2 if the command cannot answer.
    """
    from dra_extender.cli.answers.audit import workload

    return await workload(given)
