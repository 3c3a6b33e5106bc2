"""Changes of the names by which a pod refers to its claims: misspelt names, and claims that are being deleted.

Promises: suggests only names that exist. It finds templates through the pods whose claims were created from them, so
the service needs no permission to read templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from dra_extender.api.core import Pod, PodResourceClaim, PodResourceClaimStatus
from dra_extender.api.decoding import to_builtins
from dra_extender.api.resource import ResourceClaim, ResourceClaimSpec, ResourceClaimStatus
from dra_extender.insight.manifests import claim_from_template
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.candidates import (
    CandidateChange,
    ChangeList,
    ChangeLists,
    Order,
    near,
    object_change,
    pod_edit,
)
from dra_extender.scheduling.claims import created_names
from dra_extender.scheduling.turns import QueryBudget, Turns

AGAIN: Final = "-again"


def of_names(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """All changes of names."""
    yield from _claims(found, budget)
    yield from _templates(found, budget)
    yield from _deleted(found, budget)


def _claims(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """For a claim that does not exist, claims with a similar name."""
    pod = found.pod
    missing = [
        (index, entry.resource_claim_name)
        for index, entry in enumerate(pod.spec.resource_claims)
        if entry.resource_claim_name and found.claim(entry.resource_claim_name) is None
    ]
    yield from budget.charge(len(pod.spec.resource_claims))
    known = (yield from _claim_names(found, budget)) if missing else []
    for index, name in missing:
        path, problem = f"/resourceClaims/{index}/resourceClaimName", f"claim {name} does not exist"
        close = yield from near(name, known, budget)
        if close:
            yield ChangeList(Order.MISTAKE, [_meant(pod, path, other, problem) for other in close])


def _meant(pod: Pod, path: str, other: str, problem: str) -> CandidateChange:
    return pod_edit(pod, "name", path, other, f"{problem}; did you mean {other}?", f"did you mean {other}?")


def _claim_names(found: SimulatedPod, budget: QueryBudget) -> Turns[list[str]]:
    """The names of the claims in the pod's namespace that no controller created."""
    namespace = found.pod.metadata.namespace
    names: list[str] = []
    for claim in list(found.view.ledger.claims()):
        yield from budget.charge(1)
        if claim.metadata.namespace == namespace and not claim.metadata.controller:
            names.append(claim.metadata.name)
    return sorted(names)


# --- templates --------------------------------------------------------------------------------------------------------


def _templates(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """For a template without a claim, templates with a similar name."""
    pod = found.pod
    created = created_names(pod)
    missing = [
        (index, entry, entry.resource_claim_template_name)
        for index, entry in enumerate(pod.spec.resource_claims)
        if entry.resource_claim_template_name and not entry.resource_claim_name and entry.name not in created
    ]
    yield from budget.charge(len(pod.spec.resource_claims))
    known = (yield from _known_templates(found, budget)) if missing else {}
    for index, entry, name in missing:
        close = (yield from near(name, known, budget)) if name not in known else []
        if close:
            yield ChangeList(Order.MISTAKE, [_template(pod, index, entry, other, known[other]) for other in close])


def _known_templates(found: SimulatedPod, budget: QueryBudget) -> Turns[Mapping[str, ResourceClaimSpec]]:
    """The templates from which claims of pods in the namespace were created."""
    namespace, ledger = found.pod.metadata.namespace, found.view.ledger
    known: dict[str, ResourceClaimSpec] = {}
    for pod in list(found.view.pods):
        yield from budget.charge(1 + len(pod.spec.resource_claims))
        if pod.metadata.namespace != namespace or not pod.spec.resource_claims:
            continue
        created = created_names(pod)
        for entry in pod.spec.resource_claims:
            template, made = entry.resource_claim_template_name, created.get(entry.name)
            claim = ledger.get(namespace, made) if template and made else None
            if template and claim is not None:
                known[template] = claim.spec
    return known


def _template(pod: Pod, index: int, entry: PodResourceClaim, other: str, spec: ResourceClaimSpec) -> CandidateChange:
    claim = claim_from_template(pod.metadata, entry.name, spec)
    path = f"/resourceClaims/{index}/resourceClaimTemplateName"
    meant = _meant(pod, path, other, f"no claim was created from template {entry.resource_claim_template_name}")

    def apply(simulated: SimulatedPod) -> SimulatedPod:
        after = meant.apply(simulated.on(simulated.snapshot.with_claim(claim)))
        statuses = (*pod.status.resource_claim_statuses, PodResourceClaimStatus(entry.name, claim.metadata.name))
        return after.with_pod(replace(after.pod, status=replace(pod.status, resource_claim_statuses=statuses)))

    return meant._replace(apply=apply)


# --- claims that are being deleted ------------------------------------------------------------------------------------


def _deleted(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """Create a claim again after its deletion ends."""
    for entry in found.pod.spec.resource_claims:
        yield from budget.charge(1)
        claim = found.claim(entry.resource_claim_name) if entry.resource_claim_name else None
        if claim is not None and claim.metadata.deletion_timestamp:
            yield ChangeList(Order.CLAIM_AGAIN, [_again(claim)])


def _again(claim: ResourceClaim) -> CandidateChange:
    meta = claim.metadata
    fresh = replace(meta, uid=meta.uid + AGAIN, deletion_timestamp=None)
    made = replace(claim, metadata=fresh, status=ResourceClaimStatus())
    value = {"spec": to_builtins(claim.spec)}
    change = object_change("claim made again", "ResourceClaim", meta, value=value, op="create")
    text = f"create claim {meta.name} again after it is deleted"
    return CandidateChange(
        text, text, change, lambda found: found.on(found.snapshot.without_claim(claim).with_claim(made))
    )
