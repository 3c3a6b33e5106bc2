"""Field errors of pods and of pod templates, as far as devices, scheduling and controllers depend on them.

Promises: for the fields that `unvalidated` does not name, the problems of a real API server at creation, in its order.
All other fields are checked for their type alone.

Rules: Kubernetes 1.37, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    duplicate,
    forbidden,
    internal,
    invalid_value,
    required,
    unsupported,
)
from embedded_cluster.apiserver.validation import amounts
from embedded_cluster.apiserver.validation.parts import name_problems, required_name_problems, set_problems

_MOST: Final = 10_000
_VALIDATED: Final = frozenset(
    ("containers", "initContainers", "resourceClaims", "nodeSelector", "schedulingGates", "tolerations")
)
"""Fields of a spec, beside scalars, without a warning. Nothing but the type of tolerations is checked: the API server
adds tolerations itself, so that a warning would come with every update."""
_VALIDATED_OF_CONTAINERS: Final = frozenset(("resources", "command", "args"))


def problems(pod: JSON) -> list[FieldError]:
    """Problems of a new pod."""
    spec = pod["spec"]
    found = spec_problems(spec, "spec")
    if spec.get("ephemeralContainers"):
        found.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        found.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


def template_problems(template: JSON, at: str) -> list[FieldError]:
    """Of a template of pods."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    found = names.label_problems(metadata.get("labels") or {}, f"{at}.labels")
    found += names.annotation_problems(metadata.get("annotations") or {}, f"{at}.annotations")
    found += spec_problems(spec, f"{at}.spec")
    if spec.get("ephemeralContainers"):
        found.append(forbidden(f"{at}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))
    return found


def spec_problems(spec: JSON, at: str) -> list[FieldError]:
    """Problems of the spec of a pod or of a template."""
    entries = spec.get("resourceClaims") or ()
    found = set_problems(entries, f"{at}.resourceClaims", _MOST, _name, _claim_problems, ".name")
    claims = [_name(entry) for entry in entries]
    if not spec.get("containers"):
        found.append(required(f"{at}.containers"))
    taken: set[str] = set()
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            where, name = f"{at}.{part}[{index}]", _name(container)
            found += required_name_problems(name, f"{where}.name", names.dns_label)
            if not container.get("image"):
                found.append(required(f"{where}.image"))
            found += amounts.problems(container["resources"], f"{where}.resources", claims)
            if name and name in taken:
                found.append(duplicate(f"{where}.name", name))
            taken.add(name)
    for field, check in _FIELDS:
        if field in spec:
            found += check(spec[field], f"{at}.{field}")
    return found


def unvalidated(spec: JSON, at: str) -> Iterator[str]:
    """The paths of fields that are stored without validation, for a warning."""
    yield from (f"{at}.{name}" for name in _parts(spec, _VALIDATED))
    for part in ("containers", "initContainers"):
        found = {name for container in spec.get(part) or () for name in _parts(container, _VALIDATED_OF_CONTAINERS)}
        yield from (f"{at}.{part}[*].{name}" for name in sorted(found))


def _parts(obj: JSON, known: frozenset[str]) -> Iterable[str]:
    return (name for name, value in obj.items() if value and isinstance(value, dict | list) and name not in known)


def _name(entry: JSON) -> str:
    return str(entry.get("name", ""))


def _claim_problems(entry: JSON, at: str) -> list[FieldError]:
    found = required_name_problems(entry.get("name"), f"{at}.name", names.dns_label)
    sources = {part: entry[part] for part in ("resourceClaimName", "resourceClaimTemplateName") if part in entry}
    shown = internal(entry, {"name": "", "resourceClaimName": None, "resourceClaimTemplateName": None})
    if not sources:
        found.append(invalid_value(at, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
    elif len(sources) > 1:
        detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        found.append(invalid_value(at, shown, detail))
    for part, name in sources.items():
        found += name_problems(name, f"{at}.{part}", names.dns_subdomain)
    return found


Check = Callable[[Any, str], list[FieldError]]
"""(value of the field, path of the field) -> problems."""


def _one_of(*choices: str) -> Check:
    return lambda value, at: [] if value in choices else [unsupported(at, value, choices)]


def _subdomain(value: str, at: str) -> list[FieldError]:
    return name_problems(value, at, names.dns_subdomain) if value else []


def _scheduling_gate_problems(gates: Sequence[JSON], at: str) -> list[FieldError]:
    """Gates are label keys, each once."""
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        found += names.label_name_problems(_name(gate), f"{at}[{index}]")
        if _name(gate) in seen:
            found.append(duplicate(f"{at}[{index}]", _name(gate)))
        seen.add(_name(gate))
    return found


_FIELDS: Final[tuple[tuple[str, Check], ...]] = (
    ("restartPolicy", _one_of("Always", "OnFailure", "Never")),
    ("nodeSelector", names.label_problems),
    ("schedulingGates", _scheduling_gate_problems),
    ("serviceAccountName", _subdomain),
    ("nodeName", _subdomain),
    ("priorityClassName", _subdomain),
    ("preemptionPolicy", _one_of("PreemptLowerPriority", "Never")),
)
"""In the order of a real API server's answer."""
