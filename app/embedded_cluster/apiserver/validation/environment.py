"""Field errors of variables of containers and of where their values come from.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go and pkg/apis/core/pods/helpers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, invalid_value, required, unsupported
from embedded_cluster.apiserver.validation import paths
from embedded_cluster.apiserver.validation.parts import name_problems, required_name_problems

_NAME: Final = "a valid environment variable name must consist only of printable ASCII characters other than '='"
FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
"""What a variable can hold of its pod."""

_WITH_KEYS: Final = ("metadata.annotations", "metadata.labels")
_KNOWN_FIELDS: Final = (*FIELDS, *_WITH_KEYS, "spec.restartPolicy", "spec.schedulerName", "status.phase")
_OLD_NAMES: Final = {"spec.host": "spec.nodeName"}
_AMOUNTS: Final = tuple(
    f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_AMOUNTS: Final = ("limits.hugepages-", "requests.hugepages-")
_BYTES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISORS: Final = {
    "cpu": (("1m", "1"), "1m and 1", "cpu"),
    "memory": (_BYTES, ", ".join(_BYTES), "memory"),
    "ephemeral-storage": (_BYTES, ", ".join(_BYTES), "local ephemeral storage"),
    "hugepages": (_BYTES, ", ".join(_BYTES), "hugepages"),
}
"""Resource -> the divisors it may have, how they are listed, and what the message calls the resource."""


def variable_problems(variables: Iterable[JSON], at: str) -> list[Problem]:
    """Of `env`."""
    found: list[Problem] = []
    for index, variable in enumerate(variables):
        name = variable.get("name")
        if not name:
            found.append(required(f"{at}[{index}].name"))
        elif not _is_printable(name):
            found.append(invalid_value(f"{at}[{index}].name", name, _NAME))
        if "valueFrom" in variable:
            found += _value_problems(variable, f"{at}[{index}].valueFrom")
    return found


def _is_printable(name: str) -> bool:
    return name.isascii() and name.isprintable() and "=" not in name


def _value_problems(variable: JSON, at: str) -> list[Problem]:
    source: JSON = variable["valueFrom"]
    found: list[Problem] = []
    count = 0
    for kind, check in _SOURCES:
        if kind in source:
            count += 1
            found += check(source[kind], f"{at}.{kind}")
    if not count:
        listed = ", ".join(f"`{kind}`" for kind, _ in _SOURCES[:-1])
        found.append(invalid_value(at, "", f"must specify one of: {listed} or `{_SOURCES[-1][0]}`"))
    elif variable.get("value"):
        found.append(invalid_value(at, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        found.append(invalid_value(at, "", "may not have more than one field specified at a time"))
    return found


def field_problems(selector: JSON, at: str, allowed: Sequence[str] = FIELDS) -> list[Problem]:
    """A field of the pod; labels and annotations have keys."""
    version, path = selector.get("apiVersion", ""), selector.get("fieldPath", "")
    if not path:
        return [required(f"{at}.fieldPath")]
    prefix, bracket, key = path.partition("['")
    with_key = bool(prefix and bracket) and key.endswith("']")
    wrong = ""
    if version != "v1":
        wrong = f"unsupported pod version: {version}"
    elif with_key and prefix not in _WITH_KEYS:
        wrong = f"field label does not support subscript: {path}"
    elif not with_key and path not in _KNOWN_FIELDS and path not in _OLD_NAMES:
        wrong = f"field label not supported: {path}"
    if wrong:
        return [invalid_value(f"{at}.fieldPath", path, f"error converting fieldPath: {wrong}")]
    if with_key:
        key = key.removesuffix("']")
        return names.label_name_problems(key.lower() if prefix == _WITH_KEYS[0] else key, at)
    path = _OLD_NAMES.get(path, path)
    return [] if path in allowed else [unsupported(f"{at}.fieldPath", path, sorted(allowed))]


def amount_problems(selector: JSON, at: str, *, in_volume: bool = False) -> list[Problem]:
    """What a container asks for or may use, in units of a divisor."""
    name = selector.get("resource", "")
    found: list[Problem] = []
    if in_volume and not selector.get("containerName"):
        found.append(required(f"{at}.containerName"))
    elif not name:
        found.append(required(f"{at}.resource"))
    elif name not in _AMOUNTS and not name.startswith(_HUGE_AMOUNTS):
        found.append(unsupported(f"{at}.resource", name, _AMOUNTS))
    resource = name.partition(".")[2]
    known = _DIVISORS.get("hugepages" if name.startswith(_HUGE_AMOUNTS) else resource)
    divisor = selector.get("divisor", "0")
    if known is not None and divisor != "0" and divisor not in known[0]:
        detail = f"only divisor's values {known[1]} are supported with the {known[2]} resource"
        found.append(invalid_value(f"{at}.divisor", name, detail))
    return found


def _key_problems(selector: JSON, at: str) -> list[Problem]:
    """A key of a ConfigMap or Secret."""
    found = name_problems(selector.get("name"), f"{at}.name", names.dns_subdomain)
    return found + required_name_problems(selector.get("key"), f"{at}.key", names.config_key)


def _file_problems(selector: JSON, at: str) -> list[Problem]:
    """A variable in a file that another container has written."""
    key, path = selector.get("key", ""), selector.get("path", "")
    found = [] if key else [required(f"{at}.key")]
    if key and not _is_printable(key):
        found.append(invalid_value(f"{at}.key", key, _NAME))
    found += required_name_problems(selector.get("volumeName"), f"{at}.volumeName", names.dns_label)
    return found + (paths.upward_problems(path, f"{at}.path") if path else [required(f"{at}.path")])


_SOURCES: Final[tuple[tuple[str, Callable[[JSON, str], list[Problem]]], ...]] = (
    ("fieldRef", field_problems),
    ("resourceFieldRef", amount_problems),
    ("configMapKeyRef", _key_problems),
    ("secretKeyRef", _key_problems),
    ("fileKeyRef", _file_problems),
)


def group_problems(groups: Iterable[JSON], at: str) -> list[Problem]:
    """Of `envFrom`: all variables of a ConfigMap or Secret."""
    found: list[Problem] = []
    for index, group in enumerate(groups):
        prefix = group.get("prefix")
        if prefix and not _is_printable(prefix):
            found.append(invalid_value(f"{at}[{index}].prefix", prefix, _NAME))
        sources = [kind for kind in ("configMapRef", "secretRef") if kind in group]
        for kind in sources:
            found += required_name_problems(group[kind].get("name"), f"{at}[{index}].{kind}.name", names.dns_subdomain)
        if not sources:
            found.append(invalid_value(at, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(sources) > 1:
            found.append(invalid_value(at, "", "may not have more than one field specified at a time"))
    return found
