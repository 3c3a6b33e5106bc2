"""The misfits of misfits.yaml as structs, and as manifests in a namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from tests.support.diagnosis.hardware import cluster
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]

POD: Final = "misfit"
_CONTAINER: Final[Json] = {"name": "main", "image": "none"}


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pod that runs before. `shared`: the name of its claim, when others name it too; `template`: of the template
    that its claim is made from.
    """

    name: str
    claim: Json | None = None
    shared: str = ""
    template: str = ""
    priority: int | None = None
    pod: Json = {}


class Misfit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See misfits.yaml. `pure`: why it does not run on the embedded cluster; `among`: instead of `remedy`."""

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

    def scene(self) -> Scene:
        """The cluster with the holders running and the misfit waiting."""
        return Scene([*cluster(), *self.before("default")]).settled().with_more(self.after("default"))

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
        found += [{**item, "metadata": {**item["metadata"], "namespace": namespace}} for item in self.objects]
        spec = {"resourceClaims": entries} if entries else {}
        return [*found, _pod(POD, namespace, spec | self.pod)]


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
    return [*found, _pod(holder.name, namespace, spec | holder.pod)]


def _read() -> tuple[Misfit, ...]:
    text = Path(__file__).with_name("misfits.yaml").read_text()
    return tuple(msgspec.convert(yaml.safe_load(text), tuple[Misfit, ...]))


MISFITS: Final = _read()
