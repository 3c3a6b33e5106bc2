"""What the API server fills into pods and templates of pods where nothing is said.

Promises: after `fill_template` every field that the rules of validation read of a probe, a volume or a container has a
value; a number of 0 counts as nothing said where upstream has no way to tell. Values are shared by nobody: each pod
gets its own.

Rules: Kubernetes 1.36, pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from embedded_cluster.apiserver.statuses import JSON
from embedded_cluster.apiserver.validation.amounts import HUGE, OF_PODS, any_requested, total_requested

_MODE: Final = {"defaultMode": 0o644}
_VOLUMES: Final[dict[str, JSON]] = {
    "secret": _MODE,
    "configMap": _MODE,
    "downwardAPI": _MODE,
    "projected": _MODE,
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
"""Kind of volume -> what its source has unless it says otherwise."""

_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HTTP: Final = {"path": "/", "scheme": "HTTP"}
_TOKEN_SECONDS: Final = 3600
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def fill_template(spec: JSON) -> None:
    """Defaults of a pod spec that hold in templates too."""
    _fill(spec, {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for volume in spec.get("volumes") or ():
        _fill_volume(volume)
    for part in _CONTAINERS:
        for container in spec.get(part) or ():
            _fill_container(container)


def fill_pod(spec: JSON) -> None:
    """Defaults of a pod: those of a template, and what is derived from them."""
    spec.setdefault("enableServiceLinks", True)
    fill_template(spec)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for part in ("initContainers", "containers"):
        for container in spec.get(part) or ():
            _ask_for_limits(container["resources"])
            if spec.get("hostNetwork"):
                _use_ports_of_host(container)
    if (spec.get("resources") or {}).get("limits"):
        _ask_as_a_whole(spec)


def _fill(target: JSON, defaults: JSON) -> None:
    """For fields whose empty value says nothing."""
    for name, value in defaults.items():
        if not target.get(name):
            target[name] = value


def _ask_for_limits(resources: JSON) -> None:
    """What a container may use at most is what it asks for, unless it says otherwise."""
    for name, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)


def _ask_as_a_whole(spec: JSON) -> None:
    """A pod with limits of its own asks for what its containers ask for, or else for its limits."""
    requests, limits = spec["resources"].setdefault("requests", {}), spec["resources"]["limits"]
    for name in OF_PODS:
        if name not in requests and any_requested(spec, name):
            requests[name] = total_requested(spec, name).text
    for name, amount in limits.items():
        if name in OF_PODS or name.startswith(HUGE):
            requests.setdefault(name, amount)


def _use_ports_of_host(container: JSON) -> None:
    for port in container.get("ports") or ():
        if not port.get("hostPort") and port.get("containerPort"):
            port["hostPort"] = port["containerPort"]


def pull_policy(image: str) -> str:
    """Always for what may be another image tomorrow."""
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"


def _fill_container(container: JSON) -> None:
    container.setdefault("resources", {})
    _fill(container, {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        if "valueFrom" in variable:
            _fill_field(variable["valueFrom"])
    for name in _PROBES:
        if name in container:
            _fill(container[name], _PROBE)
            _fill_handler(container[name])
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _fill_handler(handler)


def _fill_handler(handler: JSON) -> None:
    if "httpGet" in handler:
        _fill(handler["httpGet"], _HTTP)
    if "grpc" in handler:
        handler["grpc"].setdefault("service", "")


def _fill_field(source: JSON) -> None:
    """A field of the pod that a variable or a file takes its value from."""
    if "fieldRef" in source:
        _fill(source["fieldRef"], {"apiVersion": "v1"})
    if "resourceFieldRef" in source:
        source["resourceFieldRef"].setdefault("divisor", "0")


def _fill_volume(volume: JSON) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
        return
    for kind, source in volume.items():
        if kind in _VOLUMES:
            for name, value in _VOLUMES[kind].items():
                source.setdefault(name, value)
    if "image" in volume:
        _fill(volume["image"], {"pullPolicy": pull_policy(volume["image"].get("reference", ""))})
    _fill_files(volume.get("downwardAPI") or {})
    for source in (volume.get("projected") or {}).get("sources") or ():
        _fill_files(source.get("downwardAPI") or {})
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_SECONDS)
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _fill_files(source: JSON) -> None:
    items: Iterable[JSON] = source.get("items") or ()
    for item in items:
        _fill_field(item)
