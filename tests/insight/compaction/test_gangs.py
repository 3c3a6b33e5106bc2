"""Room for the last pod of a gang, while the others keep the places that were found for them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dra_extender.insight.compaction import Advice, Compaction, EvictionRules, request_of_gang
from tests.support.diagnosis.gangscenes import CLASS, claim, host, member, pod
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]


def busy(scene: Scene, name: str, **spec: Any) -> Scene:
    """A pod of a controller, on the first node that it fits."""
    made = pod(name, **spec)
    owner = {"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True, "apiVersion": "apps/v1"}
    made["metadata"]["ownerReferences"] = [owner]
    return scene.with_more([claim(name), made]).settled()


def scene(*hosts: list[Json]) -> Scene:
    """One device of the first node with label rack=b is in use. The gang has two pods with two devices each."""
    made = busy(Scene([CLASS, *(item for each in hosts for item in each)]), "busy", nodeSelector={"rack": "b"})
    return made.with_more([item for number in range(2) for item in (claim(f"g-{number}", 2), member(number, 2))])


def advice(found: Scene) -> Advice:
    view = found.view()
    asked = view.pods.named("default", "g-0")
    assert asked is not None
    return Compaction(request_of_gang(view, asked), EvictionRules()).advice()


def test_a_pod_is_moved_to_where_no_pod_of_the_gang_goes() -> None:
    found = advice(scene(host("n0", 2), host("n1", 2, rack="b"), host("n2", 1, rack="b")))
    assert [(move.pod, move.target) for move in found.moves] == [("default/busy", "n2")]
    assert (found.node, found.request) == ("n1", "pod default/g-1, the last of gang default/g,")


def test_nothing_is_moved_to_a_device_that_a_pod_of_the_gang_needs() -> None:
    assert not advice(scene(host("n0", 2, rack="b"), host("n1", 2))).moves


def test_a_gang_that_fits_needs_no_moves() -> None:
    found = advice(scene(host("n0", 2), host("n1", 2), host("n2", 1, rack="b")))
    assert found.fits == ("n0", "n1") and not found.moves


def test_room_for_several_pods_of_a_gang_is_refused() -> None:
    refused = re.escape("gang default/g: 2 of its pods have no place: compaction makes room for one")
    with pytest.raises(ValueError, match=refused):
        advice(scene(host("n0", 1), host("n1", 1, rack="b")))
