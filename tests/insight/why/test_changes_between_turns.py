"""A diagnosis ends with an answer, whatever changes between two of its turns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from typing import Final

import pytest
from msgspec.structs import replace

from dra_extender.api.events import Applied, Removed
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import ResourceClaim, ResourceClaimSpec
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.scheduling.turns import run_at_once
from tests.support.diagnosis.misfits import MISFITS, POD, Misfit

EVERY: Final = 24
"""One of this many misfits is tried. They differ in what is wrong."""


def _made_again(cluster: Cluster, shorter: Callable[[ResourceClaim], ResourceClaimSpec]) -> None:
    """Claims that are not allocated are deleted, and created with another spec."""
    for claim in list(cluster.ledger.claims()):
        if claim.allocation is None:
            key, uid = Applied(claim).key, claim.metadata.uid
            cluster.apply(Removed(key, uid))
            metadata = replace(claim.metadata, uid=f"{uid}-again", resource_version="1000000")
            cluster.apply(Applied(replace(claim, spec=shorter(claim), metadata=metadata)))


def claims_have_no_requests(cluster: Cluster) -> None:
    _made_again(cluster, lambda _: ResourceClaimSpec())


def claims_have_no_selectors(cluster: Cluster) -> None:
    def without(claim: ResourceClaim) -> ResourceClaimSpec:
        devices = claim.spec.devices
        first = devices.requests[0]
        exactly = replace(first.exactly, selectors=()) if first.exactly is not None else None
        first = replace(first, exactly=exactly, first_available=first.first_available[:1])
        return replace(claim.spec, devices=replace(devices, requests=(first,), constraints=()))

    _made_again(cluster, without)


def claims_are_gone(cluster: Cluster) -> None:
    for claim in list(cluster.ledger.claims()):
        cluster.apply(Removed(Applied(claim).key, claim.metadata.uid))


def other_pods_are_gone(cluster: Cluster) -> None:
    for pod in list(cluster.pods):
        if pod.metadata.name != POD:
            cluster.pods.remove(pod.metadata.uid)


def nodes_are_gone(cluster: Cluster) -> None:
    for name in list(cluster.nodes):
        cluster.apply(Removed(ObjectKey("Node", name), name))


def classes_are_gone(cluster: Cluster) -> None:
    for name in list(cluster.classes):
        cluster.apply(Removed(ObjectKey("DeviceClass", name), name))


CHANGES: Final = (
    claims_have_no_requests,
    claims_have_no_selectors,
    claims_are_gone,
    other_pods_are_gone,
    nodes_are_gone,
    classes_are_gone,
)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("misfit", MISFITS[::EVERY], ids=lambda misfit: misfit.name)
def test_a_diagnosis_ends_with_an_answer(misfit: Misfit, change: Callable[[Cluster], None]) -> None:
    scene = misfit.scene()
    for turns in count(1):
        view = scene.view()
        pod = view.pods.named("default", POD)
        assert pod is not None
        steps = diagnosing(view, pod)
        if len(list(islice(steps, turns))) < turns:
            assert turns > 10
            return
        assert isinstance(view.cluster, Cluster)
        change(view.cluster)
        found = run_at_once(steps)
        assert found.pod == pod.metadata.key and found.state != "bound"
