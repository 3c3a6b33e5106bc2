"""A cluster and a pod from manifests, the diagnosis of the pod, and the manifests after a remedy.

A remedy is applied to the manifests as JSON, as a reader of `changes` would do it, and never to the structs that it
was found with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import msgspec

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates, Release
from dra_extender.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.manifests import defaulted
from dra_extender.insight.why import diagnosis
from dra_extender.insight.why.report import Change, Diagnosis, Remedy
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extended import ResourceNames
from dra_extender.scheduling.feasibility import NodeAllocation, allocate_pod, node_statuses, pre_filter
from dra_extender.scheduling.turns import Turns
from dra_extender.scheduling.view import View
from tests.support.questions import diagnose

Json = dict[str, Any]

_KINDS: dict[str, Any] = {
    "Node": Node,
    "ResourceSlice": ResourceSlice,
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
    "ResourceClaim": ResourceClaim,
    "Pod": Pod,
}


def copied(value: Any) -> Any:
    """A copy of what JSON is made of. `copy.deepcopy` takes six times as long."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    return [copied(each) for each in value] if isinstance(value, list) else value


def _no_remedies(*_: Any) -> Turns[tuple[Remedy, ...]]:
    yield from ()
    return ()


class Stopped:
    """A clock at the beginning of time."""

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


def view_of(objects: Iterable[Any], features: FeatureGates, config: SchedulingConfig, **more: Any) -> View:
    """The state as the service sees it, with these objects and no bind under way."""
    cluster, clock = Cluster(features), Stopped()
    for item in objects:
        cluster.apply(Applied(item))
    return View(
        cluster=cluster,
        decisions=Decisions(cluster, share_ids=lambda: "00000000-0000-4000-8000-000000000000"),
        pods=cluster.pods,
        clock=clock,
        config=config,
        resources=ResourceNames(cluster.classes, clock, config),
        **more,
    )


class Scene:
    """Objects as JSON; claims from templates are made as a cluster would."""

    def __init__(
        self,
        documents: Iterable[Json],
        *,
        gates: str = "",
        release: Release = "1.36",
        config: SchedulingConfig | None = None,
    ) -> None:
        self.documents = [_placed(copied(document)) for document in documents]
        self.features = FeatureGates.parse(gates, release)
        self.config = config or SchedulingConfig()

    def served_by(self, *schedulers: str) -> Scene:
        """The same, where only these schedulers call the service."""
        found = self._with(self.documents)
        found.config = SchedulingConfig(scheduler_names=frozenset(schedulers))
        return found

    def _with(self, documents: Iterable[Json]) -> Scene:
        found = Scene(documents, config=self.config)
        found.features = self.features
        return found

    def view(self) -> View:
        return view_of(self._objects(), self.features, self.config)

    def _objects(self) -> Iterator[Any]:
        for document in (*self.documents, *self._made()):
            kind = _KINDS.get(document["kind"])
            if kind is Pod:
                yield self._pod(document)
            elif kind is not None:
                found = convert(kind, document)
                claim = isinstance(found, ResourceClaim)
                yield msgspec.structs.replace(found, spec=defaulted(found.spec)) if claim else found

    def diagnose(self, name: str, namespace: str = "default") -> Diagnosis:
        view = self.view()
        pod = view.pods.named(namespace, name)
        assert pod is not None, f"no pod {namespace}/{name}"
        return diagnose(view, pod)

    def fits(self, name: str) -> bool:
        """Whether a diagnosis finds nodes for the pod. It looks for no remedies."""
        with mock.patch.object(diagnosis, "remedies", _no_remedies):
            return self.diagnose(name).state == "fits"

    def filtered(self, name: str, nodes: Sequence[str]) -> int:
        """How many of these nodes the verb filter returns for the pod."""
        view = self.view()
        pod = view.pods.named("default", name)
        assert pod is not None
        return len(node_statuses(view.with_pod(pod), pre_filter(view, pod), nodes).fits)

    def after(self, remedy: Remedy) -> Scene:
        """The same with the remedy applied."""
        documents = copied(self.documents)
        for change in remedy.changes:
            apply(documents, change)
        return self._with(documents)

    def with_more(self, documents: Iterable[Json]) -> Scene:
        return self._with([*self.documents, *documents])

    def settled(self) -> Scene:
        """With every pod that fits bound to the first node that it fits, one after the other."""
        scene = self._with(self.documents)
        for pod in [item for item in scene.documents if item["kind"] == "Pod" and not item["spec"].get("nodeName")]:
            scene._bind(pod)
        return scene

    def _bind(self, document: Json) -> None:
        view, meta = self.view(), document["metadata"]
        pod = view.pods.named(meta["namespace"], meta["name"])
        found = self.diagnose(meta["name"], meta["namespace"])
        assert pod is not None and found.state == "fits", found.summary
        decision = allocate_pod(view, pod, found.examples[0])
        assert isinstance(decision, NodeAllocation), decision
        document["spec"]["nodeName"] = found.examples[0]
        user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        for claim, allocation in zip(decision.pending, decision.allocations, strict=True):
            key = claim.metadata.namespace, claim.metadata.name
            if key not in self._claims():
                self.documents.extend(made for made in self._made() if _key(made) == key)
            stored = self._claims()[key]
            stored["status"] = {"allocation": to_builtins(allocation), "reservedFor": [user]}

    def _claims(self) -> dict[tuple[str, str], Json]:
        return {_key(item): item for item in self.documents if item["kind"] == "ResourceClaim"}

    def _made(self) -> list[Json]:
        """The claims of pods from templates."""
        templates = {_key(item): item for item in self.documents if item["kind"] == "ResourceClaimTemplate"}
        found: list[Json] = []
        for pod in self.documents:
            for entry, template in _templated(pod):
                known = templates.get((pod["metadata"]["namespace"], template))
                meta = pod["metadata"]
                if known is not None and (meta["namespace"], f"{meta['name']}-{entry}") not in self._claims():
                    owner = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
                    name = f"{meta['name']}-{entry}"
                    made = {
                        "name": name,
                        "namespace": meta["namespace"],
                        "uid": f"claim-{name}",
                        "ownerReferences": [owner | {"controller": True}],
                    }
                    found.append({"kind": "ResourceClaim", "metadata": made, "spec": known["spec"]["spec"]})
        return found

    def _pod(self, document: Json) -> Pod:
        templates = {_key(item) for item in self.documents if item["kind"] == "ResourceClaimTemplate"}
        name, namespace = document["metadata"]["name"], document["metadata"]["namespace"]
        made = [
            {"name": entry, "resourceClaimName": f"{name}-{entry}"}
            for entry, template in _templated(document)
            if (namespace, template) in templates
        ]
        status = document.get("status", {}) | {"resourceClaimStatuses": made}
        return convert(Pod, document | {"status": status})


