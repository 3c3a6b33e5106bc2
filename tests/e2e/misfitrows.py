"""The misfits of a file on a control plane of their own: what a row needs is created, and deleted after it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final

from dra_extender.insight.why.diagnosis import ADMIN_LABEL
from embedded_cluster.manifests import path_of
from tests.e2e.ground import Ground
from tests.e2e.space import Body, Space
from tests.support.diagnosis.misfits import POD, Misfit

EVERYWHERE: Final = ("DeviceClass", "DeviceTaintRule", "ResourceSlice")
"""Kinds of objects that change what other pods are told."""
LOW: Final = "low-priority"


class Row(Space):
    """A misfit in a namespace of its own."""

    def __init__(self, ground: Ground, number: int, misfit: Misfit) -> None:
        super().__init__(ground, f"misfit-{number:03}")
        self.misfit = misfit
        self.pod = self.key(POD)

    @property
    def alone(self) -> bool:
        """Whether it changes what other pods are told."""
        allocated = any(item["kind"] in EVERYWHERE or "status" in item for item in self.misfit.objects)
        return allocated or bool(self.misfit.holders)

    @property
    def listed(self) -> bool:
        """Whether lists of pods that use devices have it: not if nobody provides the resource that it asks for."""
        return self.misfit.rule != "resource"

    def said(self, text: str) -> str:
        """A text of the row as it is in this namespace."""
        return text.replace("default/", f"{self.name}/").replace("NAMESPACE/", f"{self.name}/")

    def make(self) -> None:
        """The pods that run before, and the pod that waits. The service knows it when this returns."""
        before = self.misfit.before(self.name)
        create(self.ground, before)
        self.until_runs(*(holder.name for holder in self.misfit.holders))
        create(self.ground, self.misfit.after(self.name))
        known = f"/insight/diagnosis?pod={self.pod}"
        self.ground.eventually(lambda: self.ground.extender.status(known) == 200, f"an answer about {self.pod}")

    def unmake(self) -> None:
        """Everything that `make` made, except the namespace, is gone when this returns."""
        self.ground.delete(f"/api/v1/namespaces/{self.name}/pods", gracePeriodSeconds=0)
        self.ground.eventually(lambda: not self.ground.pods(self.name), f"the end of the pods of {self.name}")
        claims = f"/apis/resource.k8s.io/v1/namespaces/{self.name}/resourceclaims"
        self.ground.delete(claims)
        for item in self.misfit.objects:
            if "finalizers" in item["metadata"]:
                self.ground.patch(f"{claims}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
        self.ground.eventually(lambda: not self.ground.claims(self.name), f"the end of the claims of {self.name}")
        for item in self.misfit.objects:
            if item["kind"] in EVERYWHERE:
                self.ground.delete(path_of(item))


def prepare(ground: Ground, rows: Sequence[Row]) -> None:
    """The namespaces, with the accounts that pods need."""
    labels = {ADMIN_LABEL: "true"}
    for row in rows:
        ground.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": row.name, "labels": labels}})

    def have_accounts() -> bool:
        listed = ground.get("/api/v1/serviceaccounts")["items"]
        return {row.name for row in rows} <= {item["metadata"]["namespace"] for item in listed}

    ground.eventually(have_accounts, "the service accounts")


def create(ground: Ground, documents: Sequence[Body]) -> None:
    """Create the objects as people and drivers would: a status is written, and an object with a time of deletion is
    deleted. A pod of a Job has one that exists.
    """
    for document in map(copy.deepcopy, documents):
        meta, status = document["metadata"], document.pop("status", None)
        deleted = meta.pop("deletionTimestamp", None)
        for owner in meta.get("ownerReferences", ()):
            owner["uid"] = _job(ground, meta["namespace"], owner["name"])
        if document.get("spec", {}).pop("priority", None) is not None:
            document["spec"]["priorityClassName"] = LOW
        ground.apply(document)
        path = path_of(document)
        if status is not None:
            ground.patch(f"{path}/status", {"status": status})
        if deleted is not None:
            ground.delete(path)


def _job(ground: Ground, namespace: str, name: str) -> str:
    """The UID of a Job that no controller of the cluster manages: it would release the pod."""
    container = {"name": "main", "image": "none"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace}}
    stored = ground.apply(job | {"spec": {"managedBy": "example.com/nobody", "template": template}})[0]
    return str(stored["metadata"]["uid"])
