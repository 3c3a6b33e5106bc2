"""Field errors of security contexts, of pods and of containers.

Options of Windows and AppArmor's annotations are not looked at.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    duplicate,
    forbidden,
    internal,
    invalid_value,
    required,
    too_long,
    unsupported,
)
from embedded_cluster.apiserver.validation import paths

_HIGHEST_ID: Final = 2**31 - 1
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_LONGEST_PROFILE: Final = 4095
_LONGEST_SYSCTL: Final = 253
_SYSCTL: Final = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTLS_OF_NETWORK: Final = ("net.", "net/")
_SYSCTLS_OF_IPC: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
_PROC_MOUNTS: Final = ("Default", "Unmasked")
_CONTEXT: Final = (
    "capabilities",
    "privileged",
    "seLinuxOptions",
    "windowsOptions",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "procMount",
    "seccompProfile",
    "appArmorProfile",
)
_CHOICES: Final = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "seLinuxChangePolicy": ("Recursive",),
}


def pod_problems(context: JSON, spec: JSON, at: str) -> list[Problem]:
    """Of the security context of a pod with this spec."""
    found = _id_problems(context, ("fsGroup", "runAsUser", "runAsGroup"), at)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= _HIGHEST_ID:
            found.append(_wrong_id(f"{at}.supplementalGroups[{index}]", group))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid_value(f"{at}.shareProcessNamespace", True, detail))
    found += _sysctl_problems(context.get("sysctls") or (), spec, f"{at}.sysctls")
    found += _choice_problems(context, "fsGroupChangePolicy", at)
    found += _seccomp_problems(context.get("seccompProfile"), f"{at}.seccompProfile")
    found += _apparmor_problems(context.get("appArmorProfile"), f"{at}.appArmorProfile")
    found += _choice_problems(context, "supplementalGroupsPolicy", at)
    return found + _choice_problems(context, "seLinuxChangePolicy", at)


def container_problems(context: JSON, at: str, *, own_users: bool) -> list[Problem]:
    """Of the security context of a container; `own_users`: the pod does not use the users of its node."""
    found = _id_problems(context, ("runAsUser", "runAsGroup"), at)
    mount = context.get("procMount")
    if mount is not None:
        if mount not in _PROC_MOUNTS:
            found.append(unsupported(f"{at}.procMount", mount, _PROC_MOUNTS))
        if mount == "Unmasked" and not own_users:
            found.append(invalid_value(f"{at}.procMount", mount, "`hostUsers` must be false to use `Unmasked`"))
    found += _seccomp_problems(context.get("seccompProfile"), f"{at}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        found += _escalation_problems(context, at)
    return found + _apparmor_problems(context.get("appArmorProfile"), f"{at}.appArmorProfile")


def _escalation_problems(context: JSON, at: str) -> list[Problem]:
    """What a container that may not get more rights cannot have."""
    given = ["`privileged` to true"] if context.get("privileged") else []
    if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
        given.append("`capabilities.Add` CAP_SYS_ADMIN")
    shown = internal(context, dict.fromkeys(_CONTEXT))
    if shown["Capabilities"] is not None:
        shown["Capabilities"] = internal(shown["Capabilities"], {"add": None, "drop": None})
    return [invalid_value(at, shown, f"cannot set `allowPrivilegeEscalation` to false and {right}") for right in given]


def _wrong_id(at: str, number: int) -> Problem:
    return invalid_value(at, number, f"must be between 0 and {_HIGHEST_ID}, inclusive")


def _id_problems(context: JSON, fields: Iterable[str], at: str) -> list[Problem]:
    return [
        _wrong_id(f"{at}.{name}", context[name])
        for name in fields
        if name in context and not 0 <= context[name] <= _HIGHEST_ID
    ]


def _choice_problems(context: JSON, name: str, at: str) -> list[Problem]:
    chosen = context.get(name)
    return [] if chosen is None or chosen in _CHOICES[name] else [unsupported(f"{at}.{name}", chosen, _CHOICES[name])]


def _sysctl_problems(sysctls: Iterable[JSON], spec: JSON, at: str) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        where, name = f"{at}[{index}].name", sysctl.get("name", "")
        if not name:
            found.append(required(where))
        elif len(name) > _LONGEST_SYSCTL or not _SYSCTL.fullmatch(name):
            detail = f"must have at most {_LONGEST_SYSCTL} characters and match regex ^{_SYSCTL.pattern}$"
            found.append(invalid_value(where, name, detail))
        elif name in seen:
            found.append(duplicate(where, name))
        if spec.get("hostNetwork") and name.startswith(_SYSCTLS_OF_NETWORK):
            found.append(invalid_value(where, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and name.startswith(_SYSCTLS_OF_IPC):
            found.append(invalid_value(where, name, "may not be specified when 'hostIPC' is true"))
        seen.add(name)
    return found


def _seccomp_problems(profile: JSON | None, at: str) -> list[Problem]:
    if profile is None:
        return []
    kind, file = profile.get("type", ""), profile.get("localhostProfile")
    found: list[Problem] = []
    if not kind:
        found.append(required(f"{at}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILES:
        found.append(unsupported(f"{at}.type", kind, _PROFILES))
    if kind != "Localhost":
        detail = "can only be set when seccomp type is Localhost"
        shown = internal(profile, {"type": "", "localhostProfile": None})
        return found if file is None else [*found, invalid_value(f"{at}.localhostProfile", shown, detail)]
    if file is None:
        return [*found, required(f"{at}.localhostProfile", "must be set when seccomp type is Localhost")]
    return found + paths.relative_problems(file, f"{at}.localhostProfile")


def _apparmor_problems(profile: JSON | None, at: str) -> list[Problem]:
    if profile is None:
        return []
    kind, file, where = profile.get("type", ""), profile.get("localhostProfile"), f"{at}.localhostProfile"
    if not kind:
        return [required(f"{at}.type", "type is required when appArmorProfile is set")]
    if kind not in _PROFILES:
        return [unsupported(f"{at}.type", kind, _PROFILES)]
    if kind != "Localhost":
        detail = "can only be set when AppArmor type is Localhost"
        return [] if file is None else [invalid_value(where, file, detail)]
    if file is None or not file.strip():
        return [required(where, "must be set when AppArmor type is Localhost")]
    if file != file.strip():
        return [invalid_value(where, file, "must not be padded with whitespace")]
    return [too_long(where, _LONGEST_PROFILE)] if len(file) > _LONGEST_PROFILE else []


def user_problems(spec: JSON, at: str) -> list[Problem]:
    """What a pod cannot have of its node while it has users of its own."""
    if spec.get("hostUsers", True):
        return []
    taken = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
    found = [forbidden(f"{at}.{shown}", "when `hostUsers` is false") for name, shown in taken if spec.get(name)]
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            if container.get("volumeDevices"):
                found.append(forbidden(f"{at}.{part}[{index}].volumeDevices", "when `hostUsers` is false"))
    return found
