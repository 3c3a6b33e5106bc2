"""What may be taken away while something is under way: nothing that a bind or a deallocation is about to change."""

from __future__ import annotations

from dra_extender.api.decoding import convert
from dra_extender.api.events import Undecodable
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import AllocationResult
from tests.support.scheduling.preempting import Situation, pod_of

LOW = {"priority": 1, "node": "n1", "has": ["d0"]}


def test_a_claim_that_is_being_deallocated_is_left_alone() -> None:
    situation = Situation({"nodes": {"n1": 1}, "pods": {"low": LOW}})
    assert situation.text() == "n1: low"
    situation.clearing.add("low-claim")
    assert situation.text() == "hopeless"


def test_devices_that_are_held_for_a_bind_are_not_taken() -> None:
    situation = Situation({"nodes": {"n1": 1}, "pods": {"low": {"priority": 1, "node": "n1"}}})
    claim = situation.put_claim("theirs", {}, {})
    results = [{"request": "r", "driver": "gpu", "pool": "n1", "device": "d0"}]
    allocation = convert(AllocationResult, {"devices": {"results": results}})
    situation.cluster.ledger.hold(claim, allocation, owner="somebody")
    assert situation.text() == "hopeless"


def test_a_claim_that_a_bind_under_way_is_about_to_share_stays() -> None:
    situation = Situation({"nodes": {"n1": 1}, "pods": {"low": LOW}})
    situation.pods.apply(pod_of("joining", {"priority": 1, "claims": ["low-claim"]}))
    assert situation.text() == "n1: low"
    situation.binding["uid-joining"] = "n1"
    assert situation.text() == "hopeless"


def test_the_consumers_of_a_claim_that_are_gone_count_no_more() -> None:
    told = {"nodes": {"n1": 1}, "pods": {"low": {"priority": 1, "node": "n1"}, "gone": {"node": "n1"}}}
    situation = Situation({**told, "claims": {"shared": {"of": ["low", "gone"], "pool": "n1", "has": ["d0"]}}})
    gone = situation.pods.get("uid-gone")
    assert gone is not None
    assert situation.text() == "n1: low gone"
    situation.pods.remove(gone.metadata.uid)
    assert situation.text() == "n1: low"


def test_an_unreadable_claim_stays() -> None:
    situation = Situation({"nodes": {"n1": 1}, "pods": {"low": LOW}})
    situation.cluster.apply(Undecodable(ObjectKey("ResourceClaim", "ns/low-claim"), "cannot be read"))
    assert situation.text() == "hopeless"


def test_a_victim_says_which_devices_it_has() -> None:
    told = {"nodes": {"n1": 2}, "pods": {"low": {"priority": 1, "node": "n1", "has": ["d0", "d1"]}}}
    found = Situation({**told, "preemptor": {"wants": 1}}).found()
    assert [victim.devices for victim in found.victims] == [(("gpu", "n1", "d0"), ("gpu", "n1", "d1"))]  # type: ignore[union-attr]
