"""The claims of a pod: texts are those of kube-scheduler's plugin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from dra_extender.allocation.plan import Failure
from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus
from dra_extender.api.scheduling import PodGroup
from dra_extender.devices.cluster import Cluster
from dra_extender.limits import CLAIMS_OF_POD, REQUESTS_OF_POD
from dra_extender.scheduling.claims import (
    TOO_LARGE,
    TOO_MANY,
    PodClaims,
    Unschedulable,
    consumer,
    examine,
    resolve_claims,
)

Json = dict[str, Any]

POD: Json = {"metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"}}
OWNER: Json = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-uid", "controller": True}
GROUP: Json = {
    "apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "PodGroup", "name": "g", "uid": "group-uid", "controller": True
}  # fmt: skip
GROUPS = FeatureGates(DRAWorkloadResourceClaims=True)


def pod_with(*entries: Json, statuses: list[Json] | None = None, group: str = "") -> Pod:
    spec: Json = {"resourceClaims": list(entries)}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return convert(Pod, {**POD, "spec": spec, "status": {"resourceClaimStatuses": statuses or []}})


def cluster_with(features: FeatureGates | None = None, *objects: Any) -> Cluster:
    cluster = Cluster(features or FeatureGates())
    for item in objects:
        cluster.apply(Applied(item))
    return cluster


def claim_with(name: str, requests: Sequence[Json] = (), **metadata: Any) -> ResourceClaim:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **metadata}
    return convert(ResourceClaim, {"metadata": meta, "spec": {"devices": {"requests": list(requests)}}})


def find_in(pod: Pod, *claims: ResourceClaim, features: FeatureGates | None = None) -> Any:
    known = {(claim.metadata.namespace, claim.metadata.name): claim for claim in claims}
    return resolve_claims(pod, lambda namespace, name: known.get((namespace, name)), cluster_with(features))


NAMED = {"name": "e", "resourceClaimName": "c"}
MADE = {"name": "e", "resourceClaimTemplateName": "t"}


@pytest.mark.parametrize(
    ("pod", "claims", "reason"),
    [
        (pod_with(NAMED), [], 'could not find ResourceClaim "ns/c"'),
        (pod_with({"name": "e"}), [], 'pod "ns/p", spec.resourceClaim "e": none of the supported fields are set'),
        (pod_with(MADE), [], 'pod "ns/p": ResourceClaim not created yet'),
        (
            pod_with(NAMED),
            [claim_with("c", deletionTimestamp="2026-01-01T00:00:00Z")],
            'resourceclaim "c" is being deleted',
        ),
        (
            pod_with(MADE, statuses=[{"name": "e", "resourceClaimName": "c"}]),
            [claim_with("c")],
            "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)",
        ),
        (
            pod_with(MADE, statuses=[{"name": "e", "resourceClaimName": "c"}]),
            [claim_with("c", ownerReferences=[OWNER | {"uid": "other"}])],
            "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)",
        ),
        (
            pod_with({"name": "d", "resourceClaimName": "gone"}, NAMED),
            [claim_with("c", deletionTimestamp="2026-01-01T00:00:00Z")],
            'could not find ResourceClaim "ns/gone"',
        ),
    ],
)
def test_a_pod_waits_with_the_reason_of_its_first_entry_that_fails(
    pod: Pod, claims: list[ResourceClaim], reason: str
) -> None:
    found = find_in(pod, *claims)
    assert isinstance(found, Unschedulable)
    assert found.reason == reason


def test_only_missing_things_make_us_ask_the_api_server() -> None:
    gone = claim_with("c", deletionTimestamp="2026-01-01T00:00:00Z")
    assert find_in(pod_with(NAMED)).behind
    assert find_in(pod_with(MADE)).behind
    assert not find_in(pod_with(NAMED), gone).behind


def test_an_entry_that_needs_no_claim_is_skipped() -> None:
    assert find_in(pod_with(MADE, statuses=[{"name": "e"}])) == ()


@pytest.mark.parametrize(("count", "refused"), [(CLAIMS_OF_POD, False), (CLAIMS_OF_POD + 1, True)])
def test_a_pod_names_so_many_claims_and_no_more(count: int, refused: bool) -> None:
    pod = pod_with(*({"name": f"c{number}", "resourceClaimName": "shared"} for number in range(count)))
    found = find_in(pod, claim_with("shared"))
    assert (found == Unschedulable(TOO_MANY)) is refused


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
def test_the_claims_of_a_pod_have_so_many_requests_and_no_more(more: int, refused: bool) -> None:
    """Alternatives count, too."""
    alternatives = [{"name": f"a{number}", "deviceClassName": "gpu"} for number in range(7)]
    requests = [{"name": f"r{number}", "firstAvailable": alternatives} for number in range(32)]
    names = [f"c{number}" for number in range(REQUESTS_OF_POD // (32 * 8))]
    claims = [claim_with(name, requests) for name in names] + [claim_with("last", requests[:more])]
    pod = pod_with(*({"name": name, "resourceClaimName": name} for name in (*names, "last")))
    assert (find_in(pod, *claims) == Unschedulable(TOO_LARGE)) is refused


def test_a_claim_named_twice_is_used_once() -> None:
    claim = claim_with("c")
    pod = pod_with(NAMED, {"name": "f", "resourceClaimName": "d"}, {"name": "again", "resourceClaimName": "c"})
    assert find_in(pod, claim, claim_with("d")) == (claim, claim_with("d"))


def test_a_claim_of_the_pods_group_is_accepted_and_reserved_for_the_group() -> None:
    claim = claim_with("c", ownerReferences=[GROUP])
    pod = pod_with(MADE, statuses=[{"name": "e", "resourceClaimName": "c"}], group="g")
    assert find_in(pod, claim, features=GROUPS) == (claim,)
    assert consumer(claim, pod, cluster_with(GROUPS)).uid == "group-uid"
    assert consumer(claim, pod, cluster_with(GROUPS)).api_group == "scheduling.k8s.io"
    assert isinstance(find_in(pod, claim), Unschedulable)
    assert consumer(claim, pod, cluster_with()).uid == "pod-uid"


def test_a_claim_that_is_reserved_for_the_pods_group_stays_so() -> None:
    reserved = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-uid"}
    claim = convert(ResourceClaim, {"metadata": {"name": "c"}, "status": {"reservedFor": [reserved]}})
    assert consumer(claim, pod_with(NAMED, group="g"), cluster_with(GROUPS)).uid == "group-uid"
    assert consumer(claim, pod_with(NAMED, group="other"), cluster_with(GROUPS)).uid == "pod-uid"
    assert consumer(claim, pod_with(NAMED), cluster_with(GROUPS)).uid == "pod-uid"
    assert consumer(claim, pod_with(NAMED, group="g"), cluster_with()).uid == "pod-uid"


def test_a_claim_of_another_group_is_refused() -> None:
    pod = pod_with(MADE, statuses=[{"name": "e", "resourceClaimName": "c"}], group="other")
    assert isinstance(find_in(pod, claim_with("c", ownerReferences=[GROUP]), features=GROUPS), Unschedulable)


@pytest.mark.parametrize(("uid", "is_its_own"), [("group-uid", True), ("later-uid", False), ("", True)])
def test_what_an_earlier_group_of_the_name_has_left_is_not_the_pods(uid: str, is_its_own: bool) -> None:
    """Without a UID the group is not known: then names are compared, as Kubernetes does."""
    known = [convert(PodGroup, {"metadata": {"name": "g", "namespace": "ns", "uid": uid}})] if uid else []
    cluster = cluster_with(GROUPS, *known)
    reserved = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-uid"}
    owned, named = claim_with("c", ownerReferences=[GROUP]), claim_with("c")
    named = msgspec.structs.replace(named, status=convert(ResourceClaimStatus, {"reservedFor": [reserved]}))
    pod = pod_with(MADE, statuses=[{"name": "e", "resourceClaimName": "c"}], group="g")
    assert (resolve_claims(pod, lambda *_: owned, cluster) == (owned,)) is is_its_own
    users = [consumer(claim, pod_with(NAMED, group="g"), cluster) for claim in (owned, named)]
    assert [user.uid for user in users] == ["group-uid" if is_its_own else "pod-uid"] * 2


# --- examining --------------------------------------------------------------------------------------------------------

CLASSES = (convert(DeviceClass, {"metadata": {"name": "gpu"}}),)
PREFERRED: Json = {
    "name": "r",
    "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}, {"name": "b", "deviceClassName": "none"}],
}


def asking(request: Json) -> ResourceClaim:
    return convert(
        ResourceClaim,
        {
            "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c"},
            "spec": {"devices": {"requests": [request]}},
        },
    )


def examined(claim: ResourceClaim, *, busy: bool = False, features: FeatureGates | None = None) -> Any:
    return examine(
        [claim],
        pod_with(NAMED),
        in_flight=lambda _: busy,
        cluster=cluster_with(features, *CLASSES),
    )


@pytest.mark.parametrize(
    ("request_", "features", "answer"),
    [
        (
            {"name": "r", "exactly": {"deviceClassName": "none"}},
            FeatureGates(),
            Unschedulable("request r: device class none does not exist"),
        ),
        (PREFERRED, FeatureGates(), Unschedulable("request r/b: device class none does not exist")),
        (
            PREFERRED,
            FeatureGates(DRAPrioritizedList=False),
            Unschedulable(
                "resource claim ns/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
            ),
        ),
        ({"name": "r"}, FeatureGates(), Unschedulable("resource claim ns/c, request r: unknown request type")),
        ({"name": "r", "exactly": {}}, FeatureGates(), Failure("request r: unsupported request type")),
    ],
)
def test_what_a_request_asks_for_must_be_known(request_: Json, features: FeatureGates, answer: Any) -> None:
    assert examined(asking(request_), features=features) == answer


def test_a_claim_that_somebody_is_allocating_is_waited_for() -> None:
    claim = asking({"name": "r", "exactly": {"deviceClassName": "gpu"}})
    assert isinstance(examined(claim), PodClaims)
    refusal = Unschedulable("resource claim ns/c is in the process of being allocated", awaiting="uid-c")
    assert examined(claim, busy=True) == refusal


def test_a_claim_takes_no_more_than_256_consumers() -> None:
    def shared_by(count: int, *more: str) -> ResourceClaim:
        uids = [*(f"u{index}" for index in range(count)), *more]
        status = {
            "allocation": {},
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids],
        }
        return msgspec.structs.replace(
            claim_with("c"), status=convert(ResourceClaim, {"metadata": {}, "status": status}).status
        )

    assert isinstance(examined(shared_by(255)), PodClaims)
    assert examined(shared_by(256)) == Unschedulable(
        "resource claim ns/c is used by 256 consumers, which is the maximum"
    )
    assert isinstance(examined(shared_by(255, "pod-uid")), PodClaims)
