"""The second opinion: each way in which a cluster can be wrong is found."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from embedded_cluster.invariants import violations
from embedded_cluster.objects import FullPod


def claim(name: str, *results: dict[str, Any], consumers: tuple[str, ...] = (), node: str = "n") -> ResourceClaim:
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in consumers]}
    if results:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        filled = [{"request": "r", "driver": "d", "pool": "p", "device": "x", **result} for result in results]
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        status["allocation"] = {"devices": {"results": filled}, "nodeSelector": selector}
    return convert(ResourceClaim, {"metadata": {"name": name, "namespace": "ns", "uid": name}, "status": status})


def pod(phase: str = "Running", node: str = "n", name: str = "c") -> FullPod:
    spec = {"nodeName": node, "resourceClaims": [{"name": "e", "resourceClaimName": name}]}
    meta = {"name": "a", "namespace": "ns", "uid": "a"}
    return convert(FullPod, {"metadata": meta, "spec": spec, "status": {"phase": phase}})


SHARED = {
    "name": "x",
    "allowMultipleAllocations": True,
    "capacity": {"bandwidth": {"value": "100"}},
}
COUNTERS = [{"name": "set", "counters": {"memory": {"value": "10"}}}]


def part(*devices: dict[str, Any], generation: int = 1, **spec: Any) -> ResourceSlice:
    pool = {"name": "p", "generation": generation}
    body = {"driver": "d", "pool": pool, "devices": list(devices), **spec}
    return convert(ResourceSlice, {"metadata": {"name": f"s{generation}"}, "spec": body})


def half(name: str, amount: str = "6") -> dict[str, Any]:
    return {"name": name, "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": amount}}}]}


def share(number: int, amount: str) -> dict[str, Any]:
    return {"shareID": f"s{number}", "consumedCapacity": {"bandwidth": amount}}


@pytest.mark.parametrize(
    ("claims", "pods", "slices", "wrong"),
    [
        ([claim("c", {}), claim("d", {"device": "y"})], [], [], ""),
        ([claim("c", {}), claim("d", {})], [], [], "device d/p/x is allocated more than once: ns/c, ns/d"),
        ([claim("c", {}), claim("d", {"adminAccess": True})], [], [], ""),
        ([claim("c", {}), claim("d", share(1, "1"))], [], [part(SHARED)], "device d/p/x is allocated more than once"),
        ([claim("c", share(1, "50")), claim("d", share(2, "50"))], [], [part(SHARED)], ""),
        ([claim("c", share(1, "50")), claim("d", share(2, "51"))], [], [part(SHARED)], "capacity bandwidth of device"),
        ([claim("c", share(1, "1")), claim("d", share(1, "1"))], [], [part(SHARED)], "more than once"),
        ([claim("c", {"device": "a"})], [], [part(half("a"), half("b"), sharedCounters=COUNTERS)], ""),
        (
            [claim("c", {"device": "a"}), claim("d", {"device": "b"})],
            [],
            [part(half("a"), half("b"), sharedCounters=COUNTERS)],
            "counter d/p/set/memory is overdrawn",
        ),
        (
            [claim("c", {"device": "a"}), claim("d", {"device": "b"})],
            [],
            [part(half("a"), half("b"), sharedCounters=COUNTERS), part(half("a", "1"), half("b", "1"), generation=2,
                                                                       sharedCounters=COUNTERS)],
            "",
        ),
        ([claim("c", {}, consumers=("a",))], [pod()], [], ""),
        ([claim("c", {})], [pod()], [], "pod ns/a runs although ResourceClaim ns/c is not reserved for this pod"),
        ([claim("c", {})], [pod("Pending")], [], ""),
        ([], [pod()], [], 'pod ns/a runs although could not find ResourceClaim "ns/c"'),
        ([claim("c", {}, consumers=("a",), node="m")], [pod()], [], "pod ns/a is on n, not where ns/c is"),
        ([claim("c", consumers=("a",))], [], [], "claim ns/c is reserved without being allocated"),
        ([claim("c", {}, consumers=("a", "a"))], [], [], "claim ns/c names a consumer twice"),
        ([claim("c", {}, consumers=tuple(map(str, range(257))))], [], [], "claim ns/c has 257 consumers"),
    ],
)  # fmt: skip
def test_what_must_never_be_is_found(
    claims: list[ResourceClaim], pods: list[FullPod], slices: list[ResourceSlice], wrong: str
) -> None:
    found = violations(claims, pods, slices, {"n": convert(Node, {"metadata": {"name": "n"}})})
    assert found == [] if not wrong else len(found) == 1 and wrong in found[0], found
