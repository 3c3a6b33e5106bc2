"""Pods, nodes, namespaces, events, config maps, secrets and services."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.ages import UNKNOWN, since
from embedded_cluster.apiserver.printers.cells import AGE, NAME, NONE, Row, age, labels_text, name_of, wide
from embedded_cluster.apiserver.registry import Column, Printer
from embedded_cluster.apiserver.statuses import JSON

_ENDED: Final = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def _pod_row(obj: JSON, now: float) -> Row:
    spec, status = obj["spec"], obj.get("status", {})
    states = status.get("containerStatuses") or ()
    ready = sum(1 for state in states if state.get("ready"))
    gates = spec.get("readinessGates") or ()
    conditions = {c["type"]: c.get("status") for c in status.get("conditions") or ()}
    passed = sum(1 for gate in gates if conditions.get(gate.get("conditionType")) == "True")
    return [
        name_of(obj),
        f"{ready}/{len(spec.get('containers') or ())}",
        _pod_status(obj),
        str(sum(state.get("restartCount", 0) for state in states)),
        age(obj, now),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _pod_status(obj: JSON) -> str:
    status = obj.get("status", {})
    shown: str = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            shown = "SchedulingGated"
    for state in reversed(status.get("containerStatuses") or ()):
        current = state.get("state") or {}
        waiting, ended = current.get("waiting") or {}, current.get("terminated") or {}
        if waiting.get("reason"):
            shown = waiting["reason"]
        elif ended.get("reason"):
            shown = ended["reason"]
        elif "terminated" in current:
            shown = f"ExitCode:{ended.get('exitCode', 0)}"
    if obj["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return shown


def _pod_conditions(obj: JSON) -> list[JSON]:
    phase = obj.get("status", {}).get("phase")
    if phase not in _ENDED:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDED[phase]}]


POD: Final = Printer(
    (
        NAME,
        Column("Ready"),
        Column("Status"),
        Column("Restarts"),
        AGE,
        *wide("IP", "Node", "Nominated Node", "Readiness Gates"),
    ),
    _pod_row,
    _pod_conditions,
)


def _node_row(obj: JSON, now: float) -> Row:
    status = obj.get("status", {})
    info = status.get("nodeInfo") or {}
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    ready = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    states = ["Ready" if c.get("status") == "True" else "NotReady" for c in ready] or ["Unknown"]
    if obj.get("spec", {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix}
    roles |= {value for key, value in labels.items() if key == "kubernetes.io/role" and value}
    return [
        name_of(obj),
        ",".join(states),
        ",".join(sorted(roles)) or NONE,
        age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        _kernel(info),
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _kernel(info: JSON) -> str:
    version, architecture = info.get("kernelVersion"), info.get("architecture")
    if not version:
        return UNKNOWN
    return f"{version} ({architecture})" if architecture else str(version)


NODE: Final = Printer(
    (
        NAME,
        Column("Status"),
        Column("Roles"),
        AGE,
        Column("Version"),
        *wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
    ),
    _node_row,
)

NAMESPACE: Final = Printer(
    (NAME, Column("Status"), AGE),
    lambda obj, now: [name_of(obj), obj.get("status", {}).get("phase", ""), age(obj, now)],
)


def _event_row(obj: JSON, now: float) -> Row:
    involved, source = obj.get("involvedObject", {}), obj.get("source", {})
    series = obj.get("series") or {}
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    target = involved.get("kind", "").lower() + (f"/{involved['name']}" if involved.get("name") else "")
    emitter = source.get("component") or obj.get("reportingComponent", "")
    host = source.get("host") or obj.get("reportingInstance", "")
    return [
        since(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        involved.get("fieldPath", ""),
        f"{emitter}, {host}" if host else emitter,
        obj.get("message", "").strip(),
        since(first, now),
        series.get("count") or obj.get("count") or 1,
        name_of(obj),
    ]


EVENT: Final = Printer(
    (
        Column("Last Seen"),
        Column("Type"),
        Column("Reason"),
        Column("Object"),
        Column("Subobject", priority=1),
        Column("Source", priority=1),
        Column("Message"),
        Column("First Seen", priority=1),
        Column("Count", priority=1),
        Column("Name", "string", "name", priority=1),
    ),
    _event_row,
)

CONFIG_MAP: Final = Printer(
    (NAME, Column("Data"), AGE),
    lambda obj, now: [name_of(obj), len(obj.get("data", {})) + len(obj.get("binaryData", {})), age(obj, now)],
)
SECRET: Final = Printer(
    (NAME, Column("Type"), Column("Data"), AGE),
    lambda obj, now: [name_of(obj), obj.get("type", ""), len(obj.get("data", {})), age(obj, now)],
)


def _service_row(obj: JSON, now: float) -> Row:
    spec = obj.get("spec", {})
    ports = [
        f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or ()
    ]
    return [
        name_of(obj),
        spec.get("type", ""),
        spec.get("clusterIP", ""),
        ",".join(spec.get("externalIPs") or ()) or NONE,
        ",".join(ports) or NONE,
        age(obj, now),
        labels_text(spec.get("selector")),
    ]


SERVICE: Final = Printer(
    (
        NAME,
        Column("Type"),
        Column("Cluster-IP"),
        Column("External-IP"),
        Column("Port(s)"),
        AGE,
        Column("Selector", priority=1),
    ),
    _service_row,
)
