"""Field errors of how containers use volumes: mounts, and devices of block volumes.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.embedded.apiserver.statuses import (
    JSON,
    Problem,
    forbidden,
    invalid_value,
    missing,
    required,
    unsupported,
)
from app.embedded.apiserver.validation import paths

_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY: Final = ("Disabled", "Enabled", "IfPossible")
_BLOCK: Final = ("persistentVolumeClaim", "ephemeral")
_UNIQUE: Final = "must be unique"


def problems(container: JSON, at: str, volumes: Mapping[str, JSON]) -> list[Problem]:
    """Of the mounts and devices of a container of a pod with these volumes."""
    mounts, devices = container.get("volumeMounts"), container.get("volumeDevices")
    found = _mounts_problems(container, mounts, devices or (), f"{at}.volumeMounts", volumes) if mounts else []
    return found + _devices_problems(devices, mounts or (), f"{at}.volumeDevices", volumes) if devices else found


def _mounts_problems(
    container: JSON, mounts: Sequence[JSON], devices: Sequence[JSON], at: str, volumes: Mapping[str, JSON]
) -> list[Problem]:
    found: list[Problem] = []
    taken: set[str] = set()
    used = {device.get("name", ""): device.get("devicePath", "") for device in devices}
    for index, mount in enumerate(mounts):
        where, name, path = f"{at}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            found.append(required(f"{where}.name"))
        if name not in volumes:
            found.append(missing(f"{where}.name", name))
        if not path:
            found.append(required(f"{where}.mountPath"))
        if path in taken:
            found.append(invalid_value(f"{where}.mountPath", path, _UNIQUE))
        taken.add(path)
        if name in used:
            found.append(invalid_value(f"{where}.name", name, "must not already exist in volumeDevices"))
        if path in used.values():
            detail = "must not already exist as a path in volumeDevices"
            found.append(invalid_value(f"{where}.mountPath", path, detail))
        found += _part_problems(mount, where, at)
        if "mountPropagation" in mount:
            found += _propagation_problems(mount["mountPropagation"], container, f"{at}.mountPropagation")
        if "recursiveReadOnly" in mount:
            found += _read_only_problems(mount, f"{at}.recursiveReadOnly")
    return found


def _part_problems(mount: JSON, where: str, at: str) -> list[Problem]:
    """What part of the volume is mounted; upstream does not say of which mount."""
    path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    found = paths.relative_problems(path, f"{at}.subPath")
    if expression and path:
        detail = "subPathExpr and subPath are mutually exclusive"
        found.append(invalid_value(f"{where}.subPathExpr", expression, detail))
    return found + paths.relative_problems(expression, f"{at}.subPathExpr")


def _propagation_problems(propagation: str, container: JSON, at: str) -> list[Problem]:
    if propagation not in _PROPAGATIONS:
        return [unsupported(at, propagation, _PROPAGATIONS)]
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        return [forbidden(at, "Bidirectional mount propagation is available only to privileged containers")]
    return []


def _read_only_problems(mount: JSON, at: str) -> list[Problem]:
    wanted = mount["recursiveReadOnly"]
    if wanted not in _READ_ONLY:
        return [unsupported(at, wanted, _READ_ONLY)]
    if wanted == "Disabled":
        return []
    found = [] if mount.get("readOnly") else [forbidden(at, "may only be specified when readOnly is true")]
    if mount.get("mountPropagation", "None") != "None":
        found.append(forbidden(at, "may only be specified when mountPropagation is None or not specified"))
    return found


def _devices_problems(
    devices: Sequence[JSON], mounts: Sequence[JSON], at: str, volumes: Mapping[str, JSON]
) -> list[Problem]:
    found: list[Problem] = []
    taken_names: set[str] = set()
    taken_paths: set[str] = set()
    used = {mount.get("name", ""): mount.get("mountPath", "") for mount in mounts}
    for index, device in enumerate(devices):
        where, name, path = f"{at}[{index}]", device.get("name", ""), device.get("devicePath", "")
        if not name:
            found.append(required(f"{where}.name"))
        if name in taken_names:
            found.append(invalid_value(f"{where}.name", name, _UNIQUE))
        if name not in volumes:
            found.append(missing(f"{where}.name", name))
        elif not any(kind in volumes[name] for kind in _BLOCK):
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            found.append(invalid_value(f"{where}.name", name, detail))
        if not path:
            found.append(required(f"{where}.devicePath"))
        if path in taken_paths:
            found.append(invalid_value(f"{where}.devicePath", path, _UNIQUE))
        if paths.upward_problems(path, at):
            found.append(invalid_value(f"{where}.devicePath", path, "can not contain backsteps ('..')"))
        else:
            taken_paths.add(path)
        if name in used:
            found.append(invalid_value(f"{where}.name", name, "must not already exist in volumeMounts"))
        if path in used.values():
            detail = "must not already exist as a path in volumeMounts"
            found.append(invalid_value(f"{where}.devicePath", path, detail))
        taken_names.add(name)
    return found
