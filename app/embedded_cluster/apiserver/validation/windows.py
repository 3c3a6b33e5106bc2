"""Field errors of what only Linux has, in pods that say they are for Windows, and the other way round.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go. What the options of Windows themselves say is not
looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden

_WHY: Final = "cannot be set for a windows pod"
_OPTIONS: Final = "windows options cannot be set for a linux pod"
_OF_PODS: Final = (
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
)
_OF_CONTAINERS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
_FLAGS: Final = ("hostPID", "hostIPC")
"""What counts as not set when it is false."""


def problems(spec: JSON, at: str) -> list[Problem]:
    """Of a pod spec that names its operating system."""
    context = spec.get("securityContext") or {}
    if spec["os"]["name"] == "linux":
        found = [forbidden(f"{at}.securityContext.windowsOptions", _OPTIONS)] if "windowsOptions" in context else []
        return found + [
            forbidden(f"{where}.windowsOptions", _OPTIONS)
            for inner, where in _contexts(spec, at)
            if "windowsOptions" in inner
        ]
    found = [forbidden(f"{at}.{field}", _WHY) for field in _said(spec, context, _OF_PODS)]
    return found + [
        forbidden(f"{where}.{field}", _WHY)
        for inner, where in _contexts(spec, at)
        for field in _OF_CONTAINERS
        if field in inner
    ]


def _said(spec: JSON, context: JSON, fields: Iterable[str]) -> Iterator[str]:
    for field in fields:
        _, dot, name = field.rpartition(".")
        part = context if dot else spec
        if name in part and not (name in _FLAGS and not part[name]):
            yield field


def _contexts(spec: JSON, at: str) -> Iterator[tuple[JSON, str]]:
    """The security contexts of all containers."""
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            if "securityContext" in container:
                yield container["securityContext"], f"{at}.{part}[{index}].securityContext"
