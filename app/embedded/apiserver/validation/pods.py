"""Field errors of pods, as far as scheduling and devices go."""

from __future__ import annotations

from typing import Final

from app.embedded.apiserver import names
from app.embedded.apiserver.statuses import JSON, Problem, forbidden, invalid_value, required, unsupported
from app.embedded.apiserver.validation.parts import required_name_problems, set_problems

FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def spec_problems(spec: JSON) -> list[Problem]:
    """Problems of a pod spec at creation."""
    containers = spec.get("containers") or ()
    problems = [] if containers else [required("spec.containers")]
    claims = {entry.get("name", "") for entry in spec.get("resourceClaims") or ()}
    for part in ("containers", "initContainers"):
        items = spec.get(part) or ()
        problems += set_problems(
            items, f"spec.{part}", 10_000, lambda container: container.get("name", ""), shown=".name"
        )
        for index, container in enumerate(items):
            problems += _container_problems(container, f"spec.{part}[{index}]", claims)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        choices = ("Always", "OnFailure", "Never")
        problems.append(unsupported("spec.restartPolicy", spec["restartPolicy"], choices))
    if spec.get("nodeName") and (wrong := names.dns_subdomain(spec["nodeName"])):
        problems.append(invalid_value("spec.nodeName", spec["nodeName"], wrong))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        problems.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return problems + _claims_problems(spec.get("resourceClaims") or (), "spec.resourceClaims")


def _container_problems(container: JSON, at: str, claims: set[str]) -> list[Problem]:
    problems = required_name_problems(container.get("name"), f"{at}.name", names.dns_label)
    if not container.get("image"):
        problems.append(required(f"{at}.image"))
    used = container.get("resources", {}).get("claims") or ()
    identity = ".resources.claims"
    problems += set_problems(used, at + identity, 10_000, lambda use: (use.get("name"), use.get("request")))
    for index, use in enumerate(used):
        if use.get("name") not in claims:
            where = f"{at}.resources.claims[{index}].name"
            problems.append(Problem(where, "FieldValueNotFound", f'Not found: "{use.get("name", "")}"'))
    return problems


def _claims_problems(entries: list[JSON] | tuple[JSON, ...], at: str) -> list[Problem]:
    problems = set_problems(entries, at, 10_000, lambda entry: entry.get("name", ""), shown=".name")
    for index, entry in enumerate(entries):
        where = f"{at}[{index}]"
        problems += required_name_problems(entry.get("name"), f"{where}.name", names.dns_label)
        claim, template = entry.get("resourceClaimName"), entry.get("resourceClaimTemplateName")
        if claim is None and template is None:
            problems.append(required(where, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
        elif claim is not None and template is not None:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            problems.append(invalid_value(where, "<value omitted>", detail))
        for part, name in (("resourceClaimName", claim), ("resourceClaimTemplateName", template)):
            if name is not None and (wrong := names.dns_subdomain(name)):
                problems.append(invalid_value(f"{where}.{part}", name, wrong))
    return problems


def status_problems(new: JSON) -> list[Problem]:
    """Problems of a pod's status that concern claims."""
    entries = new["status"].get("resourceClaimStatuses") or ()
    known = {entry["name"] for entry in new["spec"].get("resourceClaims") or ()}
    at = "status.resourceClaimStatuses"
    problems = set_problems(entries, at, 10_000, lambda entry: entry.get("name", ""))
    for index, entry in enumerate(entries):
        name, claim = entry.get("name", ""), entry.get("resourceClaimName")
        if name not in known:
            problems.append(
                invalid_value(f"{at}[{index}].name", name, "must match the name of an entry in `spec.resourceClaims`")
            )
        if claim is not None and (wrong := names.dns_subdomain(claim)):
            problems.append(invalid_value(f"{at}[{index}].resourceClaimName", claim, wrong))
    return problems
