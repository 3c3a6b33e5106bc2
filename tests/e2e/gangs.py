"""Gangs: what says that pods belong together, pods of gangs, and what has become of them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.case import Case
from tests.e2e.components import offered, release
from tests.e2e.controlplane import DRA_FEATURES, DRA_RUNTIME_CONFIG, ControlPlane
from tests.e2e.ground import Ground
from tests.e2e.skipping import skip_without
from tests.e2e.space import Body

GROUP = "scheduling.k8s.io"
ORDERS = int(os.environ.get("ORDERS", "3"))
"""So many orders of arrival are played; `make gangs FULL=1` plays more."""
QUIET_SECONDS = 10.0
"""How long nothing happens to a gang that does not fit. kube-scheduler tries pods again after 10 s at the latest."""

Marks = Callable[[Case, str, int], Body]
"""What the pods of a gang of this name and size have; makes the object that they refer to, if there is one."""


def version() -> str:
    """The version of PodGroups that the release serves."""
    return "v1alpha2" if release() < (1, 37) else "v1beta1"


@contextmanager
def plane_with_groups(
    directory: Path, gates: Mapping[str, bool], node_lifecycle: bool = False
) -> Iterator[ControlPlane]:
    """A second control plane: what is alpha stays out of all other tests."""
    skip_without(gates, offered(gates), "v{}.{}".format(*release()))
    versions = (*DRA_RUNTIME_CONFIG, f"{GROUP}/{version()}=true")
    offers = offered({**DRA_FEATURES, **gates})
    with ControlPlane(directory, feature_gates=offers, runtime_config=versions, node_lifecycle=node_lifecycle) as plane:
        yield plane


@contextmanager
def ground_with_groups(plane: ControlPlane) -> Iterator[Ground]:
    """The extender reserves claims for PodGroups."""
    with Ground(plane) as ground:
        ground.extender.stop()
        ground.extender.environment["DRA_EXTENDER_FEATURE_GATES"] = "DRAWorkloadResourceClaims=true"
        ground.extender.start()
        yield ground


def pod_group(case: Case, name: str, size: int, **spec: object) -> Body:
    """A PodGroup of Kubernetes."""
    spec = {"schedulingPolicy": {"gang": {"minCount": size}}, **spec}
    case.apply({"apiVersion": f"{GROUP}/{version()}", "kind": "PodGroup", "metadata": case.where(name), "spec": spec})
    return {"schedulingGroup": {"podGroupName": name}}


def annotation(case: Case, name: str, size: int) -> Body:
    """The annotations of this project."""
    return {"annotations": {"dra-extender.dev/gang": name, "dra-extender.dev/gang-size": str(size)}}


def kueue(case: Case, name: str, size: int) -> Body:
    """A plain pod group of Kueue."""
    return {
        "labels": {"kueue.x-k8s.io/pod-group-name": name},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(size)},
    }


def leader_worker_set(case: Case, name: str, size: int) -> Body:
    """The second group of a LeaderWorkerSet."""
    labels = {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/group-index": "1"}
    return {"labels": labels, "annotations": {"leaderworkerset.sigs.k8s.io/size": str(size)}}


def names(name: str, size: int) -> list[str]:
    return [f"{name}-{number}" for number in range(size)]


def members(case: Case, marks: Marks, name: str, size: int) -> list[str]:
    """A gang of pods with a claim for one device each."""
    given, pods = marks(case, name, size), names(name, size)
    for pod in pods:
        case.pod_with_claim(pod, **given)
    return pods


def holding(case: Case, claims: Sequence[str]) -> list[str]:
    """Those of the claims that are allocated, as the watch has them."""
    found = {claim.metadata.name for claim in case.ground.claims(case.name) if claim.allocation is not None}
    return [claim for claim in claims if claim in found]


def two_gangs(case: Case, marks: Marks, seed: int) -> None:
    """Two gangs of 8 pods, and 12 devices: one gang runs, and the other holds nothing until the first one ends."""
    for node in ("node-1", "node-2", "node-3"):
        case.publish(node, 4)
    pods = {name: names(name, 8) for name in ("a", "b")}
    order = [(name, pod) for name in pods for pod in pods[name]]
    random.Random(seed).shuffle(order)
    given = {name: marks(case, name, 8) for name in pods}
    for name, pod in order:
        case.pod_with_claim(pod, **given[name])
    first = case.ground.eventually(
        lambda: next((name for name in pods if len(case.bound(pods[name])) == 8), ""), "a complete gang"
    )
    (second,) = pods.keys() - {first}
    case.ground.eventually(
        lambda: any("fit together" in case.told(pod) for pod in pods[second]), "the refusal of the other"
    )
    assert case.bound(pods[second]) == []
    assert holding(case, pods[second]) == []
    for pod in pods[first]:
        case.delete_pod(pod)
        case.delete_claim(pod)
    case.until_runs(*pods[second])


# --- a GPU that is given as a whole or as two halves ------------------------------------------------------------------


def divisible(case: Case) -> None:
    """One GPU on node-1, as a whole or as two halves."""
    pool = {"name": "gpus", "generation": 1, "resourceSliceCount": 2}
    where = {"driver": case.driver, "nodeName": "node-1", "pool": pool}
    sets = [{"name": "gpu", "counters": {"units": {"value": "2"}}}]
    parts = [_part("whole", "whole", "2"), _part("half-0", "half", "1"), _part("half-1", "half", "1")]
    for name, content in {"sets": {"sharedCounters": sets}, "parts": {"devices": parts}}.items():
        meta, spec = {"name": f"{case.name}-{name}"}, {**where, **content}
        case.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec})


def _part(name: str, kind: str, units: str) -> Body:
    consumes = [{"counterSet": "gpu", "counters": {"units": {"value": units}}}]
    return {"name": name, "attributes": {"kind": {"string": kind}}, "consumesCounters": consumes}


def whole_or_half(case: Case, name: str) -> None:
    """A claim that prefers the whole GPU."""

    def wish(kind: str) -> Body:
        expression = f"device.attributes['{case.driver}'].kind == '{kind}'"
        return {"name": kind, "deviceClassName": case.name, "selectors": [{"cel": {"expression": expression}}]}

    case.claim(name, {"name": "r", "firstAvailable": [wish("whole"), wish("half")]})
