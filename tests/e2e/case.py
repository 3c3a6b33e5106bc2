"""One test's part of the cluster: a namespace, a driver and a device class of its own, on nodes shared with others."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dra_extender.api.errors import NotFoundError, RejectedError
from tests.e2e.ground import SCHEDULER, Ground
from tests.e2e.space import Body, Space


class Case(Space):
    """Its namespace, and builders of what is in it."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground, f"case-{uuid.uuid4().hex[:8]}")
        self.driver = f"{self.name}.example.com"
        self._path = f"/api/v1/namespaces/{self.name}"
        self._cluster_wide: list[str] = []
        self._generation = 0

    def set_up(self) -> None:
        self.ground.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
        self.device_class(self.name)
        # Pods need the namespace's service account, which a controller makes.
        self.ground.eventually(lambda: self._exists(f"{self._path}/serviceaccounts/default"), "the service account")

    def alone(self) -> None:
        """Wait until what other tests left behind is gone, so that nothing but this test wakes anybody."""

        def others() -> bool:
            listed = self.ground.get("/api/v1/namespaces")["items"]
            return any(item["metadata"]["name"].startswith("case-") for item in listed if not self._is_mine(item))

        self.ground.eventually(lambda: not others(), "the end of other namespaces")
        time.sleep(2)  # the last deletions and the events about them

    def _is_mine(self, namespace: Body) -> bool:
        return bool(namespace["metadata"]["name"] == self.name)

    def tear_down(self) -> None:
        self.ground.delete(f"{self._path}/pods", gracePeriodSeconds=0)
        for path in self._cluster_wide:
            self.ground.delete(path)
        self.ground.delete(self._path)

    def _exists(self, path: str) -> bool:
        try:
            return bool(self.ground.get(path))
        except NotFoundError:
            return False

    # --- making

    def apply(self, *documents: Body) -> list[Body]:
        """Apply; what is cluster-wide is deleted at the end."""
        plural = {"DeviceClass": "deviceclasses", "PriorityClass": "priorityclasses"}
        for document in documents:
            if document["kind"] in ("DeviceClass", "ResourceSlice", "DeviceTaintRule", "PriorityClass", "Node"):
                version, kind = document["apiVersion"], document["kind"]
                root = f"/apis/{version}" if "/" in version else f"/api/{version}"
                name = document["metadata"]["name"]
                self._cluster_wide.append(f"{root}/{plural.get(kind, kind.lower() + 's')}/{name}")
        return self.ground.apply(*documents)

    def node_added(self, pods: int = 10) -> str:
        """The name of one more node, with room for this number of pods."""
        name = f"{self.name}-node"
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta})
        amounts = {"cpu": "4", "memory": "8Gi", "pods": str(pods)}
        self.ground.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
        return name

    def device_class(self, name: str, **spec: Any) -> None:
        """A class of all devices of this test's driver."""
        selectors = [{"cel": {"expression": f"device.driver == '{self.driver}'"}}]
        self._create("DeviceClass", {"name": name}, {"selectors": selectors, **spec})

    def publish(self, node: str, devices: int | Sequence[Body], **spec: Any) -> None:
        """The node's pool of this test's driver, from now on."""
        self._generation += 1
        listed = [{"name": f"device-{index}"} for index in range(devices)] if isinstance(devices, int) else devices
        pool = {"name": node, "generation": self._generation, "resourceSliceCount": 1}
        body = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": list(listed), **spec}
        self._create("ResourceSlice", {"name": f"{self.name}-{node}"}, body)

    def claim(self, name: str, *requests: Body, **spec: Any) -> Body:
        """A claim; one device of the class when no requests are given."""
        devices = {"requests": list(requests) or [self.request()], **spec}
        return self._create("ResourceClaim", self.where(name), {"devices": devices})

    def template(self, name: str, *requests: Body) -> Body:
        devices = {"requests": list(requests) or [self.request()]}
        return self._create("ResourceClaimTemplate", self.where(name), {"spec": {"devices": devices}})

    def request(self, name: str = "r", **exactly: Any) -> Body:
        return {"name": name, "exactly": {"deviceClassName": self.name, **exactly}}

    def pod(
        self,
        name: str,
        *claims: str,
        template: str = "",
        scheduler: str = SCHEDULER,
        node: str = "",
        requests: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Body:
        """A pod that uses claims by name, or one of a template; `node` selects one by its label."""
        entries: list[Body] = [{"name": f"c{index}", "resourceClaimName": c} for index, c in enumerate(claims)]
        if template:
            entries.append({"name": "t", "resourceClaimTemplateName": template})
        container = self.container([entry["name"] for entry in entries])
        if requests:
            container.setdefault("resources", {}).update(requests=dict(requests), limits=dict(requests))
        body = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0, **spec}
        if entries:
            body["resourceClaims"] = entries
        if node:
            body["nodeSelector"] = {"kubernetes.io/hostname": node}
        metadata = {**self.where(name), "annotations": dict(annotations or {}), "labels": dict(labels or {})}
        return self._create("Pod", metadata, body)

    def container(self, claims: Sequence[str]) -> Body:
        """The container of a pod with these entries in its list of claims."""
        return {"name": "main", "image": "none"}

    def pod_with_claim(self, name: str, **more: Any) -> Body:
        """A pod and a claim of the same name."""
        self.claim(name)
        return self.pod(name, name, **more)

    def is_admitted(self, **spec: Any) -> bool:
        """True when the API server accepts pods with this in their spec now."""
        pod = {"containers": [{"name": "c", "image": "none"}], **spec}
        body = msgspec.json.encode({"metadata": {"generateName": "trial-"}, "spec": pod})
        trial = self.ground.client.request("POST", f"{self._path}/pods", params={"dryRun": "All"}, body=body)
        try:
            self.ground.run(trial)
        except RejectedError as refusal:
            if refusal.status != 403:
                raise
            return False
        return True

    def where(self, name: str) -> Body:
        return {"name": name, "namespace": self.name}

    def _create(self, kind: str, metadata: Body, spec: Body) -> Body:
        version = "v1" if kind in ("Pod", "Node") else "resource.k8s.io/v1"
        return self.apply({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})[0]

    async def allocate_elsewhere(self, claim: str, node: str, device: str = "device-0") -> None:
        """As an allocator would that we know nothing of; the claim stays unused."""
        client, path = self.ground.client, self.claim_path(claim)
        where = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        result = {"request": "r", "driver": self.driver, "pool": node, "device": device}
        allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": where}}
        finalizers = ["resource.kubernetes.io/delete-protection"]
        await client.patch(path, msgspec.json.encode({"metadata": {"finalizers": finalizers}}))
        await client.patch(f"{path}/status", msgspec.json.encode({"status": {"allocation": allocation}}))

    # --- unmaking

    def delete_pod(self, name: str) -> None:
        self.ground.delete(self.pod_path(name), gracePeriodSeconds=0)

    def delete_claim(self, name: str) -> None:
        self.ground.delete(self.claim_path(name))
