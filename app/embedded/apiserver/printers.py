"""How people see objects: ages and the cells of table rows, one function per kind.

Columns and wording are those of `kubectl get` against Kubernetes 1.36; kubectl itself prints only what the server
sends.
"""

from __future__ import annotations

from typing import Any, Final

from app.embedded.apiserver.ages import UNKNOWN, since
from app.embedded.apiserver.registry import Column, Printer
from app.embedded.apiserver.statuses import JSON

Row = list[Any]

_NONE: Final = "<none>"
_ENDED: Final = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}
NAME: Final = Column("Name", "string", "name", "Name must be unique within a namespace.")
AGE: Final = Column("Age", description="Time since the object was created.")


def _age(obj: JSON, now: float) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def _name(obj: JSON) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


# any kind


def _plain_row(obj: JSON, now: float) -> Row:
    return [_name(obj), _age(obj, now)]


PLAIN: Final = Printer((NAME, AGE), _plain_row)
CREATED: Final = Printer(
    (NAME, Column("Created At", "date")), lambda obj, now: [_name(obj), obj["metadata"].get("creationTimestamp", "")]
)

# core


def _pod_row(obj: JSON, now: float) -> Row:
    spec, status = obj["spec"], obj.get("status", {})
    states = status.get("containerStatuses") or ()
    ready = sum(1 for state in states if state.get("ready"))
    gates = spec.get("readinessGates") or ()
    conditions = {c["type"]: c.get("status") for c in status.get("conditions") or ()}
    passed = sum(1 for gate in gates if conditions.get(gate.get("conditionType")) == "True")
    return [
        _name(obj),
        f"{ready}/{len(spec.get('containers') or ())}",
        _pod_status(obj),
        str(sum(state.get("restartCount", 0) for state in states)),
        _age(obj, now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"{passed}/{len(gates)}" if gates else _NONE,
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
        *_wide("IP", "Node", "Nominated Node", "Readiness Gates"),
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
        _name(obj),
        ",".join(states),
        ",".join(sorted(roles)) or _NONE,
        _age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
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
        *_wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
    ),
    _node_row,
)

NAMESPACE: Final = Printer(
    (NAME, Column("Status"), AGE),
    lambda obj, now: [_name(obj), obj.get("status", {}).get("phase", ""), _age(obj, now)],
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
        _name(obj),
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
    lambda obj, now: [_name(obj), len(obj.get("data", {})) + len(obj.get("binaryData", {})), _age(obj, now)],
)
SECRET: Final = Printer(
    (NAME, Column("Type"), Column("Data"), AGE),
    lambda obj, now: [_name(obj), obj.get("type", ""), len(obj.get("data", {})), _age(obj, now)],
)


def _service_row(obj: JSON, now: float) -> Row:
    spec = obj.get("spec", {})
    ports = [
        f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
        for p in spec.get("ports") or ()
    ]
    return [
        _name(obj),
        spec.get("type", ""),
        spec.get("clusterIP", ""),
        ",".join(spec.get("externalIPs") or ()) or _NONE,
        ",".join(ports) or _NONE,
        _age(obj, now),
        _labels(spec.get("selector")),
    ]


def _labels(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


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


CLAIM: Final = Printer((NAME, Column("State"), AGE), lambda obj, now: [_name(obj), claim_state(obj), _age(obj, now)])


def _slice_row(obj: JSON, now: float) -> Row:
    spec = obj["spec"]
    node = spec.get("nodeName") or (
        "<multiple>" if spec.get("nodeSelector") or spec.get("perDeviceNodeSelection") else ""
    )
    return [_name(obj), node, spec["driver"], spec["pool"]["name"], _age(obj, now)]


SLICE: Final = Printer((NAME, Column("Node"), Column("Driver"), Column("Pool"), AGE), _slice_row)

TAINT_RULE: Final = Printer(
    (NAME, Column("Key"), Column("Value"), Column("Effect"), Column("TimeAdded"), AGE),
    lambda obj, now: [
        _name(obj),
        obj["spec"]["taint"].get("key", ""),
        obj["spec"]["taint"].get("value", ""),
        obj["spec"]["taint"].get("effect", ""),
        since(obj["spec"]["taint"].get("timeAdded"), now),
        _age(obj, now),
    ],
)

# the rest


def _deployment_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
        _labels((spec.get("selector") or {}).get("matchLabels")),
    ]


