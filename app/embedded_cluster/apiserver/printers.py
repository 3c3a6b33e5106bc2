"""How kinds are shown in tables, which `kubectl get` asks for: columns, and one row per object.

Kinds without a printer of their own show their name and age. Source: Kubernetes 1.37, pkg/printers/internalversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_extender.api.meta import parse_time
from embedded_cluster.apiserver.statuses import JSON

Cells = Callable[[JSON, float], Sequence[Any]]
"""(object, now in seconds since the epoch) -> one value per column."""

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of table output; priority 1 is shown by `-o wide` only."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Printer:
    """How a kind is shown; `conditions` mark rows, as those of completed pods."""

    columns: tuple[Column, ...]
    cells: Cells
    conditions: Callable[[JSON], list[JSON]] = lambda obj: []


NAME: Final = Column("Name", "string", "name", "Name must be unique within a namespace.")
AGE: Final = Column("Age", description="Time since the object was created.")


def _wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


def _named(before: tuple[Column, ...], cells: Callable[[JSON], Sequence[Any]], *after: Column) -> Printer:
    """Name, some columns, age, and some more: `cells` gives all but name and age."""
    count = len(before)

    def row(obj: JSON, now: float) -> list[Any]:
        values = cells(obj)
        return [obj["metadata"]["name"], *values[:count], age(obj, now), *values[count:]]

    return Printer((NAME, *before, AGE, *after), row)


def duration(seconds: float) -> str:
    """A time span as kubectl shows it: 45s, 3m20s, 5h2m, 12d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 120:
        return f"{max(total, 0)}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def since(moment: str | None, now: float) -> str:
    """The age of a timestamp."""
    began = parse_time(moment or "")
    return UNKNOWN if began is None else duration(now - began.timestamp())


def age(obj: JSON, now: float) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def labels_text(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


# core

_ENDED: Final = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def _pod(obj: JSON) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    states = status.get("containerStatuses") or ()
    gates = spec.get("readinessGates") or ()
    conditions = {c["type"]: c.get("status") for c in status.get("conditions") or ()}
    passed = sum(1 for gate in gates if conditions.get(gate.get("conditionType")) == "True")
    return [
        f"{sum(1 for state in states if state.get('ready'))}/{len(spec.get('containers') or ())}",
        _pod_status(obj),
        str(sum(state.get("restartCount", 0) for state in states)),
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
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else shown


def _pod_conditions(obj: JSON) -> list[JSON]:
    phase = obj.get("status", {}).get("phase")
    if phase not in _ENDED:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDED[phase]}]


_PLAIN_POD: Final = _named(
    (Column("Ready"), Column("Status"), Column("Restarts")),
    _pod,
    *_wide("IP", "Node", "Nominated Node", "Readiness Gates"),
)
POD: Final = Printer(_PLAIN_POD.columns, _PLAIN_POD.cells, _pod_conditions)


def _node(obj: JSON) -> list[Any]:
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
    kernel, architecture = info.get("kernelVersion") or UNKNOWN, info.get("architecture")
    return [
        ",".join(states),
        ",".join(sorted(roles)) or NONE,
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        f"{kernel} ({architecture})" if architecture and kernel != UNKNOWN else kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


NODE: Final = _named(
    (Column("Status"), Column("Roles")),
    _node,
    Column("Version"),
    *_wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
)


def _event(obj: JSON, now: float) -> list[Any]:
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
        obj["metadata"]["name"],
    ]


EVENT: Final = Printer(
    (
        *(Column(name) for name in ("Last Seen", "Type", "Reason", "Object")),
        *_wide("Subobject", "Source"),
        Column("Message"),
        *_wide("First Seen", "Count"),
        Column("Name", "string", "name", priority=1),
    ),
    _event,
)
NAMESPACE: Final = _named((Column("Status"),), lambda obj: [obj.get("status", {}).get("phase", "")])
CONFIG_MAP: Final = _named((Column("Data"),), lambda obj: [len(obj.get("data", {})) + len(obj.get("binaryData", {}))])
PLAIN: Final = _named((), lambda obj: [])


