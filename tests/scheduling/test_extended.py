"""Extended resources: requests and mappings as kubelet expects them."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.meta import OwnerReference
from dra_extender.api.resource import MAX_REQUESTS, DeviceClass
from dra_extender.limits import CONTAINERS_OF_POD
from dra_extender.scheduling import extended
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.extended import (
    ExtendedResources,
    Requests,
    claim_body,
    claim_name,
    class_names,
    existing_claim,
    is_oversized,
    requests_of,
    synthetic_claim,
    through_devices,
    wanted,
)
from tests.support.simulation.objects import make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World

Json = dict[str, Any]
GPU, NIC = "example.com/gpu", "example.com/nic"


def device_class(name: str, resource: str = "", created: str | None = None) -> DeviceClass:
    meta: Json = {"name": name}
    if created:
        meta["creationTimestamp"] = created
    return convert(DeviceClass, {"metadata": meta, "spec": {"extendedResourceName": resource} if resource else {}})


def container(name: str, restart: str = "", **amounts: str) -> Json:
    """`gpu`, `nic`, `cpu`, `memory`: how much of each."""
    full = {"gpu": GPU, "nic": NIC}
    requests = {full.get(short, short): amount for short, amount in amounts.items()}
    found: Json = {"name": name, "resources": {"requests": requests}}
    return found | ({"restartPolicy": restart} if restart else {})


def pod(*containers: Json, init: tuple[Json, ...] = ()) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(init)}
    return convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})


def table(made: Requests) -> tuple[list[tuple[str, int]], list[tuple[str, str]]]:
    requests = [(request.name, request.exactly.count) for request in made.requests if request.exactly is not None]
    return requests, [(mapping.container_name, mapping.request_name) for mapping in made.mappings]


BOTH = ExtendedResources(classes={GPU: "gpu", NIC: "nic"}, others=frozenset())


@pytest.mark.parametrize(
    ("given", "requests", "mappings"),
    [
        pytest.param(
            pod(container("a", cpu="1", gpu="2", memory="1Gi")),
            [("container-0-request-1", 2)],
            [("a", "container-0-request-1")],
            id="the index counts all resources in order of their names",
        ),
        pytest.param(
            pod(container("a", gpu="1"), container("b", gpu="1", nic="3")),
            [("container-0-request-0", 1), ("container-1-request-0", 1), ("container-1-request-1", 3)],
            [("a", "container-0-request-0"), ("b", "container-1-request-0"), ("b", "container-1-request-1")],
            id="every container has its own request",
        ),
        pytest.param(
            pod(container("a", gpu="2"), init=(container("i", gpu="1"),)),
            [("container-1-request-0", 2)],
            [("a", "container-1-request-0"), ("i", "container-1-request-0")],
            id="an init container borrows",
        ),
        pytest.param(
            pod(container("a", gpu="1"), container("b", gpu="1"), init=(container("i", gpu="2"),)),
            [("container-1-request-0", 1), ("container-2-request-0", 1)],
            [
                ("a", "container-1-request-0"),
                ("b", "container-2-request-0"),
                ("i", "container-1-request-0"),
                ("i", "container-2-request-0"),
            ],
            id="an init container borrows from several",
        ),
        pytest.param(
            pod(container("a", gpu="1"), init=(container("i", gpu="3"), container("j", gpu="2"))),
            [("container-0-request-0", 2), ("container-2-request-0", 1)],
            [
                ("a", "container-2-request-0"),
                ("i", "container-2-request-0"),
                ("i", "container-0-request-0"),
                ("j", "container-2-request-0"),
                ("j", "container-0-request-0"),
            ],
            id="the largest rest becomes one more request, shared by all init containers",
        ),
        pytest.param(
            pod(container("a", cpu="1"), init=(container("s", "Always", gpu="1"), container("i", gpu="1"))),
            [("container-0-request-0", 1), ("container-1-request-0", 1)],
            [("s", "container-0-request-0"), ("i", "container-1-request-0")],
            id="nothing is borrowed from a sidecar that runs already",
        ),
        pytest.param(
            pod(*(container(f"c{index}", gpu="1") for index in range(11))),
            sorted((f"container-{index}-request-0", 1) for index in range(11)),
            [(f"c{index}", f"container-{index}-request-0") for index in range(11)],
            id="requests are sorted as text",
        ),
        pytest.param(pod(container("a", gpu="0", cpu="1")), [], [], id="nothing is asked for"),
    ],
)
def test_requests_and_mappings(given: Pod, requests: Any, mappings: Any) -> None:
    assert table(requests_of(given, BOTH, frozenset(BOTH.classes))) == (requests, mappings)


def test_only_the_resources_that_devices_provide_are_requested() -> None:
    made = requests_of(pod(container("a", gpu="1", nic="1")), BOTH, frozenset({NIC}))
    assert table(made) == ([("container-0-request-1", 1)], [("a", "container-0-request-1")])
    assert [request.exactly.device_class_name for request in made.requests if request.exactly] == ["nic"]


def test_the_newer_class_has_the_name_then_the_smaller_one() -> None:
    old, new = device_class("z", GPU, "2026-01-01T00:00:00Z"), device_class("a", GPU, "2025-01-01T00:00:00Z")
    assert class_names([old, new]) == class_names([new, old]) == {GPU: "z"}
    same = [device_class(name, GPU, "2026-01-01T00:00:00Z") for name in ("b", "a", "c")]
    assert class_names(same) == {GPU: "a"}


def test_a_pod_asks_by_explicit_and_by_implicit_names() -> None:
    classes = {"gpu": device_class("gpu", GPU), "nic": device_class("nic")}
    implicit = "deviceclass.resource.kubernetes.io/nic"
    given = pod(container("a", **{"gpu": "1", implicit: "1", "other.example.com/x": "1", "cpu": "1"}))
    found = wanted(given, class_names(classes.values()), classes)
    assert found is not None
    assert dict(found.classes) == {GPU: "gpu", implicit: "nic"}
    assert found.others == {"other.example.com/x"}


def test_most_pods_ask_for_nothing() -> None:
    classes = {"gpu": device_class("gpu", GPU)}
    assert wanted(pod(container("a", cpu="1", gpu="0")), class_names(classes.values()), classes) is None
    assert wanted(pod(container("a", **{"other.example.com/x": "1"})), {}, classes) is None


@pytest.mark.parametrize(
    ("allocatable", "expected"),
    [
        ({}, {GPU, NIC}),
        ({GPU: "0"}, {GPU, NIC}),
        ({GPU: "4"}, {NIC}),
        ({GPU: "4", NIC: "1"}, set()),
    ],
)
def test_a_node_that_offers_the_resource_itself_needs_no_devices(allocatable: Json, expected: set[str]) -> None:
    node = convert(Node, {"metadata": {"name": "n"}, "status": {"allocatable": allocatable}})
    assert through_devices(BOTH, node) == frozenset(expected)


def test_a_resource_that_nobody_offers_cannot_fit() -> None:
    asked = ExtendedResources(classes={GPU: "gpu"}, others=frozenset({"other.example.com/x"}))
    assert through_devices(asked, convert(Node, {"metadata": {"name": "n"}})) is None


def test_the_claim_belongs_to_the_pod_and_has_one_name() -> None:
    given = pod(container("a", gpu="1"))
    claim = synthetic_claim(given, requests_of(given, BOTH, frozenset({GPU})))
    body = claim_body(given, claim)
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    ]
    assert body["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert body["metadata"]["name"] == claim_name(given)
    assert claim_name(given).startswith("p-extended-resources-")
    long = convert(Pod, {"metadata": {"name": "x" * 250, "uid": "u"}})
    assert len(claim_name(long)) == 63
    alike = {claim_name(convert(Pod, {"metadata": {"name": "x" * 60, "uid": f"u{n}"}})) for n in range(4_000)}
    assert len(alike) == 4_000


def test_who_borrows_is_not_worked_out_for_more_requests_than_a_claim_may_have() -> None:
    lasting = [container(f"c{index}", gpu="1") for index in range(MAX_REQUESTS + 1)]
    passing = tuple(container(f"i{index}", gpu="1000000") for index in range(500))
    made = requests_of(pod(*lasting, init=passing), BOTH, frozenset({GPU}))
    assert len(made.requests) == len(made.mappings) == MAX_REQUESTS + 1
    made = requests_of(pod(*lasting[1:], init=passing), BOTH, frozenset({GPU}))
    assert len(made.mappings) == MAX_REQUESTS + 500 * (MAX_REQUESTS + 1)


def test_the_requests_for_a_resource_are_made_once_for_all_kinds_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    given, looked = pod(*(container(f"c{number}", gpu="1", nic="2") for number in range(9))), list[str]()
    find, made = extended._needs, dict[str, Requests]()

    def counted(pod: Pod, resource: str) -> Any:
        looked.append(resource)
        return find(pod, resource)

    monkeypatch.setattr(extended, "_needs", counted)
    for kind in (frozenset({GPU}), frozenset({GPU, NIC}), frozenset({NIC})):
        assert requests_of(given, BOTH, kind, made) == requests_of(given, BOTH, kind)
    assert len(looked) == 2 + 4


def test_requests_after_the_one_that_is_too_many_are_one() -> None:
    """The allocator's error names the first request that is too many, or the number of all devices."""
    made = requests_of(pod(*(container(f"c{index}", gpu="2") for index in range(900))), BOTH, frozenset({GPU}))
    counts = [each.exactly.count for each in made.requests if each.exactly is not None]
    assert counts == [2] * (MAX_REQUESTS + 1) + [2 * (900 - MAX_REQUESTS - 1)]