DEPLOYMENT: Final = Printer(
    (
        NAME,
        Column("Ready"),
        Column("Up-to-date", "integer"),
        Column("Available", "integer"),
        AGE,
        *_wide("Containers", "Images", "Selector"),
    ),
    _deployment_row,
)


def _replica_set_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return [
        _name(obj),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        _age(obj, now),
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
        _labels((spec.get("selector") or {}).get("matchLabels")),
    ]


REPLICA_SET: Final = Printer(
    (
        NAME,
        Column("Desired", "integer"),
        Column("Current", "integer"),
        Column("Ready", "integer"),
        AGE,
        *_wide("Containers", "Images", "Selector"),
    ),
    _replica_set_row,
)


def _budget_row(obj: JSON, now: float) -> Row:
    spec = obj.get("spec", {})
    least, most = spec.get("minAvailable", "N/A"), spec.get("maxUnavailable", "N/A")
    return [_name(obj), str(least), str(most), obj.get("status", {}).get("disruptionsAllowed", 0), _age(obj, now)]


BUDGET: Final = Printer(
    (NAME, Column("Min Available"), Column("Max Unavailable"), Column("Allowed Disruptions", "integer"), AGE),
    _budget_row,
)


NETWORK_POLICY: Final = Printer(
    (NAME, Column("Pod-Selector"), AGE),
    lambda obj, now: [
        _name(obj),
        _labels((obj.get("spec", {}).get("podSelector") or {}).get("matchLabels")),
        _age(obj, now),
    ],
)


def _binding_row(obj: JSON, now: float) -> Row:
    role, subjects = obj.get("roleRef", {}), obj.get("subjects") or ()

    def named(kind: str) -> str:
        return ", ".join(
            f"{s['namespace']}/{s.get('name', '')}"
            if kind == "ServiceAccount" and s.get("namespace")
            else s.get("name", "")
            for s in subjects
            if s.get("kind") == kind
        )

    who = [named(kind) for kind in ("User", "Group", "ServiceAccount")]
    return [_name(obj), f"{role.get('kind')}/{role.get('name')}", _age(obj, now), *who]


ROLE_BINDING: Final = Printer((NAME, Column("Role"), AGE, *_wide("Users", "Groups", "ServiceAccounts")), _binding_row)
POLICY: Final = Printer(
    (NAME, Column("Validations", "integer"), Column("ParamKind"), AGE),
    lambda obj, now: [
        _name(obj),
        len(obj.get("spec", {}).get("validations") or ()),
        "/".join((obj.get("spec", {}).get("paramKind") or {"none": "<unset>"}).values()),
        _age(obj, now),
    ],
)
POLICY_BINDING: Final = Printer(
    (NAME, Column("PolicyName"), Column("ParamRef"), AGE),
    lambda obj, now: [
        _name(obj),
        obj.get("spec", {}).get("policyName", ""),
        (obj.get("spec", {}).get("paramRef") or {}).get("name", "<unset>"),
        _age(obj, now),
    ],
)
PRIORITY_CLASS: Final = Printer(
    (NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), AGE, Column("PreemptionPolicy")),
    lambda obj, now: [
        _name(obj),
        obj.get("value", 0),
        obj.get("globalDefault", False),
        _age(obj, now),
        obj.get("preemptionPolicy", ""),
    ],
)
LEASE: Final = Printer(
    (NAME, Column("Holder"), AGE),
    lambda obj, now: [_name(obj), obj.get("spec", {}).get("holderIdentity", ""), _age(obj, now)],
)
