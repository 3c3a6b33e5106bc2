"""Filter on 500 and 5,000 nodes with 8 devices each: the time of a pod that asks for all nodes, and the memory of the
state.

Shapes of pods: one device, a matched pair (two devices with one PCIe root), a prioritized list of two alternatives.
States of the cluster: idle, busy (no device free), ragged (every node with other devices in use), and `serials`:
every device has an attribute of its own, as real drivers publish. A cold shape is a pod with new selectors. The first
question after a start comes after what a replica does before it is Ready, and is a cold shape, too.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import chain, count
from random import Random
from typing import Any, Final

import msgspec

from bench.timing import Timing, timed
from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Node
from dra_extender.api.decoding import convert, decode
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.pods import Pods
from dra_extender.plaintext import counted
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extended import ResourceNames
from dra_extender.scheduling.view import View
from dra_extender.scheduling.warmup import warm_up
from tests.support.diagnosis.scene import Stopped
from tools.memory import resident

DRIVER = "gpu.example.com"
DEVICES = 8
SIZES = (500, 5_000)

TARGETS = {
    ("idle", "warm", 500): 2.0,
    ("idle", "warm", 5_000): 15.0,
    ("idle", "after one change", 5_000): 16.0,
    ("idle", "cold shape", 5_000): 100.0,
    ("idle", "first question after start", 5_000): 50.0,
    ("serials", "first question after start", 5_000): 50.0,
}
"""Milliseconds, where there is a target."""

FIRST: Final = 3
"""Replicas that are asked for the first time."""

_shapes = count()


# --- the cluster ------------------------------------------------------------------------------------------------------


def slice_json(node: int, serials: bool, number: int = DEVICES) -> bytes:
    """What a driver publishes for one node with this number of devices."""
    devices = []
    for index in range(number):
        attributes: dict[str, Any] = {
            "model": {"string": "H100" if index < number // 2 else "A100"},
            "index": {"int": index},
            "driverVersion": {"version": "570.12.1"},
            "architecture": {"string": "hopper"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index // 2:02x}"},
        }
        if serials:
            attributes["uuid"] = {"string": f"GPU-{node:06d}-{index}-8a2b-4c3d"}
        devices.append({"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}})
    name = f"node-{node}"
    spec = {
        "driver": DRIVER,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "nodeName": name,
        "devices": devices,
    }
    metadata = {"name": f"{name}-{DRIVER}-x7k2p", "uid": f"slice-{node}", "resourceVersion": str(node + 1)}
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


def cluster_of(nodes: int, *, serials: bool = False, devices: int = DEVICES) -> Cluster:
    """Equal nodes with this number of idle devices each."""
    cluster = Cluster(FeatureGates())
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    cluster.apply(Applied(convert(DeviceClass, {"metadata": {"name": "gpu"}, "spec": spec})))
    for node in range(nodes):
        labels = {"kubernetes.io/hostname": f"node-{node}", "topology.kubernetes.io/zone": f"z{node % 3}"}
        cluster.apply(Applied(convert(Node, {"metadata": {"name": f"node-{node}", "labels": labels}})))
        cluster.apply(Applied(decode(ResourceSlice, slice_json(node, serials, devices))))
    return cluster


def allocated(node: int, devices: list[int], version: int) -> ResourceClaim:
    """A claim that has these devices of the node."""
    results = [{"request": "r", "driver": DRIVER, "pool": f"node-{node}", "device": f"gpu-{i}"} for i in devices]
    metadata = {"name": f"used-{node}", "namespace": "ns", "uid": f"used-{node}", "resourceVersion": str(version)}
    return convert(ResourceClaim, {"metadata": metadata, "status": {"allocation": {"devices": {"results": results}}}})


def occupy(cluster: Cluster, devices_of: Callable[[int], list[int]]) -> None:
    for node in range(len(cluster.nodes)):
        devices = devices_of(node)
        if devices:
            cluster.apply(Applied(allocated(node, devices, 10 + node)))


# --- pods -------------------------------------------------------------------------------------------------------------


def _exact(selector: str, number: int) -> dict[str, Any]:
    return {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": number,
        "selectors": [{"cel": {"expression": selector}}],
    }


def _claim(spec: dict[str, Any]) -> tuple[ResourceClaim, ...]:
    metadata = {"name": "wanted", "namespace": "ns", "uid": "wanted"}
    return (convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": spec}}),)


def one_device(shape: int) -> tuple[ResourceClaim, ...]:
    selector = f'device.attributes["{DRIVER}"].index < {1000 + shape}'
    return _claim({"requests": [{"name": "r", "exactly": _exact(selector, 1)}]})


def matched_pair(shape: int) -> tuple[ResourceClaim, ...]:
    selector = f'device.attributes["{DRIVER}"].index < {1000 + shape}'
    constraint = {"matchAttribute": "resource.kubernetes.io/pcieRoot"}
    return _claim({"requests": [{"name": "r", "exactly": _exact(selector, 2)}], "constraints": [constraint]})


def prioritized_list(shape: int) -> tuple[ResourceClaim, ...]:
    many = f'device.attributes["{DRIVER}"].model == "B200" && {shape} >= 0'
    few = f'device.attributes["{DRIVER}"].model == "H100" && {shape} >= 0'
    alternatives = [{"name": "best", **_exact(many, 1)}, {"name": "good", **_exact(few, 2)}]
    return _claim({"requests": [{"name": "r", "firstAvailable": alternatives}]})


Pod = Callable[[int], tuple[ResourceClaim, ...]]
"""The claims of a pod; each number makes another shape."""

PODS: Mapping[str, Pod] = {"one device": one_device, "matched pair": matched_pair, "prioritized list": prioritized_list}


# --- rows -------------------------------------------------------------------------------------------------------------


class Row(msgspec.Struct, frozen=True):
    """`fits`: nodes that fit; `searches` made in the last run. `target` in milliseconds; 0: no target."""

    nodes: int
    state: str
    pod: str
    case: str
    time: Timing
    fits: int
    searches: int
    target: float = 0


def rows_of(cluster: Cluster, state: str, pods: Mapping[str, Pod]) -> list[Row]:
    """Cold, warm and after one change, for each pod."""
    names = [f"node-{index}" for index in range(len(cluster.nodes))]
    decisions = Decisions(cluster, share_ids=lambda: "share")
    runs = 20 if len(names) > 1_000 else 60
    found: list[Row] = []
    for pod, build in pods.items():
        warm = build(next(_shapes))
        decisions.node_results(warm, names)

        cases = _cases(decisions, build, warm, names, _changer(cluster, state))
        for case, (call, before) in cases.items():
            time = timed(call, runs=runs, before=before)
            searched = decisions.searches
            before()
            call()
            fits = len(decisions.node_results(warm, names).fits)
            target = TARGETS.get((state, case, len(names)), 0)
            found.append(Row(len(names), state, pod, case, time, fits, decisions.searches - searched, target))
    return found


def _cases(
    decisions: Decisions,
    build: Pod,
    warm: tuple[ResourceClaim, ...],
    names: list[str],
    change: Callable[[], None],
) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """case -> (what is timed, what comes before each run)."""
    asked = [warm]

    def ask() -> object:
        return decisions.node_results(asked[0], names)

    def ask_anew() -> None:
        asked[0] = build(next(_shapes))

    def ask_again() -> None:
        asked[0] = warm

    def ask_changed() -> None:
        asked[0] = warm
        change()

    return {"cold shape": (ask, ask_anew), "warm": (ask, ask_again), "after one change": (ask, ask_changed)}


def _changer(cluster: Cluster, state: str) -> Callable[[], None]:
    """Give one node other devices to hold, each time another node."""
    versions, random = count(1_000_000), Random(7)

    def change() -> None:
        node = random.randrange(len(cluster.nodes))
        devices = [random.randrange(DEVICES)] if state != "busy" else random.sample(range(DEVICES), DEVICES - 1)
        cluster.apply(Applied(allocated(node, devices, next(versions))))

    return change


def view_of(cluster: Cluster, pods: Pods) -> View:
    clock, config = Stopped(), SchedulingConfig()
    return View(
        cluster=cluster,
        decisions=Decisions(cluster, share_ids=lambda: "00000000-0000-4000-8000-000000000000"),
        pods=pods,
        clock=clock,
        config=config,
        resources=ResourceNames(cluster.classes, clock, config),
    )


def first_filter(nodes: int, serials: bool) -> Row:
    """The first filter call after a replica is Ready. The claims have selectors that no earlier claim had."""
    asked, names = one_device(next(_shapes)), [f"node-{index}" for index in range(nodes)]
    ready: list[View] = []

    def begin() -> None:
        """A replica has one cluster in memory."""
        ready.clear()
        cluster = cluster_of(nodes, serials=serials)
        ready.append(view_of(cluster, Pods()))
        for _ in chain(cluster.inventory.nodes.refresh_all(), warm_up(ready[0])):
            continue

    time = timed(lambda: ready[0].decisions.node_results(asked, names), runs=FIRST, before=begin)
    state = "serials" if serials else "idle"
    return Row(nodes, state, "one device", CASES[-1], time, nodes, 0, TARGETS.get((state, CASES[-1], nodes), 0))


def run() -> dict[str, Any]:
    """All rows, and the memory of the state."""
    rows: list[Row] = []
    for nodes in SIZES:
        rows += rows_of(cluster_of(nodes), "idle", PODS)
        busy = cluster_of(nodes)
        occupy(busy, lambda node: list(range(DEVICES)))
        rows += rows_of(busy, "busy", PODS)
        ragged = cluster_of(nodes)
        occupy(ragged, lambda node: Random(node).sample(range(DEVICES), node % DEVICES))
        rows += rows_of(ragged, "ragged", PODS)
        rows += rows_of(cluster_of(nodes, serials=True), "serials", {"one device": one_device})
        rows += [first_filter(nodes, serials) for serials in (False, True)]
    memory = [weigh(SIZES[-1], serials) for serials in (False, True)]
    return {"filter": [msgspec.to_builtins(row) for row in rows], "memory": memory}


# --- answers ----------------------------------------------------------------------------------------------------------


def missed(result: dict[str, Any]) -> list[str]:
    """The targets that are missed."""
    rows = [
        f"filter: {counted(row['nodes'], 'node')}, {row['state']}, {row['pod']}, {row['case']}: "
        f"{row['time']['median']:.2f} ms, target {row['target']:g}"
        for row in result["filter"]
        if row["target"] and row["time"]["median"] > row["target"]
    ]
    heavy = [
        f"memory: {weight['total_mib']} MiB, target {weight['target_mib']}"
        for weight in result["memory"]
        if weight["total_mib"] > weight["target_mib"]
    ]
    return rows + heavy


SHOWN_FROM: Final = 1_000
"""Smaller clusters are shown with one kind of pod."""
CASES: Final = ("cold shape", "warm", "after one change", "first question after start")


def _time(row: dict[str, Any]) -> str:
    target = f", target {row['target']:g}" if row["target"] else ""
    return f"{row['time']['median']:.2f} ({row['time']['p95']:.2f}{target})"


def markdown(result: dict[str, Any]) -> str:
    """One line per cluster, state and pod; results.json has every row."""
    grouped: dict[tuple[int, str, str], dict[str, dict[str, Any]]] = {}
    for row in result["filter"]:
        grouped.setdefault((row["nodes"], row["state"], row["pod"]), {})[row["case"]] = row
    lines = [
        "Milliseconds of filter for one pod and all nodes: median, in parentheses the 95th percentile. Idle: no device",
        "in use; busy: all; ragged: every node has other devices in use; serials: every device has an attribute of its",
        "own. First question: a cold shape, and the first call of a replica that has become Ready. Fits: nodes that",
        "fit. Searches: in the cold case.",
        "",
        f"| nodes × devices | state | pod | {' | '.join(CASES)} | fits | searches |",
        f"|---|---|---|{'---:|' * len(CASES)}---:|---:|",
    ]
    for (nodes, state, pod), rows in grouped.items():
        if nodes < SHOWN_FROM and pod != "one device":
            continue
        times = [_time(rows[case]) if case in rows else "" for case in CASES]
        cold = rows["cold shape"]
        lines.append(
            f"| {nodes} × {DEVICES} | {state} | {pod} | {' | '.join(times)} | {cold['fits']} | {cold['searches']} |"
        )
    lines += [
        "",
        "Memory of a process with this cluster, every device allocated, after answers for nine kinds of pods:",
        "",
        "| devices | each has a serial number | bytes per device as published | resident | target |",
        "|---|---|---:|---:|---:|",
    ]
    for weight in result["memory"]:
        serials = "yes" if weight["serials"] else "no"
        lines.append(
            f"| {weight['nodes']} × {DEVICES} | {serials} | {weight['bytes_per_device']} | {weight['total_mib']} MiB "
            f"| {weight['target_mib']} MiB |"
        )
    return "\n".join(lines)


# --- memory -----------------------------------------------------------------------------------------------------------


def weigh(nodes: int, serials: bool) -> dict[str, Any]:
    """The memory of a process that holds the cluster, all devices allocated, and has answered pods of each kind."""
    command = [sys.executable, "-m", "bench.filter", str(nodes), str(int(serials))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, Any] = msgspec.json.decode(output.stdout)
    return found


def _weigh_here(nodes: int, serials: bool) -> dict[str, Any]:
    empty = resident()
    cluster = cluster_of(nodes, serials=serials)
    gc.collect()
    published = resident()
    occupy(cluster, lambda node: list(range(DEVICES)))
    decisions = Decisions(cluster, share_ids=lambda: "share")
    names = [f"node-{index}" for index in range(nodes)]
    for build in PODS.values():
        for _ in range(3):
            decisions.node_results(build(next(_shapes)), names)
    gc.collect()
    total = resident()
    devices = nodes * DEVICES
    return {
        "nodes": nodes,
        "devices": devices,
        "serials": serials,
        "process_mib": round(empty / 2**20, 1),
        "published_mib": round((published - empty) / 2**20, 1),
        "bytes_per_device": round((published - empty) / devices),
        "total_mib": round(total / 2**20, 1),
        "target_mib": 300,
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_weigh_here(int(sys.argv[1]), sys.argv[2] == "1")))
