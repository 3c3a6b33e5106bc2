"""What the API server fills into pods and templates of pods where nothing is said.

Volumes, probes and sources of variables are stored as they come. A number of 0 counts as nothing said where upstream
has no way to tell.

Rules: Kubernetes 1.36, pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.statuses import JSON

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
