"""What all controllers of sets of pods decide in the same way.

Rules: Kubernetes 1.36, pkg/controller/controller_utils.go (FilterActivePods, ActivePods, ComputeHash) and
apimachinery/pkg/util/intstr. Pure functions. Different from there: pods are not ranked by what else runs on their
nodes, and the hash is another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from dra_extender.api.meta import ObjectMeta
from embedded_cluster.objects import FullPod, PodTemplate, controlled_by

HASH_LABEL: Final = "pod-template-hash"


def active(pods: Iterable[FullPod]) -> list[FullPod]:
    """Those that have not ended and are not being deleted."""
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None and not pod.finished]


def deletion_order(pod: FullPod) -> tuple[bool, bool, int]:
    """Sorts those that go first before others: not bound, then not running, then the newest."""
    return bool(pod.spec.node_name), pod.status.phase == "Running", -pod.metadata.version


def template_hash(template: PodTemplate) -> str:
    """What pods are made from as a short text, metadata included, without the label that carries the text."""
    labels = {key: value for key, value in template.metadata.labels.items() if key != HASH_LABEL}
    told = labels, template.metadata.annotations, msgspec.json.decode(template.spec)
    # Equal templates may be written with their fields in another order.
    return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()[:10]


def scaled(told: int | str, total: int, *, up: bool) -> int:
    """A number of pods, or a percentage of a total, which is rounded `up` or down."""
    if isinstance(told, int):
        return told
    percent = int(told.removesuffix("%")) * total
    return -(-percent // 100) if up else percent // 100


def pod_of(kind: str, owner: ObjectMeta, template: Mapping[str, Any], api_version: str = "apps/v1") -> dict[str, Any]:
    """A pod made from a template (`metadata` and `spec`) by its controller, ready to be encoded."""
    metadata = {
        "generateName": f"{owner.name}-",
        "namespace": owner.namespace,
        "ownerReferences": [controlled_by(kind, owner, api_version)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | template["metadata"],
        "spec": template["spec"],
    }