@pytest.mark.parametrize(("count", "oversized"), [(CONTAINERS_OF_POD, False), (CONTAINERS_OF_POD + 1, True)])
def test_a_pod_has_so_many_containers_and_no_more(count: int, oversized: bool) -> None:
    given = pod(*(container(f"c{index}", gpu="1") for index in range(count - 1)), init=(container("i"),))
    assert is_oversized(given) is oversized


@pytest.mark.parametrize(("namespace", "name", "found"), [("default", "p", True), ("other", "p", False)])
async def test_a_claim_of_another_namespace_does_not_stand_for_the_pod(
    world: World, namespace: str, name: str, found: bool
) -> None:
    """A user who knows the UID of a pod can write any owner onto a claim."""
    made = make_claim("theirs", namespace=namespace)
    owner = OwnerReference(kind="Pod", name=name, uid="uid-p", controller=True)
    marks = {"resource.kubernetes.io/extended-resource-claim": "true"}
    claim = with_metadata(made, owner_references=(owner,), annotations=marks)
    world.add(claim)
    service = world.service()
    service.start()
    await world.settle(1.0)
    ledger = service.extender.view.ledger
    assert len(ledger.owned_by(namespace, "uid-p")) == 1
    assert (existing_claim(make_pod("p"), ledger.owned_by("default", "uid-p")) is not None) == found
    assert (len(known_claims(make_pod("p"), ledger)) > 0) == found
