"""Pods: defaults people and programs notice, a spec that is fixed once created, status through its subresource.

The API server fills in a field that is missing. Volumes, probes and sources of variables are stored as they come. A
number of 0 counts as missing where upstream cannot tell the difference.

Rules: Kubernetes 1.37, pkg/apis/core/v1/defaults.go and pkg/registry/core/pod/strategy.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from embedded_cluster.apiserver.statuses import JSON, FieldError, denied, invalid_value
from embedded_cluster.apiserver.strategy import Context, RESTStrategy
from embedded_cluster.apiserver.validation import podchanges, pods

_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PREEMPTION: Final = "PreemptLowerPriority"
_STATE_DEFAULTS: Final[JSON] = {"image": "", "imageID": "", "lastState": {}, "ready": False, "restartCount": 0}
_TOLERATED: Final = ("not-ready", "unreachable")


def quality(spec: JSON) -> str:
    """status.qosClass, from the cpu and memory of the containers."""
    containers = (*spec.get("containers", ()), *spec.get("initContainers", ()))
    guaranteed, asked = True, False
    for resources in (container.get("resources", {}) for container in containers):
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked_for, most = requests.get(name, "0"), limits.get(name, "0")
            asked = asked or asked_for != "0" or most != "0"
            guaranteed = guaranteed and most != "0" and asked_for in ("0", most)
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


class PodStrategy(RESTStrategy):
    """The usual pod rules without admission plugins that need other controllers (service accounts, limits)."""

    generation = True
    graceful = True
    returns_deleted = True
    status_keeps_metadata = False
    selectable: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"), ""),
        **dict.fromkeys(("status.phase", "status.podIP", "status.nominatedNodeName"), ""),
        "spec.hostNetwork": "false",
    }

    def default(self, new: JSON, context: Context) -> None:
        fill_pod(new.setdefault("spec", {}))

    def unvalidated(self, new: JSON) -> Iterable[str]:
        return pods.unvalidated(new.get("spec") or {}, "spec")

    def prepare_create(self, new: JSON, context: Context) -> None:
        spec = new["spec"]
        new["status"] = {"phase": "Pending", "qosClass": quality(spec)}
        if spec.get("schedulingGates"):
            gated = {"type": "PodScheduled", "status": "False", "lastTransitionTime": context.now}
            gated["reason"] = "SchedulingGated"
            gated["message"] = "Scheduling is blocked due to non-empty scheduling gates"
            new["status"]["conditions"] = [gated]
        self._settle_priority(new, context)
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
        _tolerate_trouble(spec)

    @staticmethod
    def _settle_priority(new: JSON, context: Context) -> None:
        """Of the class of the pod; a pod cannot say something else. Raises 403."""
        spec, metadata = new["spec"], new["metadata"]
        name = spec.get("priorityClassName")
        found = context.lookup("priorityclasses", "", name) if name else {}
        if found is None and name in _SYSTEM_PRIORITIES:
            found = {"value": _SYSTEM_PRIORITIES[name]}
        pod = metadata.get("generateName") or metadata.get("name", "")  # a real server has not made a name yet
        if found is None:
            raise denied("", "pods", pod, f"no PriorityClass with name {name} was found")
        settled = (
            ("priority", "integer value of priority", int(found.get("value", 0))),
            ("preemptionPolicy", "string value of PreemptionPolicy", found.get("preemptionPolicy", _PREEMPTION)),
        )
        for field, what, value in settled:
            if spec.setdefault(field, value) != value:
                why = f"the {what} ({spec[field]}) must not be provided in pod spec"
                by = f"priority admission controller computed {value} from the given PriorityClass name"
                raise denied("", "pods", pod, f"{why}; {by}")

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return pods.problems(new)

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        _tolerate_trouble(new["spec"])

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        return podchanges.problems(new, old)

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

    def validate_status(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        problems = podchanges.status_problems(new)
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


def _tolerate_trouble(spec: JSON) -> None:
    """Pods stay five minutes on a node in trouble unless they say otherwise."""
    tolerations = spec.setdefault("tolerations", [])
    for trouble in _TOLERATED:
        key = f"node.kubernetes.io/{trouble}"
        if not any(t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


_CONTAINERS: Final = ("initContainers", "containers")


def fill_template(spec: JSON) -> None:
    """Defaults of a pod spec that hold in templates too."""
    _fill(spec, {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for part in _CONTAINERS:
        for container in spec.get(part) or ():
            container.setdefault("resources", {})
            _fill(container, {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
            _fill(container, {"imagePullPolicy": _pull_policy(container.get("image", ""))})
            for port in container.get("ports") or ():
                _fill(port, {"protocol": "TCP"})


def fill_pod(spec: JSON) -> None:
    """Defaults of a pod: those of a template, and what is derived from them."""
    spec.setdefault("enableServiceLinks", True)
    fill_template(spec)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for part in _CONTAINERS:
        for container in spec.get(part) or ():
            # What a container may use at most is what it asks for, unless it says otherwise.
            for name, amount in (container["resources"].get("limits") or {}).items():
                container["resources"].setdefault("requests", {}).setdefault(name, amount)


def _fill(target: JSON, defaults: JSON) -> None:
    """For fields whose empty value says nothing."""
    for name, value in defaults.items():
        if not target.get(name):
            target[name] = value


def _pull_policy(image: str) -> str:
    """Always for what may be another image tomorrow."""
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"
