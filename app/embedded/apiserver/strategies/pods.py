"""Pods: defaults people and programs notice, a spec that is fixed once created, status through its subresource."""

from __future__ import annotations

from typing import Any, Final

from app.embedded.apiserver.statuses import JSON, Problem, denied, forbidden, invalid_value
from app.embedded.apiserver.strategy import Context, Strategy, keep_status
from app.embedded.apiserver.validation import pods

_UPDATABLE: Final = ("image", "resources", "resizePolicy")
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_STATE_DEFAULTS: Final[JSON] = {"image": "", "imageID": "", "lastState": {}, "ready": False, "restartCount": 0}
_TOLERATED: Final = ("not-ready", "unreachable")


def default_template(spec: JSON) -> None:
    """Defaults of a pod spec that hold in templates too."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        image = container.get("image", "")
        tag = image.rpartition("/")[2].partition(":")[2]
        container.setdefault(
            "imagePullPolicy", "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
        )
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _ask_for_limits(spec: JSON) -> None:
    """What a container may use at most is what it asks for, unless it says otherwise: in pods, not in templates."""
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        resources = container["resources"]
        for name, amount in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)


def quality(spec: JSON) -> str:
    """status.qosClass, from the cpu and memory of the containers."""
    containers = (*spec.get("containers", ()), *spec.get("initContainers", ()))
    guaranteed, asked = True, False
    for container in containers:
        resources = container.get("resources", {})
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked = asked or name in requests or name in limits
            guaranteed = guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


class Pods(Strategy):
    """The usual pod rules without admission plugins that need other controllers (service accounts, limits)."""

    generation = True
    graceful = True
    returns_deleted = True
    status_keeps_metadata = False
    field_names = (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )

    def default(self, new: JSON, context: Context) -> None:
        spec = new.setdefault("spec", {})
        spec.setdefault("enableServiceLinks", True)
        default_template(spec)
        _ask_for_limits(spec)

    def prepare_create(self, new: JSON, context: Context) -> None:
        spec = new["spec"]
        new["status"] = {"phase": "Pending", "qosClass": quality(spec)}
        if spec.get("schedulingGates"):
            gated = {"type": "PodScheduled", "status": "False", "lastTransitionTime": context.now}
            gated["reason"] = "SchedulingGated"
            gated["message"] = "Scheduling is blocked due to non-empty scheduling gates"
            new["status"]["conditions"] = [gated]
        spec.setdefault("priority", self._priority(new, context))
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
        _tolerate_trouble(spec)

    @staticmethod
    def _priority(new: JSON, context: Context) -> int:
        name = new["spec"].get("priorityClassName")
        if not name:
            return 0
        found = context.lookup("priorityclasses", "", name)
        if found is not None:
            return int(found.get("value", 0))
        if name in _SYSTEM_PRIORITIES:
            return _SYSTEM_PRIORITIES[name]
        metadata = new["metadata"]  # a real server has no name yet, where it makes one
        pod = metadata.get("generateName") or metadata.get("name", "")
        raise denied("", "pods", pod, f"no PriorityClass with name {name} was found")

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        return pods.spec_problems(new["spec"])

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        keep_status(new, old)
        _tolerate_trouble(new["spec"])

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[Problem]:
        if new["spec"] == old["spec"]:
            return []
        problems = self._gate_problems(new["spec"], old["spec"])
        if _fixed(new["spec"], old["spec"]) != _fixed(old["spec"], old["spec"]):
            problems.append(forbidden("spec", pods.FIXED))
        return problems

    @staticmethod
    def _gate_problems(new: JSON, old: JSON) -> list[Problem]:
        known = {gate["name"] for gate in old.get("schedulingGates") or ()}
        return [
            forbidden(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
            )
            for index, gate in enumerate(new.get("schedulingGates") or ())
            if gate["name"] not in known
        ]

    def prepare_status(self, new: JSON, old: JSON, context: Context) -> None:
        metadata, before = new["metadata"], old["metadata"]
        if "ownerReferences" in before:
            metadata["ownerReferences"] = before["ownerReferences"]
        else:
            metadata.pop("ownerReferences", None)
        status = new.setdefault("status", {})
        for state in (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())):
            for name, value in _STATE_DEFAULTS.items():
                state.setdefault(name, value)
        if status.get("podIP"):
            status.setdefault("podIPs", [{"ip": status["podIP"]}])
        status.setdefault("qosClass", old.get("status", {}).get("qosClass", "BestEffort"))

    def validate_status(self, new: JSON, old: JSON, context: Context) -> list[Problem]:
        problems = pods.status_problems(new)
        said = new["status"].get("qosClass")
        if said != old.get("status", {}).get("qosClass", said):
            problems.append(invalid_value("status.qosClass", said, "field is immutable"))
        return problems

    def grace_period(self, stored: JSON, wanted: int | None) -> int:
        spec = stored["spec"]
        if not spec.get("nodeName") or stored.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        chosen = spec.get("terminationGracePeriodSeconds", 30) if wanted is None else max(wanted, 0)
        before = stored["metadata"].get("deletionGracePeriodSeconds")
        return int(chosen if before is None else min(before, chosen))

    def fields(self, stored: JSON) -> dict[str, str]:
        spec, status = stored["spec"], stored.get("status", {})
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": status.get("podIP", ""),
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }


def _tolerate_trouble(spec: JSON) -> None:
    """Pods stay five minutes on a node in trouble unless they say otherwise."""
    tolerations = spec.setdefault("tolerations", [])
    for trouble in _TOLERATED:
        key = f"node.kubernetes.io/{trouble}"
        if not any(t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _fixed(spec: JSON, old: JSON) -> dict[str, Any]:
    """A spec without what may change after creation; added tolerations are allowed, so those of `old` are compared."""
    fixed = dict(spec)
    for part in ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates"):
        fixed.pop(part, None)
    tolerations = spec.get("tolerations") or []
    fixed["tolerations"] = [t for t in old.get("tolerations") or () if t in tolerations]
    if old.get("schedulingGates"):
        for part in ("nodeSelector", "affinity"):
            fixed.pop(part, None)
    for part in ("containers", "initContainers"):
        if part in fixed:
            fixed[part] = [{k: v for k, v in c.items() if k not in _UPDATABLE} for c in fixed[part]]
    return fixed
