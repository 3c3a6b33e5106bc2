"""What compaction is to make room for: a pod that waits, or claims in a file."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from dra_extender.allocation.plan import Failure
from dra_extender.allocation.requests import prepare
from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.compaction.compaction import Wish
from dra_extender.insight.why.draft import defaulted
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.view import View


def of_pod(view: View, pod: Pod) -> Wish:
    """Raises ValueError for a pod that waits for nothing, and for one that cannot be decided on."""
    key = pod.metadata.key
    if pod.spec.node_name:
        raise ValueError(f"pod {key} is bound to node {pod.spec.node_name}: it needs no room")
    prefiltered = pre_filter(view, pod)
    if not isinstance(prefiltered, PreFilterState):
        raise ValueError(
            f"pod {key}: {prefiltered.reason if isinstance(prefiltered, Unschedulable) else prefiltered.error}"
        )
    if prefiltered.claims.allocated or prefiltered.wanted is not None or not prefiltered.claims.pending:
        raise ValueError(
            f"pod {key} has claims that are allocated already, extended resources, or no claims: moves are found for "
            "pods whose claims are all to be allocated"
        )
    return Wish(f"pod {key}", prefiltered.claims.pending, pod)


def of_file(view: View, file: str, text: str) -> Wish:
    """`text` is what stands in the file. Raises ValueError for a file without claims, and for claims that cannot be
    decided on.
    """
    try:
        documents = [found for found in yaml.safe_load_all(text) if found]
    except yaml.YAMLError as problem:
        raise ValueError(f"{file}: {problem}") from None
    written = [convert(ResourceClaim, _claim(file, found)) for found in documents]
    claims = tuple(msgspec.structs.replace(claim, spec=defaulted(claim.spec)) for claim in written)
    if not claims:
        raise ValueError(f"{file}: has no ResourceClaim and no ResourceClaimTemplate")
    prepared = prepare(claims, view.cluster.classes, view.features)
    if isinstance(prepared, Failure):
        raise ValueError(f"{file}: {prepared.error}")
    return Wish(", ".join(f"claim {claim.metadata.name}" for claim in claims), claims)


def _claim(file: str, document: Any) -> dict[str, Any]:
    """The ResourceClaim of a document, under a UID of its own. Raises ValueError."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in ("ResourceClaim", "ResourceClaimTemplate") or not isinstance(document.get("spec"), dict):
        raise ValueError(f"{file}: {kind or 'a document'} is no ResourceClaim and no ResourceClaimTemplate with a spec")
    metadata = document.get("metadata") or {}
    name = metadata.get("name") or "(unnamed)"
    spec = document["spec"].get("spec", {}) if kind == "ResourceClaimTemplate" else document["spec"]
    return {"metadata": {"name": name, "uid": f"{file}/{name} (new)"}, "spec": spec}
