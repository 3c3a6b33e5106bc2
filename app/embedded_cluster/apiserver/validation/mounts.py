"""Field errors of how containers use volumes: mounts, and devices of block volumes.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    forbidden,
    invalid_value,
    missing,
    required,
    unsupported,
)
from embedded_cluster.apiserver.validation import paths

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
        found += _path_problems(path, taken, f"{where}.mountPath")
        taken.add(path)
        found += _overlap_problems(name, path, used, (f"{where}.name", f"{where}.mountPath"), "volumeDevices")
        found += _part_problems(mount, where, at)
        if "mountPropagation" in mount:
            found += _propagation_problems(mount["mountPropagation"], container, f"{at}.mountPropagation")
        if "recursiveReadOnly" in mount:
            found += _read_only_problems(mount, f"{at}.recursiveReadOnly")
    return found


def _path_problems(path: str, taken: Collection[str], at: str) -> list[Problem]:
    """A path of a container, beside those that are taken."""
    found = [] if path else [required(at)]
    return [*found, invalid_value(at, path, _UNIQUE)] if path in taken else found


def _overlap_problems(name: str, path: str, used: Mapping[str, str], at: tuple[str, str], other: str) -> list[Problem]:
    """What a container has in its list of `other` uses, too: name -> path there; `at`: where name and path stand."""
    found: list[Problem] = []
    if name in used:
        found.append(invalid_value(at[0], name, f"must not already exist in {other}"))
    if path in used.values():
        found.append(invalid_value(at[1], path, f"must not already exist as a path in {other}"))
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
    names: set[str] = set()
    taken: set[str] = set()
    used = {mount.get("name", ""): mount.get("mountPath", "") for mount in mounts}
    for index, device in enumerate(devices):
        name, path = device.get("name", ""), device.get("devicePath", "")
        at_name, at_path = f"{at}[{index}].name", f"{at}[{index}].devicePath"
        found += _device_name_problems(name, names, at_name, volumes)
        names.add(name)
        found += _path_problems(path, taken, at_path)
        if paths.upward_problems(path, at):
            found.append(invalid_value(at_path, path, "can not contain backsteps ('..')"))
        else:
            taken.add(path)
        found += _overlap_problems(name, path, used, (at_name, at_path), "volumeMounts")
    return found


def _device_name_problems(name: str, taken: Collection[str], at: str, volumes: Mapping[str, JSON]) -> list[Problem]:
    """The volume behind a device: a claim, used once."""
    found = [] if name else [required(at)]
    if name in taken:
        found.append(invalid_value(at, name, _UNIQUE))
    if name not in volumes:
        found.append(missing(at, name))
    elif not any(kind in volumes[name] for kind in _BLOCK):
        detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        found.append(invalid_value(at, name, detail))
    return found
