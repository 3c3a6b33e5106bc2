"""What Kubernetes accepts as names, labels and other identifiers; each check returns what is wrong, or None."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from embedded_cluster.apiserver.statuses import JSON, FieldError, invalid_value, required, too_long

Check = Callable[[str], str | None]

LONGEST_ANNOTATIONS: Final = 256 * 1024
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE: Final = re.compile(rf"({_QUALIFIED.pattern})?")
_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _such_as(pattern: re.Pattern[str], *examples: str) -> str:
    """The end of a sentence about a form of text."""
    shown = " or ".join(f"'{example}', " for example in examples).removesuffix(", ")
    return f"(e.g. {shown}, regex used for validation is '{pattern.pattern}')"


def dns_label(value: str) -> str | None:
    """RFC 1123 label, at most 63 characters."""
    if len(value) > 63:
        return "must be no more than 63 characters"
    if not _LABEL.fullmatch(value):
        if _SUBDOMAIN.fullmatch(value):
            return "must not contain dots"
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            f"and must start and end with an alphanumeric character {_such_as(_LABEL, 'my-name', '123-abc')}"
        )
    return None


def dns_subdomain(value: str) -> str | None:
    """RFC 1123 subdomain, at most 253 characters."""
    if len(value) > 253:
        return "must be no more than 253 characters"
    if not _SUBDOMAIN.fullmatch(value):
        return (
            f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            f"and must start and end with an alphanumeric character {_such_as(_SUBDOMAIN, 'example.com')}"
        )
    return None


def path_segment(value: str) -> str | None:
    """Anything that is one segment of a path (RBAC objects)."""
    if value in (".", ".."):
        return f"may not be '{value}'"
    if "/" in value or "%" in value:
        return "may not contain '/' or '%'"
    return None


def qualified_name(value: str) -> str | None:
    """A label key: `name` or `prefix/name`."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        such = _such_as(_QUALIFIED, "MyName", "my.name", "123-abc")
        return (
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
            f"an alphanumeric character {such} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
    if slash and not prefix:
        return "prefix part must be non-empty"
    if slash and (wrong := dns_subdomain(prefix)):
        return f"prefix part {wrong}"
    if len(name) > 63:
        return "name part must be no more than 63 characters"
    if not _QUALIFIED.fullmatch(name):
        such = _such_as(_QUALIFIED, "MyName", "my.name", "123-abc")
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', "
            f"and must start and end with an alphanumeric character {such}"
        )
    return None


def label_value(value: str) -> str | None:
    """The value of a label; may be empty."""
    if len(value) > 63:
        return "must be no more than 63 characters"
    if value and not _QUALIFIED.fullmatch(value):
        such = _such_as(_LABEL_VALUE, "MyValue", "my_value", "12345")
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            f"and must start and end with an alphanumeric character {such}"
        )
    return None


def c_identifier(value: str) -> str | None:
    """The identifier of a device attribute or capacity."""
    if not _IDENTIFIER.fullmatch(value):
        return (
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
            f"characters or '_' {_such_as(_IDENTIFIER, 'my_name', 'MY_NAME', 'MyName')}"
        )
    return None


def metadata_problems(metadata: JSON, *, namespaced: bool, name_check: Check) -> list[FieldError]:
    """The field errors of metadata that are independent of the kind."""
    problems: list[FieldError] = []
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    if prefix and (wrong := name_check(prefix.rstrip("-.") or prefix)):
        problems.append(invalid_value("metadata.generateName", prefix, wrong))
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    elif wrong := name_check(name):
        problems.append(invalid_value("metadata.name", name, wrong))
    if namespaced and (wrong := dns_label(metadata.get("namespace", ""))):
        problems.append(invalid_value("metadata.namespace", metadata.get("namespace", ""), wrong))
    problems += label_problems(metadata.get("labels") or {}, "metadata.labels")
    problems += annotation_problems(metadata.get("annotations") or {}, "metadata.annotations")
    owners = metadata.get("ownerReferences") or ()
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        detail = "only one reference can have controller set to true"
        problems.append(invalid_value("metadata.ownerReferences", owners, detail))
    for index, owner in enumerate(owners):
        problems += [
            invalid_value(f"metadata.ownerReferences.{part}", "", "must not be empty")
            for part in ("apiVersion", "kind", "name")
            if not owner.get(part)
        ]
        problems += [] if owner.get("uid") else [required(f"metadata.ownerReferences[{index}].uid")]
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        wrong = qualified_name(finalizer)
        if wrong is None and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            wrong = "name is neither a standard finalizer name nor is it fully qualified"
        if wrong:
            problems.append(invalid_value(f"metadata.finalizers[{index}]", finalizer, wrong))
    return problems


def label_name_problems(key: str | None, at: str) -> list[FieldError]:
    """A label key; an empty one is wrong twice."""
    wrong = qualified_name(key or "")
    if not wrong:
        return []
    details = [wrong] if key else ["name part must be non-empty", wrong]
    return [invalid_value(at, key or "", detail) for detail in details]


def label_problems(labels: dict[str, str], at: str) -> list[FieldError]:
    """Label keys and values."""
    problems: list[FieldError] = []
    for key, value in labels.items():
        if wrong := qualified_name(key):
            problems.append(invalid_value(at, key, wrong))
        if wrong := label_value(value):
            problems.append(invalid_value(at, value, wrong))
    return problems


def annotation_problems(annotations: dict[str, str], at: str) -> list[FieldError]:
    """Annotation keys, and the size of all annotations together."""
    problems = [invalid_value(at, key, wrong) for key in annotations if (wrong := qualified_name(key.lower()))]
    if sum(len(key) + len(value) for key, value in annotations.items()) > LONGEST_ANNOTATIONS:
        problems.append(too_long(at, LONGEST_ANNOTATIONS))
    return problems
