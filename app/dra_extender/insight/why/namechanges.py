"""Changes of the names by which a pod calls its claims: misspelt ones, and claims that are about to be gone.

Promises: only names that are known are suggested. Templates are known by the pods that have claims from them, so nobody
has to be allowed to read templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dra_extender.api.core import Pod, PodResourceClaim, PodResourceClaimStatus
from dra_extender.api.decoding import to_builtins
from dra_extender.api.meta import ObjectMeta, OwnerReference
from dra_extender.api.resource import ResourceClaim, ResourceClaimSpec, ResourceClaimStatus
from dra_extender.insight.why.edits import Candidate, Families, Family, becomes, pod_change, replaced
from dra_extender.insight.why.nearness import near
from dra_extender.insight.why.report import Change
from dra_extender.insight.why.situation import Situation
from dra_extender.scheduling.claims import created_names
from dra_extender.scheduling.slices import QueryBudget, Slices

AGAIN: Final = "-again"


def of_names(situation: Situation, budget: QueryBudget) -> Families:
    """All families."""
    yield from _claims(situation, budget)
    yield from _templates(situation, budget)
    yield from _leaving(situation, budget)


def with_entry(pod: Pod, index: int, entry: PodResourceClaim) -> Pod:
    """The pod with another one of its claims."""
    entries = replaced(pod.spec.resource_claims, index, entry)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resource_claims=entries))


def _claims(situation: Situation, budget: QueryBudget) -> Families:
    """A claim that does not exist may be another one that does."""
    pod = situation.pod
    namespace = pod.metadata.namespace
    missing = [
        (index, entry, entry.resource_claim_name)
        for index, entry in enumerate(pod.spec.resource_claims)
        if entry.resource_claim_name and situation.claim(namespace, entry.resource_claim_name) is None
    ]
    if budget.must_yield(len(pod.spec.resource_claims)):
        yield None
    known = (yield from _claim_names(situation, budget)) if missing else []
    for index, entry, name in missing:
        found: list[Candidate] = []
        for other in (yield from near(name, known, budget)):
            changed = msgspec.structs.replace(entry, resource_claim_name=other)
            change = pod_change(pod, "name", f"/spec/resourceClaims/{index}/resourceClaimName", other)
            text = f"claim {name} does not exist; did you mean {other}?"
            made = with_entry(pod, index, changed)
            found.append(Candidate(text, f"did you mean {other}?", change, becomes(pod, made)))
        if found:
            yield Family(0, found)


def _claim_names(situation: Situation, budget: QueryBudget) -> Slices[list[str]]:
    """Of the claims in the pod's namespace that are made for nobody in particular."""
    namespace = situation.pod.metadata.namespace
    found: list[str] = []
    for claim in list(situation.view.ledger.claims()):
        if budget.must_yield(1):
            yield
        if claim.metadata.namespace == namespace and not claim.metadata.controller:
            found.append(claim.metadata.name)
    return sorted(found)


# --- templates --------------------------------------------------------------------------------------------------------


def _templates(situation: Situation, budget: QueryBudget) -> Families:
    """A template of which no claim came may be another one."""
    pod = situation.pod
    created = created_names(pod)
    missing = [
        (index, entry, entry.resource_claim_template_name)
        for index, entry in enumerate(pod.spec.resource_claims)
        if entry.resource_claim_template_name and not entry.resource_claim_name and entry.name not in created
    ]
    if budget.must_yield(len(pod.spec.resource_claims)):
        yield None
    known = (yield from _known_templates(situation, budget)) if missing else {}
    for index, entry, name in missing:
        close = (yield from near(name, known, budget)) if name not in known else []
        if close:
            yield Family(0, [_template(pod, index, entry, other, known[other]) for other in close])


def _known_templates(situation: Situation, budget: QueryBudget) -> Slices[Mapping[str, ResourceClaimSpec]]:
    """What the templates are by which other pods of the namespace have claims."""
    namespace, ledger = situation.pod.metadata.namespace, situation.view.ledger
    found: dict[str, ResourceClaimSpec] = {}
    for pod in list(situation.view.pods):
        if budget.must_yield(1 + len(pod.spec.resource_claims)):
            yield
        if pod.metadata.namespace != namespace or not pod.spec.resource_claims:
            continue
        created = created_names(pod)
        for entry in pod.spec.resource_claims:
            template, made = entry.resource_claim_template_name, created.get(entry.name)
            claim = ledger.get(namespace, made) if template and made else None
            if template and claim is not None:
                found[template] = claim.spec
    return found


def _template(pod: Pod, index: int, entry: PodResourceClaim, other: str, spec: ResourceClaimSpec) -> Candidate:
    meta, made = pod.metadata, f"{pod.metadata.name}-{entry.name}"
    owner = OwnerReference(kind="Pod", name=meta.name, uid=meta.uid, api_version="v1", controller=True)
    named = ObjectMeta(name=made, namespace=meta.namespace, uid=f"{meta.uid}-{entry.name}", owner_references=(owner,))
    claim = ResourceClaim(named, spec)
    changed = with_entry(pod, index, msgspec.structs.replace(entry, resource_claim_template_name=other))
    statuses = (*pod.status.resource_claim_statuses, PodResourceClaimStatus(entry.name, made))
    status = msgspec.structs.replace(pod.status, resource_claim_statuses=statuses)
    after = becomes(pod, msgspec.structs.replace(changed, status=status))
    return Candidate(
        f"no claim comes from template {entry.resource_claim_template_name}; did you mean {other}?",
        f"did you mean {other}?",
        pod_change(pod, "name", f"/spec/resourceClaims/{index}/resourceClaimTemplateName", other),
        lambda found: after(found.with_claim(claim)),
    )


# --- claims that leave ------------------------------------------------------------------------------------------------


def _leaving(situation: Situation, budget: QueryBudget) -> Families:
    """A claim that is being deleted can be made again when it is gone."""
    namespace = situation.pod.metadata.namespace
    for entry in situation.pod.spec.resource_claims:
        if budget.must_yield(1):
            yield None
        name = entry.resource_claim_name
        claim = situation.claim(namespace, name) if name else None
        if claim is not None and claim.metadata.deletion_timestamp:
            yield Family(2, [_again(claim)])


def _again(claim: ResourceClaim) -> Candidate:
    meta = claim.metadata
    fresh = msgspec.structs.replace(meta, uid=meta.uid + AGAIN, deletion_timestamp=None)
    made = msgspec.structs.replace(claim, metadata=fresh, status=ResourceClaimStatus())
    change = Change(
        kind="claim made again", object="ResourceClaim", name=meta.name, namespace=meta.namespace, op="create",
        value={"spec": to_builtins(claim.spec)},
    )  # fmt: skip
    short = f"create claim {meta.name} again when it is gone"
    return Candidate(short, short, change, lambda found: found.without_claim(claim).with_claim(made))
