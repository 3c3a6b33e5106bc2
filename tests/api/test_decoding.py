"""From bytes to typed objects: what is accepted, what is refused and in which words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import pytest
from kubernetes_asyncio.client import models

from dra_extender.api import decoding, resource
from dra_extender.api.core import Node, NodeSelector, Pod, PodSpec
from dra_extender.api.decoding import DecodeError, convert, decode, encode, ignore_fields, to_builtins
from dra_extender.api.events import partial_allocation
from dra_extender.api.meta import IGNORED, ObjectMeta, StrictObject
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import MAX_NAMES, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dra_extender.limits import DEPTH_OF_PARAMETERS, LABELS_OF_OBJECT, PARTS_OF_POD

SLICE = b"""{
  "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
  "metadata": {"name": "node-1-gpu", "uid": "u1", "resourceVersion": "17",
               "managedFields": [{"manager": "driver", "fieldsV1": {"f:spec": {}}}]},
  "spec": {"driver": "gpu.example.com", "nodeName": "node-1",
           "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 1},
           "devices": [{"name": "gpu-0",
                        "attributes": {"model": {"string": "A100"}, "index": {"int": 0}, "ecc": {"bool": true},
                                       "driverVersion": {"version": "1.2.3"}, "links": {"ints": [1, 2]}},
                        "capacity": {"memory": {"value": "40Gi"}}}]}}"""


def is_strict(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.forbid_unknown_fields


def test_a_slice_becomes_typed_values() -> None:
    decoded = decode(ResourceSlice, SLICE)
    device = decoded.spec.devices[0]
    assert decoded.metadata.version == 17
    assert decoded.spec.pool.generation == 3
    assert {name: attribute.value for name, attribute in device.attributes.items()} == {
        "model": "A100",
        "index": 0,
        "ecc": True,
        "driverVersion": "1.2.3",
        "links": (1, 2),
    }
    assert device.capacity["memory"].value == Quantity.parse("40Gi")


@pytest.fixture
def nothing_ignored_afterwards() -> Iterator[None]:
    yield
    ignore_fields(())


@pytest.mark.parametrize(("ignored", "most"), [((), 0), (("Pod.spec",), 600)])
def test_what_is_nested_too_deeply_is_not_looked_through_for_nulls(
    ignored: Sequence[str], most: int, monkeypatch: pytest.MonkeyPatch, nothing_ignored_afterwards: None
) -> None:
    """The claim cannot be decoded without them either, and 32 of its parameters have 54,400 levels together."""
    visits, kept = 0, decoding._kept

    def counted(*values: Any) -> Any:
        nonlocal visits
        visits += 1
        return kept(*values)

    ignore_fields(ignored)
    monkeypatch.setattr(decoding, "_kept", counted)
    deep: Any = None
    for _ in range(700):
        deep = {"a": deep}
    config = [{"opaque": {"driver": "d.example.com", "parameters": deep}}] * 32
    with pytest.raises(DecodeError, match="nested more than 500 levels deep"):
        convert(ResourceClaim, {"metadata": {"name": "c"}, "spec": {"devices": {"config": config}}})
    assert visits <= most


def test_so_many_labels_and_annotations_are_kept_and_no_more() -> None:
    many = {f"k{number:04}": "" for number in range(LABELS_OF_OBJECT + 1)}
    for given in (many, dict(islice(many.items(), LABELS_OF_OBJECT))):
        meta = convert(ResourceClaim, {"metadata": {"labels": given, "annotations": given}, "spec": {}}).metadata
        assert len(meta.labels) == len(meta.annotations) == LABELS_OF_OBJECT
        assert meta.labels.keys() | meta.annotations.keys() <= given.keys()


HINTS = ("ResourceSlice.spec.devices.hint", "ResourceSlice.spec.devices.attributes.*.hint", "ResourceClaim.spec.hint")


@pytest.mark.usefixtures("nothing_ignored_afterwards")
def test_a_field_that_is_to_be_ignored_is_left_out() -> None:
    plain = msgspec.json.decode(SLICE)
    plain["spec"]["devices"][0] |= {"hint": {"a": 1}, "nodeName": None}
    plain["spec"]["devices"][0]["attributes"]["model"]["hint"] = 1
    plain["spec"]["devices"][0]["attributes"]["hint"] = {"string": "an attribute"}
    ignore_fields(HINTS)
    (device,) = convert(ResourceSlice, plain).spec.devices
    assert device.attributes["model"].value == "A100"
    assert device.attributes["hint"].value == "an attribute"
    assert convert(ResourceClaim, {"metadata": {"name": "c"}, "spec": {"hint": 1}}).metadata.name == "c"


@pytest.mark.usefixtures("nothing_ignored_afterwards")
@pytest.mark.parametrize("where", ["pool", "devices"])
def test_a_field_of_the_same_name_elsewhere_is_not_ignored(where: str) -> None:
    plain = msgspec.json.decode(SLICE)
    (plain["spec"]["pool"] if where == "pool" else plain["spec"])["hint"] = 1
    ignore_fields(HINTS)
    with pytest.raises(DecodeError, match="unknown field `hint`"):
        convert(ResourceSlice, plain)


def test_null_stands_for_absent() -> None:
    pod = decode(
        Pod, b'{"metadata": {"name": "p", "creationTimestamp": null, "labels": null}, "spec": {"containers": null}}'
    )
    assert pod.metadata.labels == {}
    assert pod.spec.containers == ()


def test_numbers_are_quantities_too() -> None:
    node = decode(
        Node, b'{"metadata": {"name": "n"}, "status": {"allocatable": {"example.com/gpu": 4, "cpu": "1500m"}}}'
    )
    assert node.status.allocatable["example.com/gpu"] == Quantity.parse("4")
    assert node.status.allocatable["cpu"] == Quantity.parse("1.5")


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (
            ResourceSlice,
            SLICE.replace(b'"40Gi"', b'"40Gigs"'),
            ("ResourceSlice node-1-gpu", "40Gigs", "$.spec.devices"),
        ),
        (ResourceSlice, SLICE.replace(b'"40Gi"', b"true"), ("quantity", "text or a number")),
        (ResourceSlice, b'{"metadata": {"name": "s"}}', ("ResourceSlice s", "spec")),
        (ResourceClaim, b'{"metadata": {"namespace": "a", "name": 7}}', ("ResourceClaim a/7", "$.metadata.name")),
        (Pod, b"[]", ("Pod", "object")),
        (Pod, b'{"metadata"', ("Pod", "truncated")),
        (Pod, b"\xff", ("Pod",)),
    ],
)
def test_what_does_not_fit_is_named(kind: type, body: bytes, words: tuple[str, ...]) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(kind, body)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        (ResourceClaim, {"devices": {"requests": [{"name": "r", "exactly": {"inventedAttributes": []}}]}}, "invented"),
        (ResourceClaim, {"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "a", "x": 1}]}]}}, "x"),
        (ResourceClaim, {"devices": {"constraints": [{"sameAttribute": "a/b"}]}}, "sameAttribute"),
        (DeviceClass, {"selectors": [{"regex": "a"}]}, "regex"),
        (DeviceTaintRule, {"taint": {"key": "k", "effect": "NoSchedule"}, "deviceSelector": {"node": "n"}}, "node"),
        (ResourceSlice, {"driver": "d", "pool": {"name": "p"}, "compatibleWith": "x"}, "compatibleWith"),
        (
            ResourceSlice,
            {
                "driver": "d",
                "pool": {"name": "p"},
                "devices": [{"name": "a", "consumesCounters": [{"counterSet": "s", "inventedGroups": ["x"]}]}],
            },
            "inventedGroups",
        ),
    ],
)
def test_a_field_that_is_not_known_is_named_instead_of_being_ignored(
    kind: type, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(DecodeError, match=f"{kind.__name__} o: Object contains unknown field `{field}"):
        convert(kind, {"metadata": {"name": "o"}, "spec": spec})


def test_fields_that_change_no_decision_are_accepted_and_their_content_is_not_kept() -> None:
    spec = {
        "driver": "d",
        "pool": {"name": "p"},
        "devices": [
            {
                "name": "a",
                "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}},
            }
        ],
    }
    decoded = convert(ResourceSlice, {"metadata": {"name": "s"}, "spec": spec}).spec
    assert decoded.devices[0].node_allocatable_resource_mappings == IGNORED
    assert convert(ResourceSlice, to_builtins(ResourceSlice(ObjectMeta("s"), decoded))).spec == decoded


NEWER = {
    "Device": {"nodeAllocatableResources"},
    "DeviceCounterConsumption": {"compatibilityGroups"},
    "ResourceSliceSpec": {"skipNodeOperations", "partitionTypeAttribute"},
    "ExactDeviceRequest": {"derivedAttributes"},
    "DeviceSubRequest": {"derivedAttributes"},
    "DeviceDerivedAttribute": {"name", "expression"},
    "NodeAllocatableMapping": {"capacityKey", "capacityMultiplier", "deviceMultiplier"},
    "NodeAllocatableOverhead": {"perPod", "perContainer"},
    "NodeAllocatableResource": {"mapping", "overhead"},
}
"""Fields of Kubernetes 1.37."""


@pytest.mark.parametrize(
    "kind", [each for each in vars(resource).values() if is_strict(each) and not each.__subclasses__()]
)
def test_every_field_of_kubernetes_is_known(kind: type[StrictObject]) -> None:
    name = kind.__name__
    model = getattr(models, f"V1{name}", None) or getattr(models, f"V1beta2{name}", None)
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert known - NEWER.get(name, set()) == (set(model.attribute_map.values()) if model is not None else set())


def test_opaque_parameters_are_copied_verbatim_and_do_not_keep_the_message_alive() -> None:
    parameters = b'{"z": 1.50, "a": [1e3, 12345678901234567890123]}'
    body = (
        b'{"metadata": {"name": "c"}, "spec": {"config": [{"opaque": {"driver": "d", "parameters": %s}}]}}' % parameters
    )
    opaque = decode(DeviceClass, body).spec.config[0].opaque
    assert opaque is not None
    assert bytes(opaque.parameters) == parameters
    assert encode(opaque) == b'{"driver":"d","parameters":' + parameters + b"}"


def test_encoding_leaves_out_what_is_absent_and_prints_canonical_quantities() -> None:
    claim = convert(
        ResourceClaim,
        {
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "r",
                            "exactly": {"deviceClassName": "k", "capacity": {"requests": {"memory": "1024Mi"}}},
                        }
                    ]
                }
            },
        },
    )
    assert to_builtins(claim) == {
        "metadata": {"name": "c", "namespace": "n"},
        "spec": {
            "devices": {
                "requests": [
                    {"name": "r", "exactly": {"deviceClassName": "k", "capacity": {"requests": {"memory": "1Gi"}}}}
                ]
            }
        },
    }


def test_decoded_objects_cannot_be_changed() -> None:
    decoded = decode(ResourceSlice, SLICE)
    with pytest.raises(AttributeError):
        decoded.spec.driver = "other"  # type: ignore[misc]


def test_objects_of_the_watch_can_be_decoded_from_raw_parts() -> None:
    items = msgspec.json.decode(
        b'{"items": [%s, {"metadata": {"name": 1}}]}' % SLICE, type=dict[str, list[msgspec.Raw]]
    )
    good, bad = items["items"]
    assert decode(ResourceSlice, good).metadata.name == "node-1-gpu"
    with pytest.raises(DecodeError):
        decode(ResourceSlice, bad)


@pytest.mark.parametrize("start", [b"[", b'{"a":', b'{"metadata":{"labels":'])
def test_an_object_that_is_nested_without_end_is_refused_like_any_other(start: bytes) -> None:
    """Fuzzing the verbs found a RecursionError that went through to the server as a 500."""
    with pytest.raises(DecodeError):
        decode(Pod, start * 10_000)


def test_an_object_that_is_nested_without_end_is_named() -> None:
    deep = b'{"spec":' + b"[" * 10_000 + b"]" * 10_000 + b',"metadata":{"namespace":"a","name":"p"}}'
    with pytest.raises(DecodeError, match="Pod a/p: "):
        decode(Pod, deep)


def with_parameters(depth: int, *, allocated: bool) -> bytes:
    """A claim with opaque parameters that are nested so deeply; they are copied into an allocation."""
    nested = msgspec.Raw(b'{"a]":[' * (depth // 2) + b"[" * (depth % 2) + b"]" * (depth % 2) + b"]}" * (depth // 2))
    config = {"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": nested}}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    allocation = {"devices": {"config": [config], "results": [result]}}
    claim = {
        "metadata": {"name": "c", "namespace": "default", "uid": "u"},
        "spec": {"devices": {"config": [{"opaque": config["opaque"]}]}},
        "status": {"allocation": allocation} if allocated else {},
    }
    return msgspec.json.encode(claim)


def decodes(data: bytes) -> bool:
    try:
        decode(ResourceClaim, data)
    except DecodeError:
        return False
    return True


DEPTHS = [1, 2, DEPTH_OF_PARAMETERS, DEPTH_OF_PARAMETERS + 1, *range(900, 1010), 5_000]


def test_what_can_be_decoded_before_its_allocation_can_be_decoded_afterwards() -> None:
    """One level more decided it: a claim of 990 levels was allocated, and could not be decoded from then on."""
    before = {depth: decodes(with_parameters(depth, allocated=False)) for depth in DEPTHS}
    assert before == {depth: decodes(with_parameters(depth, allocated=True)) for depth in DEPTHS}
    assert before == {depth: depth <= DEPTH_OF_PARAMETERS for depth in DEPTHS}
    with pytest.raises(DecodeError, match="ResourceClaim default/c: opaque parameters are nested more than 500 levels"):
        decode(ResourceClaim, with_parameters(501, allocated=False))


@pytest.mark.parametrize("depth", [501, 995, 5_000])
def test_a_claim_that_another_allocator_has_allocated_holds_its_devices_however_deep_its_parameters_are(
    depth: int,
) -> None:
    found = partial_allocation(with_parameters(depth, allocated=True))
    assert found.complete
    assert [result.device for result in found.results] == ["d0"]


def affinity(terms: list[Any]) -> dict[str, Any]:
    """A pod's spec with these terms of required node affinity."""
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": wanted}}


