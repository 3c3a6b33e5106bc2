"""ProvisioningRequests for gangs: cluster-autoscaler then adds nodes for all pods of a gang, or for none.

Promises: while this replica leads, a gang that lacks devices and would fit with more nodes, as a diagnosis has found,
gets one request of class best-effort-atomic-scale-up, and its PodTemplates. The name comes from the gang, so there is
never a second one. The request is deleted when the gang no longer waits. The garbage collector removes all of it with
the controller of the gang's first pod, or with this pod. Pods that name another request (`CONSUMES`) get none. Problems
are logged once, also that the cluster does not serve the kind.

A PodTemplate has what schedulers read of the pod. It names the claims that exist for the pod instead of their
templates, because cluster-autoscaler makes no claims for the pods of a request. That takes a PodTemplate per pod; for a
gang with more than `POD_SETS` (autoscaling.x-k8s.io/v1, types.go), equal pods share one, which names the templates.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast, get_args

import structlog
from cachetools import LRUCache
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.decoding import DecodeError, decode, encode
from dra_extender.api.errors import ApiError, NotFoundError, NotServedError
from dra_extender.api.groups import GroupKey, Source, group_of
from dra_extender.api.meta import Object, ObjectMeta, OwnerReference
from dra_extender.devices.content import digest
from dra_extender.insight.why.report import Diagnosis
from dra_extender.kube.client import APPLY_PATCH, KubeClient, decoded
from dra_extender.kube.events import CONTROLLER
from dra_extender.kube.resources import PODS, Resource, list_pages, segment
from dra_extender.scheduling.claims import created_names
from dra_extender.scheduling.gangs.gang import Gang, gang_of
from dra_extender.scheduling.noderules import NodeRule
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

PERIOD: Final = 15.0
"""Seconds between two comparisons of requests and gangs."""
REMEMBERED: Final = 2**20
"""Bytes of the gangs that are remembered: a name may have 256 KiB."""
GANG: Final = 1_000
"""Bytes of one of them without its name."""
POD_SETS: Final = 32
CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CONSUMES: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
MADE_FOR: Final = "dra-extender.dev/made-for"  # the source and the name of the gang, an annotation of the request
MANAGED: Final = {"app.kubernetes.io/managed-by": CONTROLLER}
ABSENT: Final = "the cluster has no ProvisioningRequests: install their CustomResourceDefinition"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,200}[a-z0-9])?")
_SPEC: Final = (
    "affinity", "hostNetwork", "nodeSelector", "overhead", "priorityClassName", "resourceClaims", "resources",
    "runtimeClassName", "schedulerName", "tolerations", "topologySpreadConstraints",
)  # fmt: skip
_CONTAINER: Final = ("image", "name", "ports", "resources", "restartPolicy")


class ProvisioningRequest(Object, frozen=True):
    metadata: ObjectMeta


REQUESTS: Final[Resource[ProvisioningRequest]] = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", partial(decode, ProvisioningRequest)
)


def request_name(key: GroupKey) -> str:
    """Such as `podgroup-train` for PodGroup train; a digest if no object can have such a name."""
    name = f"{key.source.lower()}-{key.name}"
    return name if _NAME.fullmatch(name) else f"gang-{digest(*key).hex()}"


class ProvisioningRequests:
    """Tell it each diagnosis, and `run` it. `leads`: whether this replica does."""

    def __init__(self, client: KubeClient, view: View, leads: Callable[[], bool]) -> None:
        self._client, self._view, self._leads = client, view, leads
        self._wanted: LRUCache[GroupKey, int] = LRUCache(REMEMBERED, getsizeof=int)
        """With their bytes."""

    def diagnosed(self, pod: Pod, found: Diagnosis) -> None:
        """Remember whether the gang of the pod lacks devices and would fit with more nodes."""
        changes = [{change.kind for change in remedy.changes} for remedy in found.remedies]
        key, lacks_devices = group_of(pod), found.rule not in get_args(NodeRule)
        if key is not None and lacks_devices and {"node added"} in changes:
            self._wanted[key] = min(REMEMBERED, GANG + len(key.name))
        elif key is not None and found.complete:
            self._wanted.pop(key, None)

    async def run(self) -> None:
        """Until cancelled. The view has to be complete: gangs that it lacks do not wait."""
        known = problem = ""
        while True:
            known, problem = problem, ""
            try:
                await self.reconcile()
            except (ApiError, DecodeError) as failure:
                problem = ABSENT if isinstance(failure, NotServedError) else str(failure)
                if problem != known:
                    log.warning("no ProvisioningRequests are made, will retry", problem=problem)
            except Exception as failure:
                unexpected("provisioning", failure)
            await asyncio.sleep(PERIOD)

    async def reconcile(self) -> None:
        """Forget gangs that no longer wait. If this replica leads, delete their requests, and create missing ones.
        Raises ApiError.
        """
        kept = await self._kept() if self._leads() else None
        for key in tuple(self._wanted):
            gang, name = self._waiting(key), request_name(key)
            if gang is None:
                self._wanted.pop(key, None)
            elif not (kept is None or key in kept or gang.problem) and all(
                pod.metadata.annotations.get(CONSUMES, name) == name for pod in gang.waiting
            ):
                await self._create(key, gang.waiting)
            await asyncio.sleep(0)

    async def _kept(self) -> Set[GroupKey]:
        """The gangs that have requests, after those of gangs that no longer wait are deleted. Raises ApiError."""
        kept = set[GroupKey]()
        async for page in list_pages(self._client, REQUESTS, {"labelSelector": "=".join(*MANAGED.items())}):
            for request in map(REQUESTS.decode, page.items or ()):
                meta = request.metadata
                source, _, name = meta.annotations.get(MADE_FOR, "").partition(" ")
                kept.add(key := GroupKey(cast(Source, source), meta.namespace, name))
                if self._waiting(key) is None:
                    log.info("ProvisioningRequest deleted", request=meta.key)
                    with suppress(NotFoundError):
                        await self._client.delete(REQUESTS.path(meta.namespace, meta.name))
                await asyncio.sleep(0)
        return kept

    def _waiting(self, key: GroupKey) -> Gang | None:
        """The gang; None when it runs, or is gone."""
        pods = [pod for pod in self._view.pods.members(key) if not pod.spec.node_name and not pod.finished]
        gang = gang_of(self._view, pods[0]) if pods else None
        return gang if gang is not None and gang.needed else None

    async def _create(self, key: GroupKey, pods: Sequence[Pod]) -> None:
        """After a failure, the next diagnosis asks for it again."""
        name, sets, kinds, first = request_name(key), list[Any](), dict[Any, list[Pod]](), pods[0].metadata
        owner = first.controller or OwnerReference("Pod", first.name, first.uid, "v1")
        owner = replace(owner, controller=None, block_owner_deletion=None)
        metadata = {"namespace": key.namespace, "labels": MANAGED, "ownerReferences": [owner]}
        claims_of = created_names if len(pods) <= POD_SETS else lambda _: {}
        for pod in pods:
            kinds.setdefault((encode(pod.spec), *claims_of(pod).items()), []).append(pod)
            await asyncio.sleep(0)
        try:
            if len(kinds) > POD_SETS:
                raise ApiError(0, "TooLarge", f"the pods differ in more than {POD_SETS} ways")
            for number, alike in enumerate(kinds.values()):
                own, path = f"{name}-{number}", PODS.path(key.namespace, alike[0].metadata.name)
                claims = claims_of(alike[0])
                template = _template_of(decoded(dict[str, Any], await self._client.get(path), path), claims)
                body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata | {"name": own}, **template}
                path = f"/api/v1/namespaces/{segment(key.namespace)}/podtemplates/{own}"
                await self._client.patch(f"{path}?fieldManager={CONTROLLER}&force=true", encode(body), APPLY_PATCH)
                sets.append({"podTemplateRef": {"name": own}, "count": len(alike)})
            made = metadata | {"name": name, "annotations": {MADE_FOR: f"{key.source} {key.name}"}}
            body = {"apiVersion": REQUESTS.api_version, "kind": REQUESTS.kind, "metadata": made}
            body["spec"] = {"provisioningClassName": CLASS, "podSets": sets}
            await self._client.create(REQUESTS.path(key.namespace), encode(body))
            log.info("ProvisioningRequest created", request=f"{key.namespace}/{name}", pods=len(pods))
        except ApiError as problem:
            self._wanted.pop(key, None)
            log.warning("ProvisioningRequest not created", gang=str(key), problem=problem.message)


def _template_of(pod: Mapping[str, Any], claims: Mapping[str, str | None]) -> dict[str, Any]:
    """The template of a PodTemplate, from a pod as it is stored."""
    stored = pod["spec"]
    spec = {name: stored[name] for name in _SPEC if name in stored}
    for kind in ("initContainers", "containers"):
        spec[kind] = [{name: each[name] for name in _CONTAINER if name in each} for each in stored.get(kind, ())]
    spec["resourceClaims"] = [
        {"name": each["name"], "resourceClaimName": name} if (name := claims.get(each["name"])) else each
        for each in stored.get("resourceClaims", ())
    ]
    return {"template": {"metadata": {"labels": pod["metadata"].get("labels", {})}, "spec": spec}}
