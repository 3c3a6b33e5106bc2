"""What the claim controller decides."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.resource import FINALIZER, ResourceClaim, ResourceClaimConsumerReference
from embedded_cluster.controllers import claimrules
from embedded_cluster.controllers.claimrules import DeleteClaim, RemoveFinalizer, StatusWrite, Wanted
from embedded_cluster.objects import FullPod

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1", "controller": True}


def pod(status: list[dict[str, str]] | None = None, **spec: Any) -> FullPod:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return convert(
        FullPod,
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
            "spec": {"resourceClaims": entries, **spec},
            "status": {"resourceClaimStatuses": status or []},
        },
    )


def claim(
    name: str,
    *,
    owner: str = "u1",
    entry: str = "gpu",
    allocated: bool = False,
    consumers: tuple[str, ...] = (),
    **meta: Any,
) -> ResourceClaim:
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in consumers]
    return convert(
        ResourceClaim,
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": name,
                "annotations": {"resource.kubernetes.io/pod-claim-name": entry},
                "ownerReferences": [OWNER | {"uid": owner}],
                **meta,
            },
            "status": {"reservedFor": reserved, **({"allocation": {"devices": {}}} if allocated else {})},
        },
    )


def wanted(pod: FullPod, *claims: ResourceClaim) -> list[Wanted]:
    known = {(found.metadata.namespace, found.metadata.name): found for found in claims}
    owned = [found for found in claims if found.metadata.owner_references[0].uid == pod.metadata.uid]
    return claimrules.wanted_claims(pod, lambda namespace, name: known.get((namespace, name)), owned)


@pytest.mark.parametrize(
    ("pod", "claims", "want"),
    [
        (pod(), (), [Wanted("gpu", "t", None)]),
        (pod([{"name": "gpu"}]), (), []),
        (pod([{"name": "gpu", "resourceClaimName": "c"}]), (claim("c"),), [Wanted("gpu", "t", "c")]),
        (pod([{"name": "gpu", "resourceClaimName": "c"}]), (), [Wanted("gpu", "t", None)]),
        (pod([{"name": "gpu", "resourceClaimName": "c"}]), (claim("c", owner="u2"),), [Wanted("gpu", "t", None)]),
        (pod(), (claim("c"),), [Wanted("gpu", "t", "c")]),
        (pod(), (claim("c", entry="other"),), [Wanted("gpu", "t", None)]),
        (pod(), (claim("c", deletionTimestamp="2026-01-01T00:00:00Z"),), [Wanted("gpu", "t", None)]),
    ],
    ids=["new", "not needed", "there", "vanished", "foreign", "created before a crash", "of another entry", "going"],
)
def test_templates_lead_to_one_claim_per_entry(
    pod: FullPod, claims: tuple[ResourceClaim, ...], want: list[Wanted]
) -> None:
    assert wanted(pod, *claims) == want


@pytest.mark.parametrize(
    ("name", "entry", "want"),
    [
        ("p", "gpu", "p-gpu-"),
        ("p" * 40, "e" * 15, "p" * 40 + "-" + "e" * 15 + "-"),
        ("p" * 41, "e" * 15, "p" * 40 + "-" + "e" * 14),
        (
            "a-very-long-pod-name-that-goes-on-and-on-and-on-and-on-and-on-until-it-ends",
            "a-long-claim-entry-name-too",
            "a-very-long-pod-name-that-goes-on-and-on--a-long-claim-e",  # as made by the real controller
        ),
    ],
)
def test_long_names_are_cut_in_proportion(name: str, entry: str, want: str) -> None:
    assert claimrules.base_name(name, entry) == want


@pytest.mark.parametrize(
    ("consumer", "cached", "known_deleted", "want"),
    [
        ({"resource": "pods"}, None, False, "ask"),
        ({"resource": "pods"}, None, True, "drop"),
        ({"resource": "pods"}, {"uid": "u1"}, False, "keep"),
        ({"resource": "pods"}, {"uid": "u2"}, False, "drop"),
        ({"resource": "pods"}, {"uid": "u1", "phase": "Succeeded"}, False, "drop"),
        ({"resource": "pods"}, {"uid": "u1", "phase": "Failed"}, False, "drop"),
        ({"resource": "pods"}, {"uid": "u1", "deleted": True}, False, "drop"),
        ({"resource": "pods"}, {"uid": "u1", "deleted": True, "node": "n"}, False, "keep"),
        ({"resource": "jobs", "apiGroup": "batch"}, None, True, "keep"),
    ],
)
def test_a_consumer_stays_until_it_is_known_to_be_done(
    consumer: dict[str, str], cached: dict[str, Any] | None, known_deleted: bool, want: str
) -> None:
    found = None
    if cached is not None:
        meta = {"name": "p", "uid": cached["uid"]}
        meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if cached.get("deleted") else {}
        parts = {"spec": {"nodeName": cached.get("node", "")}, "status": {"phase": cached.get("phase", "")}}
        found = convert(FullPod, {"metadata": meta, **parts})
    reference = convert(ResourceClaimConsumerReference, {"name": "p", "uid": "u1", **consumer})
    assert claimrules.standing(reference, found, known_deleted=known_deleted) == want


PROTECTED: dict[str, Any] = {"finalizers": [FINALIZER]}
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("claim", "staying", "owner_done", "want"),
    [
        (claim("c", allocated=True, consumers=("a", "b"), **PROTECTED), 2, False, []),
        (claim("c", allocated=True, consumers=("a", "b"), **PROTECTED), 1, False, ["write 1"]),
        (claim("c", allocated=True, consumers=("a",), **PROTECTED), 0, False, ["deallocate", "finalizer"]),
        (claim("c", allocated=True, consumers=("a",), **PROTECTED), 0, True, ["deallocate", "finalizer", "delete"]),
        (claim("c", allocated=True, consumers=("a",)), 0, False, ["write 0"]),
        (claim("c", allocated=True, **PROTECTED), 0, False, []),
        (claim("c", allocated=True, **PROTECTED, **DELETED), 0, False, ["deallocate", "finalizer"]),
        (claim("c", **PROTECTED, **DELETED), 0, False, ["finalizer"]),
        (claim("c", allocated=True, consumers=("a",), **PROTECTED, **DELETED), 1, False, []),
        (claim("c"), 0, True, ["delete"]),
    ],
    ids=[
        "in use", "one goes", "the last goes", "the last goes and was the owner", "without the finalizer",
        "never reserved", "deleted while idle", "deleted and free", "deleted in use", "owner done",
    ],
)  # fmt: skip
def test_clean_up_writes_status_first_and_the_finalizer_last(
    claim: ResourceClaim, staying: int, owner_done: bool, want: list[str]
) -> None:
    def name(action: claimrules.ClaimAction) -> str:
        if isinstance(action, StatusWrite):
            return "deallocate" if action.deallocate else f"write {len(action.reserved_for)}"
        return {RemoveFinalizer: "finalizer", DeleteClaim: "delete"}[type(action)]

    actions = claimrules.clean_up(claim, claim.status.reserved_for[:staying], owner_done=owner_done)
    assert [name(action) for action in actions] == want
