"""Field errors of changes to pods: which fields of a spec may become what, and the status.

Promises: a spec that stays is not checked again. What may change is images, tolerations that are added or get other
seconds, scheduling gates that go, and where a pod with such gates may run.

Rules: Kubernetes 1.37, pkg/apis/core/validation/validation.go, without the comparison of both specs in its message.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, FieldError, duplicate, forbidden, invalid_value, required
from embedded_cluster.apiserver.validation import pods
from embedded_cluster.apiserver.validation.parts import set_problems

_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_PARTS: Final = ("containers", "initContainers")


def problems(new: JSON, old: JSON) -> list[FieldError]:
    """Of `new` in the place of `old`, both whole pods with their defaults."""
    spec, before = new["spec"], old["spec"]
    if spec == before:
        return []
    found = pods.spec_problems(spec, "spec")
    for part in _PARTS:
        mine, theirs = spec.get(part) or (), before.get(part) or ()
        if len(mine) != len(theirs):
            return [*found, forbidden(f"spec.{part}", "pod updates may not add or remove containers")]
    kept = [_without(toleration, "tolerationSeconds") for toleration in spec.get("tolerations") or ()]
    if not all(_without(toleration, "tolerationSeconds") in kept for toleration in before.get("tolerations") or ()):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        found.append(forbidden("spec.tolerations", detail))
    known = {gate["name"] for gate in before.get("schedulingGates") or ()}
    found += [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(spec.get("schedulingGates") or ())
        if gate.get("name", "") not in known
    ]
    wanted, was = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    gated = bool(before.get("schedulingGates"))
    if gated and not was.items() <= wanted.items():
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        found.append(invalid_value("spec.nodeSelector", wanted or None, detail))
    if _fixed(spec, gated=gated) != _fixed(before, gated=gated):
        found.append(forbidden("spec", _FIXED))
    return found


def _fixed(spec: JSON, *, gated: bool) -> JSON:
    """A spec without what may change."""
    changing = ("activeDeadlineSeconds", "schedulingGates", "tolerations", *(("nodeSelector",) if gated else ()))
    fixed = {key: value for key, value in spec.items() if key not in changing}
    for part in _PARTS:
        if part in fixed:
            fixed[part] = [_without(container, "image") for container in fixed[part]]
    if gated:
        affinity = _without(fixed.pop("affinity", None) or {}, "nodeAffinity")
        if affinity:
            fixed["affinity"] = affinity
    return fixed


def _without(part: JSON, field: str) -> JSON:
    return {key: value for key, value in part.items() if key != field}


# status

MOST: Final = 10_000


def status_problems(new: JSON) -> list[FieldError]:
    """Problems of a pod's status: its conditions and what it says of claims."""
    entries = new["status"].get("resourceClaimStatuses") or ()
    known = {entry["name"] for entry in new["spec"].get("resourceClaims") or ()}
    at = "status.resourceClaimStatuses"
    problems = set_problems(entries, at, MOST, lambda entry: entry.get("name", ""))
    for index, entry in enumerate(entries):
        name, claim = entry.get("name", ""), entry.get("resourceClaimName")
        if name not in known:
            problems.append(
                invalid_value(f"{at}[{index}].name", name, "must match the name of an entry in `spec.resourceClaims`")
            )
        if claim is not None and (wrong := names.dns_subdomain(claim)):
            problems.append(invalid_value(f"{at}[{index}].resourceClaimName", claim, wrong))
    problems += _extended_claim_problems(new)
    for index, condition in enumerate(new["status"].get("conditions") or ()):
        if wrong := names.qualified_name(condition.get("type", "")):
            problems.append(invalid_value(f"status.conditions[{index}].Type", condition.get("type", ""), wrong))
    return problems


def _extended_claim_problems(new: JSON) -> list[FieldError]:
    """The claim behind extended resources: its name and what it gives to which container."""
    extended, at = new["status"].get("extendedResourceClaimStatus"), "status.extendedResourceClaimStatus"
    if extended is None:
        return []
    problems: list[FieldError] = []
    if wrong := names.dns_subdomain(extended.get("resourceClaimName", "")):
        problems.append(invalid_value(f"{at}.resourceClaimName", extended.get("resourceClaimName", ""), wrong))
    mappings = extended.get("requestMappings") or ()
    if not mappings:
        problems.append(required(f"{at}.requestMappings", "at least one request mapping is required"))
    asked = {
        container["name"]: container.get("resources", {}).get("requests") or {}
        for part in ("containers", "initContainers")
        for container in new["spec"].get(part) or ()
    }
    seen: set[tuple[str, str]] = set()
    for index, mapping in enumerate(mappings):
        where, container = f"{at}.requestMappings[{index}]", mapping.get("containerName", "")
        resource, request = mapping.get("resourceName", ""), mapping.get("requestName", "")
        if container not in asked:
            problems.append(invalid_value(f"{where}.containerName", container, "must match the name of a container"))
        elif resource not in asked[container]:
            problems.append(invalid_value(f"{where}.resourceName", resource, "must be requested by the container"))
        if wrong := names.dns_label(request):
            problems.append(invalid_value(f"{at}.requestName", request, wrong))
        if (container, resource) in seen:
            problems.append(duplicate(where, f"{container}/{resource}"))
        seen.add((container, resource))
    return problems
