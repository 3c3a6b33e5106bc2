"""The misfits of misfits.yaml and misfits-datacentre.yaml as structs, and as manifests in a namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from tests.support import yamlfiles
from tests.support.diagnosis.datacentre import datacentre
from tests.support.diagnosis.hardware import cluster
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]

POD: Final = "misfit"
_CONTAINER: Final[Json] = {"name": "main", "image": "none"}


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pod that runs before. `shared`: the name of its claim, when others name it too; `template`: of the template
    that its claim is made from. `job`: a Job made it.
    """

    name: str
    claim: Json | None = None
    shared: str = ""
    template: str = ""
    priority: int | None = None
    job: bool = False
    pod: Json = {}


class Misfit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See misfits.yaml. `pure`: why it does not run on the embedded cluster; `among`: instead of `remedy`. `says`:
    parts of the reason; `then`: remedies that follow the first one in this order. `place`: a key of `CLUSTERS`.
    """

    name: str
    rule: str
    claims: dict[str, Json] = {}
    templates: dict[str, Json] = {}
    pod: Json = {}
    holders: tuple[Holder, ...] = ()
    objects: tuple[Json, ...] = ()
    remedy: str = ""
    among: str = ""
    pure: str = ""
    says: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    place: str = "misfits"

    def scene(self) -> Scene:
        """The cluster with the holders running and the misfit waiting."""
        return Scene([*CLUSTERS[self.place](), *self.before("default")]).settled().with_more(self.after("default"))

    def before(self, namespace: str) -> list[Json]:
        """The holders with their claims."""
        return [document for holder in self.holders for document in _holder(holder, namespace)]

    def after(self, namespace: str) -> list[Json]:
        """The pod, its claims and templates."""
        entries = [{"name": name, "resourceClaimName": name} for name in self.claims]
        entries += [{"name": name, "resourceClaimTemplateName": name} for name in self.templates]
        found = [_object("ResourceClaim", name, namespace, spec) for name, spec in self.claims.items()]
        found += [
            _object("ResourceClaimTemplate", name, namespace, {"spec": spec}) for name, spec in self.templates.items()
        ]
        found += [_in(namespace, item) for item in self.objects]
        spec = {"resourceClaims": entries} if entries else {}
        return [*found, _pod(POD, namespace, spec | self.pod)]


def _in(namespace: str, item: Json) -> Json:
    """The object in the namespace, unless it belongs to the cluster."""
    if item["kind"] in ("DeviceTaintRule", "DeviceClass", "ResourceSlice", "Node"):
        return item
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


def _object(kind: str, name: str, namespace: str, spec: Json) -> Json:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}


def _pod(name: str, namespace: str, spec: Json) -> Json:
    body = {"schedulerName": "dra-scheduler", "containers": [_CONTAINER], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": body}


def _holder(holder: Holder, namespace: str) -> list[Json]:
    found: list[Json] = []
    spec: Json = {}
    if holder.claim is not None and holder.template:
        found.append(_object("ResourceClaimTemplate", holder.template, namespace, {"spec": holder.claim}))
        spec["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": holder.template}]
    elif holder.claim is not None:
        claim = holder.shared or f"of-{holder.name}"
        found.append(_object("ResourceClaim", claim, namespace, holder.claim))
        spec["resourceClaims"] = [{"name": "c", "resourceClaimName": claim}]
    if holder.priority is not None:
        spec["priority"] = holder.priority
    made = _pod(holder.name, namespace, spec | holder.pod)
    if holder.job:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": holder.name, "uid": holder.name, "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
    return [*found, made]


def _read(place: str) -> tuple[Misfit, ...]:
    found = msgspec.convert(yamlfiles.read(Path(__file__).with_name(f"{place}.yaml")), tuple[Misfit, ...])
    return tuple(msgspec.structs.replace(misfit, place=place) for misfit in found)


CLUSTERS: Final = {"misfits": cluster, "misfits-datacentre": datacentre}
"""By file: what exists before any pod does."""
MISFITS: Final = tuple(misfit for place in CLUSTERS for misfit in _read(place))
