"""Field errors of pods and of templates of pods, at creation.

Promises: the problems of a real API server, in its order (that of maps, which it has at random, is alphabetical), told
from the spec alone. A field that is not there costs a look. Pods of one owner are alike, so all but the claims of a
spec is judged once for the last few hundred of them.

Not looked at: what the options of Windows say, annotations with a meaning of their own, scheduling groups.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    duplicate,
    forbidden,
    internal,
    invalid_value,
    missing,
    required,
    unsupported,
)
from embedded_cluster.apiserver.validation import amounts, containers, hosts, placement, security, volumes, windows
from embedded_cluster.apiserver.validation.containers import Surroundings
from embedded_cluster.apiserver.validation.parts import name_problems, required_name_problems, set_problems

_MOST: Final = 10_000
_LONGEST_REMEMBERED: Final = 16 * 1024
_ANY_CLAIM: Final = {"resourceClaimName": "any"}
_HIGHEST_INT32: Final = 2**31 - 1
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")
_SYSTEMS: Final = ("linux", "windows")
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


def problems(pod: JSON) -> list[Problem]:
    """Of a pod that is to be created."""
    spec = pod["spec"]
    return [] if _like_a_good_one(spec) else _problems(spec)


def _like_a_good_one(spec: JSON) -> bool:
    """True for a spec without problems that differs from one of the last only in which claims it uses."""
    claims = spec.get("resourceClaims") or ()
    if claims:
        if _claims_problems(claims, ""):
            return False
        spec = {**spec, "resourceClaims": [{**_ANY_CLAIM, "name": entry["name"]} for entry in claims]}
    encoded = orjson.dumps(spec)
    return len(encoded) <= _LONGEST_REMEMBERED and _is_good(encoded)


@lru_cache(maxsize=512)
def _is_good(encoded: bytes) -> bool:
    return not _problems(orjson.loads(encoded))


def _problems(spec: JSON) -> list[Problem]:
    at = "spec"
    found = spec_problems(spec, at, of_pod=True) + space_problems(spec, at)
    if spec.get("ephemeralContainers"):
        found.append(forbidden(f"{at}.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        found.append(forbidden(f"{at}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


def template_problems(template: JSON, at: str) -> list[Problem]:
    """Of a template of pods."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    found = names.label_problems(metadata.get("labels") or {}, f"{at}.labels")
    found += names.annotation_problems(metadata.get("annotations") or {}, f"{at}.annotations")
    found += spec_problems(spec, f"{at}.spec", of_pod=False)
    if spec.get("ephemeralContainers"):
        found.append(forbidden(f"{at}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))
    return found


def space_problems(spec: JSON, at: str) -> list[Problem]:
    """Of images with blanks around them."""
    return [
        problem
        for part in ("containers", "initContainers")
        for problem in containers.space_problems(spec.get(part) or (), f"{at}.{part}")
    ]


def spec_problems(spec: JSON, at: str, *, of_pod: bool) -> list[Problem]:
    """Of the spec of a pod, or of a template."""
    found, mountable = volumes.problems(spec.get("volumes") or (), f"{at}.volumes", of_pod=of_pod)
    claims = spec.get("resourceClaims") or ()
    found += _claims_problems(claims, f"{at}.resourceClaims")
    around = Surroundings(
        [entry.get("name", "") for entry in claims],
        mountable,
        spec["terminationGracePeriodSeconds"],
        spec["restartPolicy"],
        own_users=spec.get("hostUsers") is False,
    )
    found += _containers_problems(spec, at, around)
    if "resources" in spec:
        found += amounts.pod_problems(spec, f"{at}.resources", around.claims)
    if spec.get("hostNetwork"):
        found += _host_port_problems(spec, at, of_pod=of_pod)
    for field, check in _FIELDS:
        if field in spec:
            found += check(spec[field], spec, f"{at}.{field}")
    return found + _variable_file_problems(spec, at)


def _name(entry: JSON) -> str:
    return str(entry.get("name", ""))


def _claims_problems(entries: Sequence[JSON], at: str) -> list[Problem]:
    return set_problems(entries, at, _MOST, _name, _claim_problems, ".name")


def _claim_problems(entry: JSON, at: str) -> list[Problem]:
    problems = required_name_problems(entry.get("name"), f"{at}.name", names.dns_label)
    sources = {part: entry[part] for part in ("resourceClaimName", "resourceClaimTemplateName") if part in entry}
    shown = internal(entry, {"name": "", "resourceClaimName": None, "resourceClaimTemplateName": None})
    if not sources:
        problems.append(
            invalid_value(at, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        )
    elif len(sources) > 1:
        detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        problems.append(invalid_value(at, shown, detail))
    for part, name in sources.items():
        if wrong := names.dns_subdomain(name):
            problems.append(invalid_value(f"{at}.{part}", name, wrong))
    return problems


def _containers_problems(spec: JSON, at: str, around: Surroundings) -> list[Problem]:
    regular = spec.get("containers") or ()
    found = containers.regular_problems(regular, f"{at}.containers", around)
    initial = spec.get("initContainers")
    if initial:
        found += containers.initial_problems(initial, f"{at}.initContainers", regular, around)
    ephemeral = spec.get("ephemeralContainers")
    if ephemeral:
        others = {_name(container) for container in (*regular, *(initial or ()))}
        found += containers.ephemeral_problems(ephemeral, f"{at}.ephemeralContainers", others, around)
    return found


def _host_port_problems(spec: JSON, at: str, *, of_pod: bool) -> list[Problem]:
    """Of ports of containers that are ports of their node."""
    detail = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid_value(f"{at}.containers[{index}].ports[{number}].hostPort", port.get("hostPort", 0), detail)
        for index, container in enumerate(spec.get("containers") or ())
        for number, port in enumerate(container.get("ports") or ())
        if (of_pod or port.get("hostPort")) and port.get("hostPort", 0) != port.get("containerPort", 0)
    ]


def _variable_file_problems(spec: JSON, at: str) -> list[Problem]:
    """Of volumes that variables are read from."""
    kinds = {_name(volume): volume for volume in spec.get("volumes") or ()}
    found: list[Problem] = []
    for part in _CONTAINERS:
        for index, container in enumerate(spec.get(part) or ()):
            for number, variable in enumerate(container.get("env") or ()):
                source = (variable.get("valueFrom") or {}).get("fileKeyRef")
                if source is None:
                    continue
                where = f"{at}.{part}[{index}].env[{number}].valueFrom.fileKeyRef.volumeName"
                name = source.get("volumeName", "")
                if name not in kinds:
                    found.append(missing(where, name))
                elif "emptyDir" not in kinds[name]:
                    found.append(invalid_value(where, name, "referenced volume must be of type emptyDir"))
    return found


# the fields of a spec beside containers and what they use

Check = Callable[[Any, JSON, str], list[Problem]]
"""(value of the field, the whole spec, path of the field) -> problems."""


def _one_of(choices: Sequence[str]) -> Check:
    return lambda value, spec, at: [] if value in choices else [unsupported(at, value, choices)]


def _called(check: names.Check) -> Check:
    return lambda value, spec, at: name_problems(value, at, check) if value else []


def _labels(value: JSON, spec: JSON, at: str) -> list[Problem]:
    return names.label_problems(value, at)


def _security(value: JSON, spec: JSON, at: str) -> list[Problem]:
    return security.pod_problems(value, spec, at)


def _affinity(value: JSON, spec: JSON, at: str) -> list[Problem]:
    return placement.affinity_problems(value, at)


def _dns(value: str, spec: JSON, at: str) -> list[Problem]:
    """Both fields, at the place of the configuration."""
    return hosts.dns_problems(spec, f"{at.removesuffix('dnsPolicy')}dnsConfig")


def _readiness_gates(value: Sequence[JSON], spec: JSON, at: str) -> list[Problem]:
    found: list[Problem] = []
    for index, gate in enumerate(value):
        found += names.label_name_problems(gate.get("conditionType"), f"{at}[{index}].conditionType")
    return found


def _scheduling_gates(value: Sequence[JSON], spec: JSON, at: str) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for index, gate in enumerate(value):
        found += names.label_name_problems(_name(gate), f"{at}[{index}]")
        if _name(gate) in seen:
            found.append(duplicate(f"{at}[{index}]", _name(gate)))
        seen.add(_name(gate))
    return found


def _spreading(value: Sequence[JSON], spec: JSON, at: str) -> list[Problem]:
    return placement.spread_problems(value, at)


def _users(value: bool, spec: JSON, at: str) -> list[Problem]:
    return security.user_problems(spec, at.removesuffix(".hostUsers"))


def _override(value: str, spec: JSON, at: str) -> list[Problem]:
    return hosts.override_problems(spec, at)


def _deadline(value: int, spec: JSON, at: str) -> list[Problem]:
    if 1 <= value <= _HIGHEST_INT32:
        return []
    return [invalid_value(at, value, f"must be between 1 and {_HIGHEST_INT32}, inclusive")]


def _tolerations(value: Sequence[JSON], spec: JSON, at: str) -> list[Problem]:
    return placement.toleration_problems(value, at)


def _aliases(value: Sequence[JSON], spec: JSON, at: str) -> list[Problem]:
    return hosts.alias_problems(value, at)


def _runtime_class(value: str, spec: JSON, at: str) -> list[Problem]:
    return name_problems(value, at, names.dns_subdomain)


def _overhead(value: JSON, spec: JSON, at: str) -> list[Problem]:
    return amounts.problems({"limits": value}, at, ())


def _system(value: JSON, spec: JSON, at: str) -> list[Problem]:
    name = _name(value)
    if not name:
        return [required(f"{at}.name")]
    if name not in _SYSTEMS:
        return [unsupported(at, name, _SYSTEMS)]
    return windows.problems(spec, at.removesuffix(".os"))


_FIELDS: Final[tuple[tuple[str, Check], ...]] = (
    ("restartPolicy", _one_of(_RESTART_POLICIES)),
    ("dnsPolicy", _one_of(_DNS_POLICIES)),
    ("nodeSelector", _labels),
    ("securityContext", _security),
    ("affinity", _affinity),
    ("dnsPolicy", _dns),
    ("readinessGates", _readiness_gates),
    ("schedulingGates", _scheduling_gates),
    ("topologySpreadConstraints", _spreading),
    ("hostUsers", _users),
    ("hostnameOverride", _override),
    ("serviceAccountName", _called(names.dns_subdomain)),
    ("nodeName", _called(names.dns_subdomain)),
    ("activeDeadlineSeconds", _deadline),
    ("hostname", _called(names.dns_label)),
    ("subdomain", _called(names.dns_label)),
    ("tolerations", _tolerations),
    ("hostAliases", _aliases),
    ("priorityClassName", _called(names.dns_subdomain)),
    ("runtimeClassName", _runtime_class),
    ("preemptionPolicy", _one_of(_PREEMPTION_POLICIES)),
    ("overhead", _overhead),
    ("os", _system),
)
"""In the order of a real API server's answer."""
