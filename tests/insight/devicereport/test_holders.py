"""Who has a device, as people read it."""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaimConsumerReference
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.usage import DeviceUse
from dra_extender.insight.devicereport.report import Holding, holders
from tests.support.devices.objects import make_allocation, make_claim

POOL = ("gpu", "node-1")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(FeatureGates())


def found(cluster: Cluster, device: str = "d0") -> list[Holding]:
    return list(holders(cluster.ledger, cluster.ledger.in_use(POOL).get(device, DeviceUse())))


def test_a_free_device_has_no_holder(cluster: Cluster) -> None:
    assert found(cluster) == []


def test_the_owner_is_named_with_the_pods_it_is_reserved_for(cluster: Cluster) -> None:
    claim = make_claim("c", devices=["gpu/node-1/d0"])
    pods = tuple(ResourceClaimConsumerReference(resource="pods", name=name, uid=name) for name in ("p", "q"))
    status = msgspec.structs.replace(claim.status, reserved_for=pods)
    cluster.apply(Applied(msgspec.structs.replace(claim, status=status)))
    assert found(cluster) == [Holding(claim="default/c", pods=("p", "q"))]


def test_what_is_decided_and_not_stored_is_in_flight(cluster: Cluster) -> None:
    claim = make_claim("a", 1)
    cluster.apply(Applied(claim))
    cluster.ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod")
    assert found(cluster) == [Holding(claim=claim.metadata.key, in_flight=True)]


def test_a_claim_that_nobody_has_created_yet_is_named_by_its_uid(cluster: Cluster) -> None:
    cluster.ledger.hold(make_claim("a", 1), make_allocation("gpu/node-1/d0"), owner="pod")
    assert found(cluster) == [Holding(claim="uid-a", in_flight=True)]


def test_every_share_has_a_holder_with_what_it_consumes(cluster: Cluster) -> None:
    for name, share in (("b", "s2"), ("a", "s1")):
        result = {"request": "r", "driver": "gpu", "pool": "node-1", "device": "d0", "shareID": share}
        cluster.apply(Applied(make_claim(name, devices=[result | {"consumedCapacity": {"memory": "1Gi"}}])))
    assert [(holder.claim, holder.share, str(holder.consumed["memory"])) for holder in found(cluster)] == [
        ("default/a", "s1", "1Gi"),
        ("default/b", "s2", "1Gi"),
    ]