def required(spec: PodSpec) -> NodeSelector:
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    found = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert found is not None
    return found


def test_so_many_tolerations_of_a_pod_are_kept_and_no_more() -> None:
    """60,000 take 8 MiB. A pod with more counts as too large to be nominated or preempted."""
    pod = convert(Pod, {"metadata": {"name": "p"}, "spec": {"tolerations": [{"operator": "Exists"}] * 60_000}})
    assert len(pod.spec.tolerations) == PARTS_OF_POD + 1


EXISTS = {"key": "a", "operator": "Exists"}
LONG = {"key": "a", "operator": "In", "values": ["ab"] * 60_000}


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"schedulingGates": [{"name": "a"}] * 60_000}, lambda spec: len(spec.scheduling_gates)),
        ({"nodeSelector": {str(number): "" for number in range(60_000)}}, lambda spec: len(spec.node_selector)),
        ({"containers": [{"ports": [{"hostPort": 1}] * 60_000}]}, lambda spec: len(spec.containers[0].ports)),
        (affinity([{"matchExpressions": [EXISTS]}] * 60_000), lambda spec: required(spec).size),
        (affinity([{"matchExpressions": [LONG]}]), lambda spec: required(spec).size),
    ],
)
def test_so_many_parts_of_a_pod_are_kept_and_no_more(spec: Any, kept: Callable[[PodSpec], int]) -> None:
    """One more than are compared with nodes, so that the pod counts as too large."""
    assert kept(convert(Pod, {"metadata": {"name": "p"}, "spec": spec}).spec) == PARTS_OF_POD + 1


