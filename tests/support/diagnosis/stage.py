"""A state as the service sees it, to diagnose one pod in, with the work of each turn counted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import UNDECODABLE, convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dra_extender.insight.manifests import defaulted
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.turns import query_budgets
from dra_extender.scheduling.view import View
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.scene import view_of
from tests.support.simulation.objects import DRIVER, Json, KubernetesObject

POD: Final = "p"
"""The one to diagnose."""


def served(objects: Iterable[KubernetesObject]) -> View:
    """The state of a service with these objects, whose questions have the budgets of a service."""
    config = SchedulingConfig()
    return view_of(objects, FeatureGates(), config, budgets=partial(query_budgets, WorkerReplies(), config))


# --- the hostile things of the catalogue ------------------------------------------------------------------------------

_KINDS: Final[dict[str, Any]] = {
    "Node": Node,
    "Pod": Pod,
    "ResourceClaim": ResourceClaim,
    "ResourceSlice": ResourceSlice,
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
}
_GROUND: Final = 8


def hostile(bodies: Iterable[Json]) -> Iterator[KubernetesObject]:
    """These objects among ordinary nodes; the pod is the first of them. What cannot be decoded is not there."""
    yield convert(DeviceClass, device_class(DRIVER, f"device.driver == '{DRIVER}'"))
    for number in range(_GROUND):
        yield convert(Node, node(f"node-{number + 1}"))
        model = "H100" if number % 4 == 0 else "A100"
        yield convert(ResourceSlice, gpus(f"node-{number + 1}", model, 8, "40Gi", "1.0.0"))
    pods = 0
    for body in bodies:
        meta = body["metadata"]
        if body["kind"] not in _KINDS:
            continue  # not watched
        if body["kind"] == "Pod":
            name = f"other-{pods}" if pods else POD
            meta, pods = {**meta, "namespace": "default", "name": name}, pods + 1
        elif "namespace" in meta:
            meta = {**meta, "namespace": "default"}
        with contextlib.suppress(*UNDECODABLE):
            found = convert(_KINDS[body["kind"]], {**body, "metadata": {"uid": f"uid-{meta['name']}", **meta}})
            yield (
                msgspec.structs.replace(found, spec=defaulted(found.spec)) if body["kind"] == "ResourceClaim" else found
            )
