"""Field errors of containers: what they are called, run, offer and may do.

Promises: problems come in the order of a real API server: of one container after the other, then of names and ports
that two of them share. What containers ask for, mount and read is judged by the modules called so.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    duplicate,
    forbidden,
    invalid_value,
    missing,
    required,
    unsupported,
)
from embedded_cluster.apiserver.validation import amounts, environment, mounts, probes, restarts, security
from embedded_cluster.apiserver.validation.parts import required_name_problems
from embedded_cluster.apiserver.validation.volumes import PULL_POLICIES

_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_ONLY_SIDECARS: Final = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL: Final = (
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rules of a container read of its pod: the names of claims, the volumes that can be mounted, the
    seconds it gets to stop, the restart policy, and whether it has users of its own."""

    claims: Sequence[str]
    volumes: Mapping[str, JSON]
    grace: int
    restart_policy: str
    own_users: bool


def regular_problems(containers: Sequence[JSON], at: str, pod: Surroundings) -> list[Problem]:
    """Of `containers`."""
    if not containers:
        return [required(at)]
    found: list[Problem] = []
    taken: set[str] = set()
    for index, container in enumerate(containers):
        where, name = f"{at}[{index}]", container.get("name", "")
        found += _common_problems(container, where, pod)
        if name in taken:
            found.append(duplicate(f"{where}.name", name))
        taken.add(name)
        found += probes.problems(container, where, pod.grace)
        found += restarts.problems(container, where)
    return found + _host_port_problems(containers, at)


def initial_problems(containers: Iterable[JSON], at: str, regular: Iterable[JSON], pod: Surroundings) -> list[Problem]:
    """Of `initContainers`, which share their names with the regular ones."""
    found: list[Problem] = []
    taken = {container.get("name", "") for container in regular}
    for index, container in enumerate(containers):
        where, name = f"{at}[{index}]", container.get("name", "")
        found += _common_problems(container, where, pod)
        found += restarts.problems(container, where)
        if name in taken:
            found.append(duplicate(f"{where}.name", name))
        if name:
            taken.add(name)
        found += _host_port_problems([container], at)
        sidecar = container.get("restartPolicy") == "Always"
        if sidecar:
            found += probes.problems(container, where, pod.grace)
        else:
            found += [
                forbidden(f"{where}.{part}", _ONLY_SIDECARS)
                for part in ("lifecycle", *probes.PROBES)
                if part in container
            ]
            found += restarts.initial_resize_problems(container, where)
    return found


def ephemeral_problems(
    containers: Iterable[JSON], at: str, others: Collection[str], pod: Surroundings
) -> list[Problem]:
    """Of `ephemeralContainers`, beside `others` by name."""
    found: list[Problem] = []
    taken = set(others)
    why = "cannot be set for an Ephemeral Container"
    for index, container in enumerate(containers):
        where, name = f"{at}[{index}]", container.get("name", "")
        found += _common_problems(container, where, pod) + space_problems([container], at)
        if name in taken:
            found.append(duplicate(f"{where}.name", name))
        taken.add(name)
        target = container.get("targetContainerName")
        if target and target not in others:
            found.append(missing(f"{where}.targetContainerName", target))
        found += [forbidden(f"{where}.{part}", why) for part in _NOT_EPHEMERAL if container.get(part)]
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            for part in ("subPath", "subPathExpr"):
                if mount.get(part):
                    found.append(forbidden(f"{where}.volumeMounts[{number}].{part}", why))
    return found


def space_problems(containers: Iterable[JSON], at: str) -> list[Problem]:
    """Of images with blanks around them, which templates may have and pods may not."""
    detail = "must not have leading or trailing whitespace"
    return [
        invalid_value(f"{at}[{index}].image", image, detail)
        for index, container in enumerate(containers)
        if (image := container.get("image", "")) != image.strip()
    ]


def _common_problems(container: JSON, at: str, pod: Surroundings) -> list[Problem]:
    found = required_name_problems(container.get("name"), f"{at}.name", names.dns_label)
    if not container.get("image"):
        found.append(required(f"{at}.image"))
    policy = container["terminationMessagePolicy"]
    if policy not in _MESSAGE_POLICIES:
        found.append(unsupported(f"{at}.terminationMessagePolicy", policy, _MESSAGE_POLICIES))
    if "ports" in container:
        found += _ports_problems(container["ports"], f"{at}.ports")
    if "env" in container:
        found += environment.variable_problems(container["env"], f"{at}.env")
    if "envFrom" in container:
        found += environment.group_problems(container["envFrom"], f"{at}.envFrom")
    found += mounts.problems(container, at, pod.volumes)
    if container["imagePullPolicy"] not in PULL_POLICIES:
        found.append(unsupported(f"{at}.imagePullPolicy", container["imagePullPolicy"], PULL_POLICIES))
    found += amounts.problems(container["resources"], f"{at}.resources", pod.claims)
    if "resizePolicy" in container:
        found += restarts.resize_problems(container["resizePolicy"], f"{at}.resizePolicy", pod.restart_policy)
    if "securityContext" in container:
        context, where = container["securityContext"], f"{at}.securityContext"
        found += security.container_problems(context, where, own_users=pod.own_users)
    return found


def _ports_problems(ports: Iterable[JSON], at: str) -> list[Problem]:
    found: list[Problem] = []
    taken: set[str] = set()
    for index, port in enumerate(ports):
        where, name, number = f"{at}[{index}]", port.get("name"), port.get("containerPort")
        if name and (wrong := names.port_name(name)):
            found += [invalid_value(f"{where}.name", name, detail) for detail in wrong]
        elif name in taken:
            found.append(duplicate(f"{where}.name", name))
        elif name:
            taken.add(name)
        found += (
            probes.number_problems(number, f"{where}.containerPort") if number else [required(f"{where}.containerPort")]
        )
        if port.get("hostPort"):
            found += probes.number_problems(port["hostPort"], f"{where}.hostPort")
        if port["protocol"] not in _PROTOCOLS:
            found.append(unsupported(f"{where}.protocol", port["protocol"], _PROTOCOLS))
    return found


def _host_port_problems(containers: Iterable[JSON], at: str) -> list[Problem]:
    """Ports of the node that two containers want."""
    found: list[Problem] = []
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
            if key in taken:
                found.append(duplicate(f"{at}[{index}].ports[{number}].hostPort", key))
            taken.add(key)
    return found
