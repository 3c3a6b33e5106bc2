"""A hostile thing: which family it is of, and what has to be done to the cluster or the service for it to happen.

Pure data. `generated`: everything in it was drawn at random.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

Body = dict[str, Any]

HOSTILE, ORDINARY = "hostile", "ordinary"
"""Namespaces: of the hostile things, and of the pods that must not suffer."""
DRIVER: Final = "gpu.example.com"
"""The driver whose devices ordinary pods use; its class has the same name."""
SCHEDULER: Final = "dra-scheduler"
API: Final = "resource.k8s.io/v1"
MOST_BYTES: Final = 3 * 2**19
"""What etcd takes of one object (--max-request-bytes): 1.5 MiB."""


class Objects(msgspec.Struct, frozen=True):
    """Objects to create in this order; the reasons of their pods are read afterwards. While they are there, the
    watches of `relisted` end, so that all objects of that kind are listed, and these pages of insight are asked for.
    Then the claim and pod of `other`, in another namespace, are created: an event has to say why the pod does not fit.
    """

    bodies: tuple[Body, ...]
    relisted: str = ""
    pages: tuple[str, ...] = ()
    other: tuple[Body, ...] = ()


class Lines(msgspec.Struct, frozen=True):
    """What the API server writes into every watch of this kind of objects."""

    resource: str
    lines: tuple[bytes, ...]


class Burst(msgspec.Struct, frozen=True):
    """So many writes to the status of one claim, one after the other."""

    writes: int


class Attack(msgspec.Struct, frozen=True):
    """What clients do to a listener of the service. `connections` of them send `sent` each, in pieces of `piece` bytes
    with `pause` seconds between them, and stay for `stay` seconds without reading. `door` is verbs or insight. `half`:
    they say that they send no more; `raw`: they do not speak TLS where the door does.
    """

    door: str
    connections: int
    sent: bytes = b""
    piece: int = 2**16
    pause: float = 0.0
    stay: float = 2.0
    again: int = 1
    """How often what is sent is sent."""
    half: bool = False
    raw: bool = False


Act = Objects | Lines | Burst | Attack


class Thing(msgspec.Struct, frozen=True):
    """One hostile input. `generated`: it was drawn from dice."""

    family: str
    name: str
    act: Act
    generated: bool = False


def pod(name: str, *claims: str, **metadata: Any) -> Body:
    """A pod that uses these claims."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": HOSTILE, **metadata},
        "spec": {
            "schedulerName": SCHEDULER,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
            "resourceClaims": [{"name": f"c{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)],
        },
    }


def claim(name: str, *requests: Body, **devices: Any) -> Body:
    """A claim with these requests; more fields of its `devices` by keyword."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": HOSTILE},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def request(name: str = "r", *selectors: str, cls: str = DRIVER, **exactly: Any) -> Body:
    """A request for devices that match all selectors."""
    return {"name": name, "exactly": wish(*selectors, cls=cls, **exactly)}


def wish(*selectors: str, cls: str = DRIVER, **fields: Any) -> Body:
    """The content of `exactly`, or of an alternative."""
    made: Body = {"deviceClassName": cls, **fields}
    if selectors:
        made["selectors"] = [{"cel": {"expression": selector}} for selector in selectors]
    return made


def resource_slice(name: str, node: str, devices: list[Body], **spec: Any) -> Body:
    """The only slice of a pool of a hostile driver on a node of ours."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    content: Body = {"driver": "hostile.example.com", "nodeName": node, "pool": pool, **spec}
    if devices:
        content["devices"] = devices
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": content}


def device_class(name: str, *selectors: str, **spec: Any) -> Body:
    made: Body = {"selectors": [{"cel": {"expression": selector}} for selector in selectors], **spec}
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": made}


def with_pod(name: str, *bodies: Body) -> Objects:
    """These objects, and a pod that uses every claim among them."""
    claims = [body["metadata"]["name"] for body in bodies if body["kind"] == "ResourceClaim"]
    return Objects((*bodies, pod(name, *claims)))