# sets of pods, budgets, priorities, leases

_OF_TEMPLATES: Final = _wide("Containers", "Images", "Selector")


def _numbers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "integer") for name in names)


def _template(spec: JSON) -> list[str]:
    """The cells of `_OF_TEMPLATES`."""
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return [
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
        labels_text((spec.get("selector") or {}).get("matchLabels")),
    ]


def _counts(obj: JSON, *names: str) -> list[Any]:
    return [obj.get("status", {}).get(name, 0) for name in names]


def _deployment(obj: JSON) -> list[Any]:
    spec = obj.get("spec", {})
    ready, *counts = _counts(obj, "readyReplicas", "updatedReplicas", "availableReplicas")
    return [f"{ready}/{spec.get('replicas', 0)}", *counts, *_template(spec)]


def _replica_set(obj: JSON) -> list[Any]:
    spec = obj.get("spec", {})
    return [spec.get("replicas", 0), *_counts(obj, "replicas", "readyReplicas"), *_template(spec)]


def _daemon_set(obj: JSON) -> list[Any]:
    spec = obj.get("spec", {})
    names = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    selector = labels_text(spec.get("template", {}).get("spec", {}).get("nodeSelector"))
    return [*_counts(obj, *names, "numberAvailable"), selector, *_template(spec)]


DEPLOYMENT: Final = _named((Column("Ready"), *_numbers("Up-to-date", "Available")), _deployment, *_OF_TEMPLATES)
REPLICA_SET: Final = _named(_numbers("Desired", "Current", "Ready"), _replica_set, *_OF_TEMPLATES)
DAEMON_SET: Final = _named(
    (*_numbers("Desired", "Current", "Ready", "Up-to-date", "Available"), Column("Node Selector")),
    _daemon_set,
    *_OF_TEMPLATES,
)


def _budget(obj: JSON) -> list[Any]:
    spec = obj.get("spec", {})
    limits = [str(spec.get(name, "N/A")) for name in ("minAvailable", "maxUnavailable")]
    return [*limits, *_counts(obj, "disruptionsAllowed")]


BUDGET: Final = _named((Column("Min Available"), Column("Max Unavailable"), *_numbers("Allowed Disruptions")), _budget)
PRIORITY_CLASS: Final = _named(
    (Column("Value", "integer"), Column("Global-Default", "boolean")),
    lambda obj: [obj.get("value", 0), obj.get("globalDefault", False), obj.get("preemptionPolicy", "")],
    Column("PreemptionPolicy"),
)
LEASE: Final = _named((Column("Holder"),), lambda obj: [obj.get("spec", {}).get("holderIdentity", "")])


# resource.k8s.io


def claim_state(claim: JSON) -> str:
    """What the STATE column says of a claim."""
    status, deleted = claim.get("status", {}), bool(claim["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is None:
        if not deleted:
            states.append("pending")
    else:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    return ",".join(states)


def _slice(obj: JSON) -> list[str]:
    spec = obj["spec"]
    several = "<multiple>" if spec.get("nodeSelector") or spec.get("perDeviceNodeSelection") else ""
    return [spec.get("nodeName") or several, spec["driver"], spec["pool"]["name"]]


def _taint_rule(obj: JSON, now: float) -> list[Any]:
    taint = obj["spec"]["taint"]
    values = [taint.get(name, "") for name in ("key", "value", "effect")]
    return [obj["metadata"]["name"], *values, since(taint.get("timeAdded"), now), age(obj, now)]


CLAIM: Final = _named((Column("State"),), lambda obj: [claim_state(obj)])
SLICE: Final = _named((Column("Node"), Column("Driver"), Column("Pool")), _slice)
TAINT_RULE: Final = Printer(
    (NAME, Column("Key"), Column("Value"), Column("Effect"), Column("TimeAdded"), AGE), _taint_rule
)
