"""Namespaces, nodes, events and other kinds that need few rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from embedded_cluster.apiserver.names import qualified_name
from embedded_cluster.apiserver.statuses import JSON, FieldError, forbidden, invalid_value, required, unsupported
from embedded_cluster.apiserver.strategy import Context, RESTStrategy

_NODE_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_NODE_INFO: Final = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)


class RoleStrategy(RESTStrategy):
    """Roles and their bindings: names are path segments, and PUT creates."""

    path_names = True
    allow_create_on_update = True


class NamespaceStrategy(RESTStrategy):
    """Names are DNS labels; the finalizer `kubernetes` holds a deleted namespace until it is empty."""

    labels_are_names = True
    selectable: ClassVar[Mapping[str, str]] = {"status.phase": "", "name": ""}

    def default(self, new: JSON, context: Context) -> None:
        if name := new["metadata"].get("name"):
            new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        new["spec"] = old["spec"]

    def prepare_delete(self, new: JSON) -> None:
        new["status"] = {**new.get("status", {}), "phase": "Terminating"}

    def fields(self, stored: JSON) -> dict[str, str]:
        return {**super().fields(stored), "name": stored["metadata"]["name"]}

    def finalized(self, stored: JSON) -> bool:
        return bool(stored.get("spec", {}).get("finalizers"))


class NodeStrategy(RESTStrategy):
    """Status belongs to the subresource, except at creation; /status may change metadata."""

    status_keeps_metadata = False
    status_at_creation = True
    selectable: ClassVar[Mapping[str, str]] = {"spec.unschedulable": "false"}

    def default(self, new: JSON, context: Context) -> None:
        new.setdefault("spec", {})
        status = new.setdefault("status", {})
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
        info = status.setdefault("nodeInfo", {})
        for name in _NODE_INFO:
            info.setdefault(name, "")

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        problems: list[FieldError] = []
        for index, taint in enumerate(new["spec"].get("taints") or ()):
            where = f"metadata.taints[{index}]"
            if wrong := qualified_name(taint.get("key", "")):
                problems.append(invalid_value(f"{where}.key", taint.get("key", ""), wrong))
            if taint.get("effect") not in _NODE_EFFECTS:
                problems.append(unsupported(f"{where}.effect", taint.get("effect", ""), _NODE_EFFECTS))
        return problems


class EventStrategy(RESTStrategy):
    """Core events; also what events.k8s.io events are stored as."""

    allow_create_on_update = True
    selectable: ClassVar[Mapping[str, str]] = {
        **{f"involvedObject.{name}": "" for name in ("kind", "namespace", "name", "uid", "apiVersion")},
        **dict.fromkeys(("involvedObject.resourceVersion", "involvedObject.fieldPath"), ""),
        **dict.fromkeys(("reason", "reportingComponent", "source", "type"), ""),
    }

    def default(self, new: JSON, context: Context) -> None:
        """A time that is not told is null, as it is written in Go: kubectl sorts by fields that are there."""
        for time in ("eventTime", "firstTimestamp", "lastTimestamp"):
            new.setdefault(time, None)
        new.setdefault("source", {})
        new.setdefault("reportingComponent", "")
        new.setdefault("reportingInstance", "")

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        said = new.get("involvedObject", {}).get("namespace", "")
        namespace = new["metadata"].get("namespace", "")
        if (said or "default") != namespace:
            return [invalid_value("involvedObject.namespace", said, "does not match event.namespace")]
        return []

    def fields(self, stored: JSON) -> dict[str, str]:
        fields = super().fields(stored)
        fields["source"] = stored.get("source", {}).get("component") or fields["reportingComponent"]
        return fields


class LeaseStrategy(RESTStrategy):
    """coordination.k8s.io leases are written by PUT as well as by POST."""

    allow_create_on_update = True
    allow_unconditional_update = False

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        spec = new.get("spec", {})
        return [
            invalid_value(f"spec.{part}", spec[part], "must be greater than " + ("0" if least else "or equal to 0"))
            for part, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0))
            if part in spec and spec[part] < least
        ]


class PriorityClassStrategy(RESTStrategy):
    """The value never changes."""

    generation = True

    def default(self, new: JSON, context: Context) -> None:
        new.setdefault("preemptionPolicy", "PreemptLowerPriority")
        if not new.get("globalDefault"):
            new.pop("globalDefault", None)

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return [] if "value" in new else [required("value")]

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        if new.get("value") == old.get("value"):
            return []
        return [forbidden("value", "may not be changed in an update.")]


class DisruptionBudgetStrategy(RESTStrategy):
    """Disruption budgets; nothing counts the pods."""

    generation = True

    def prepare_create(self, new: JSON, context: Context) -> None:
        counts = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
        new["status"] = dict.fromkeys(counts, 0)
