"""The pods that fight for the devices: who schedules each, what it asks for and how it ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from embedded_cluster.kubelet import RUN_SECONDS

NAMESPACE = "default"
DRIVER = CLASS = "gpu.example.com"
TEMPLATE = "one-device"
API = "resource.k8s.io/v1"
Body = dict[str, Any]

_BLOCKS = ("own", "template", "pair", "own", "shared", "own", "template", "own")
"""What a block of pods, one per scheduler, asks for, in turn: two claims in three are the pod's own (by name or from a
template), one in eight wants two devices of one node, one in eight is shared by the pods of three schedulers.
"""


class Entrant(msgspec.Struct, frozen=True):
    """A pod. `claim` is the one it names, empty when it has a template's; `makes_claim`: the claim does not exist yet.

    `completes`: it ends by itself, otherwise it is deleted while it runs. Those that share a claim are deleted: when
    one has completed and another one goes on, the claim controller of 1.36 reserves the claim for the completed one
    (syncPod) and takes that back (syncClaim), in turns and for ever, and that would be a contest of its own.
    """

    name: str
    scheduler: str
    claim: str
    devices: int
    makes_claim: bool
    completes: bool


def entrants(number: int, schedulers: Sequence[str]) -> list[Entrant]:
    """So many pods, spread evenly over the schedulers."""
    made = []
    for index in range(number):
        block, place = divmod(index, len(schedulers))
        kind = _BLOCKS[block % len(_BLOCKS)]
        name = f"pod-{index:04}"
        made.append(
            Entrant(
                name=name,
                scheduler=schedulers[place],
                claim={"template": "", "shared": f"shared-{block:04}"}.get(kind, name),
                devices=2 if kind == "pair" else 1,
                makes_claim=kind != "template" and (kind != "shared" or place == 0),
                completes=kind != "shared" and (block + place) % 2 == 0,
            )
        )
    return made


def pod(entrant: Entrant) -> Body:
    named = {"resourceClaimName": entrant.claim} if entrant.claim else {"resourceClaimTemplateName": TEMPLATE}
    # The kubelet counts whole seconds from a start that is cut to one: on average half a second is left.
    annotations = {RUN_SECONDS: "1"} if entrant.completes else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": entrant.name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "schedulerName": entrant.scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
            "resourceClaims": [{"name": "devices", **named}],
        },
    }


def claim(entrant: Entrant) -> Body:
    metadata = {"name": entrant.claim, "namespace": NAMESPACE}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": _spec(entrant.devices)}


def template() -> Body:
    metadata = {"name": TEMPLATE, "namespace": NAMESPACE}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": _spec(1)}}


def _spec(devices: int) -> Body:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": CLASS, "count": devices}}]}}


def device_class() -> Body:
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": {"selectors": selectors}}


def resource_slice(node: str, devices: int) -> Body:
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{index}"} for index in range(devices)],
    }
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"}, "spec": spec}