def test_the_affinity_of_a_pod_that_is_not_too_large_is_kept() -> None:
    terms = [{"matchExpressions": [EXISTS]}] * PARTS_OF_POD
    assert required(convert(Pod, {"metadata": {"name": "p"}, "spec": affinity(terms)}).spec).size == PARTS_OF_POD


def test_of_many_ports_those_of_the_host_are_kept_first() -> None:
    ports = [*[{"containerPort": 1}] * 60_000, {"hostPort": 7}]
    pod = convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [{"ports": ports}]}})
    kept = [port.host_port for port in pod.spec.containers[0].ports]
    assert kept == [7, *[0] * PARTS_OF_POD]


def test_of_many_owners_the_controller_is_kept() -> None:
    """50,000 take 17 MiB."""
    owners = [*[{"uid": "b"}] * 50_000, {"uid": "a", "controller": True}]
    meta = convert(Pod, {"metadata": {"name": "p", "ownerReferences": owners}}).metadata
    assert [owner.uid for owner in meta.owner_references] == ["a"]


def test_so_many_capacity_requests_are_kept_and_no_more() -> None:
    """Of 40,000, which take 10 MiB, no device has more than 32."""
    capacity = {"requests": {f"c{number}": "1" for number in range(40_000)}}
    exactly = {"deviceClassName": "gpu", "capacity": capacity}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    kept = convert(ResourceClaim, {"metadata": {"name": "c"}, "spec": spec}).spec.devices.requests[0].exactly
    assert kept is not None
    assert kept.capacity is not None
    assert list(kept.capacity.requests) == [f"c{number}" for number in range(MAX_NAMES + 1)]
