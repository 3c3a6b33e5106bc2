"""Pods as the scheduler keeps them: typed for its own use, and whole for the extenders."""

from __future__ import annotations

import msgspec

from dra_extender.api.decoding import decode
from dra_extender.api.meta import ObjectMeta
from dra_extender.kube.resources import Resource
from embedded_cluster.objects import PODS, FullPod


class PodRecord(msgspec.Struct, frozen=True):
    """A pod, and its JSON as served while it has no node (extenders are asked about pods without a node only)."""

    pod: FullPod
    raw: bytes

    @property
    def metadata(self) -> ObjectMeta:
        return self.pod.metadata


def _decode(data: bytes | msgspec.Raw) -> PodRecord:
    pod = decode(FullPod, data)
    return PodRecord(pod, b"" if pod.spec.node_name else bytes(data))


def pod_records() -> Resource[PodRecord]:
    """The pods resource, decoded into records."""
    return Resource(PODS.group, PODS.version, PODS.plural, PODS.kind, _decode, namespaced=True)
