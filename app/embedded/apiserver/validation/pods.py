"""Field errors of pods, as far as scheduling and devices go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.embedded.apiserver import names
from app.embedded.apiserver.statuses import JSON, Problem, duplicate, forbidden, invalid_value, required, unsupported
from app.embedded.apiserver.validation import containers, placement
from app.embedded.apiserver.validation.parts import required_name_problems, set_problems

MOST: Final = 10_000
FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def spec_problems(spec: JSON, at: str = "spec") -> list[Problem]:
    """Problems of a pod spec at creation: of a pod, or of a template of pods."""
    problems = _claims_problems(spec.get("resourceClaims") or (), f"{at}.resourceClaims")
    if not spec.get("containers"):
        problems.append(required(f"{at}.containers"))
    problems += _containers_problems(spec, at)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        choices = ("Always", "OnFailure", "Never")
        problems.append(unsupported(f"{at}.restartPolicy", spec["restartPolicy"], choices))
    if spec.get("nodeName") and (wrong := names.dns_subdomain(spec["nodeName"])):
        problems.append(invalid_value(f"{at}.nodeName", spec["nodeName"], wrong))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        problems.append(forbidden(f"{at}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return problems + placement.problems(spec, at)


def _containers_problems(spec: JSON, at: str) -> list[Problem]:
    """Of all containers, with the claims and volumes of the pod."""
    claims = [entry.get("name", "") for entry in spec.get("resourceClaims") or ()]
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    problems = [
        duplicate(f"{at}.volumes[{index}].name", name) for index, name in enumerate(volumes) if name in volumes[:index]
    ]
    for part in ("containers", "initContainers"):
        problems += set_problems(
            spec.get(part) or (),
            f"{at}.{part}",
            MOST,
            lambda container: container.get("name", ""),
            lambda container, where: containers.problems(container, where, claims, volumes),
            ".name",
        )
    taken = {container.get("name", "") for container in spec.get("containers") or ()}
    return problems + [
        duplicate(f"{at}.initContainers[{index}].name", container["name"])
        for index, container in enumerate(spec.get("initContainers") or ())
        if container.get("name") in taken
    ]


def _claims_problems(entries: Sequence[JSON], at: str) -> list[Problem]:
    return set_problems(entries, at, MOST, lambda entry: entry.get("name", ""), _claim_problems, ".name")


def _claim_problems(entry: JSON, at: str) -> list[Problem]:
    problems = required_name_problems(entry.get("name"), f"{at}.name", names.dns_label)
    sources = {part: entry[part] for part in ("resourceClaimName", "resourceClaimTemplateName") if part in entry}
    if not sources:
        problems.append(
            invalid_value(at, entry, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        )
    elif len(sources) > 1:
        detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        problems.append(invalid_value(at, entry, detail))
    for part, name in sources.items():
        if wrong := names.dns_subdomain(name):
            problems.append(invalid_value(f"{at}.{part}", name, wrong))
    return problems


def status_problems(new: JSON) -> list[Problem]:
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


def _extended_claim_problems(new: JSON) -> list[Problem]:
    """The claim behind extended resources: its name and what it gives to which container."""
    extended, at = new["status"].get("extendedResourceClaimStatus"), "status.extendedResourceClaimStatus"
    if extended is None:
        return []
    problems: list[Problem] = []
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