def _placed(document: Json) -> Json:
    meta = document.setdefault("metadata", {})
    if document["kind"] in ("Pod", "ResourceClaim", "ResourceClaimTemplate"):
        meta.setdefault("namespace", "default")
    meta.setdefault("uid", f"{document['kind'].lower()}-{meta['name']}")
    return document


def _key(document: Json) -> tuple[str, str]:
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]


def _templated(document: Json) -> list[tuple[str, str]]:
    """(entry, template)"""
    if document["kind"] != "Pod":
        return []
    entries = document["spec"].get("resourceClaims", ())
    return [(e["name"], e["resourceClaimTemplateName"]) for e in entries if "resourceClaimTemplateName" in e]


# --- changes ----------------------------------------------------------------------------------------------------------


def apply(documents: list[Json], change: Change) -> None:
    """Make the change to the manifests."""
    if change.kind == "node added":
        _add_node(documents, change)
        return
    document = next(d for d in documents if d["kind"] == change.object and _key(d) == (change.namespace, change.name))
    if change.op in ("delete", "wait"):
        documents.remove(document)
        if change.object == "Pod":
            release(documents, document)
        return
    if change.kind == "uncordon":
        apply_to_node(document, unschedulable=change.value)
    elif change.kind == "claim made again":
        document.pop("status", None)
        del document["metadata"]["deletionTimestamp"]
        document["metadata"]["uid"] += "-again"
        document |= change.value
    else:
        patch(document, change.op, change.path, change.value)


def apply_to_node(document: Json, *, unschedulable: bool) -> None:
    """What `kubectl uncordon` does, and then the node controller, which takes its taint away."""
    spec = document["spec"]
    spec["unschedulable"] = unschedulable
    spec["taints"] = [item for item in spec.get("taints", ()) if item["key"] != "node.kubernetes.io/unschedulable"]


def patch(document: Json, op: str, path: str, value: Any) -> None:
    """One operation of a JSON patch; objects on the way are made where they are missing."""
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    place: Any = document
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    key = int(last) if isinstance(place, list) else last
    if op == "remove":
        del place[key]
    else:
        place[key] = value


def release(documents: list[Json], pod: Json) -> None:
    """What controllers do when a pod is gone: its claims lose the consumer, and their devices with the last one."""
    for claim in [item for item in documents if item["kind"] == "ResourceClaim"]:
        status = claim.get("status", {})
        users = [user for user in status.get("reservedFor", ()) if user["uid"] != pod["metadata"]["uid"]]
        if len(users) < len(status.get("reservedFor", ())):
            claim["status"] = status | {"reservedFor": users} if users else {}


def _add_node(documents: list[Json], change: Change) -> None:
    """One more node like another, with the same devices."""
    for document in list(documents):
        made = copied(document)
        if document["kind"] == "Node" and document["metadata"]["name"] == change.like:
            made["metadata"] |= {"name": change.name, "uid": f"uid-{change.name}"}
            documents.append(made)
        if document["kind"] == "ResourceSlice" and document["spec"].get("nodeName") == change.like:
            made["metadata"] |= {
                "name": f"{made['metadata']['name']}-{change.name}",
                "uid": f"{made['metadata']['uid']}-{change.name}",
            }
            made["spec"] |= {"nodeName": change.name}
            made["spec"]["pool"] = {**made["spec"]["pool"], "name": f"{made['spec']['pool']['name']}-{change.name}"}
            documents.append(made)


def shown(remedies: Sequence[Remedy]) -> str:
    """For messages of tests."""
    return "\n".join(f"  {remedy.short!r}: {remedy.text}" for remedy in remedies)
