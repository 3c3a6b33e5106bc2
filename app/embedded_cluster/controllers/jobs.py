"""Jobs: pods that run to an end, as many as are wanted, counted one by one; finished Jobs go when their time has come.

The rules are in `jobrules`; the pods end as the kubelet stand-in says. Not imitated: what the API server refuses (see
`apiserver/strategies/batch.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from dra_extender.api.decoding import encode
from dra_extender.api.errors import ConflictError, NotFoundError
from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import EventRecorder
from embedded_cluster.controllers import jobindexes, jobrules
from embedded_cluster.controllers.jobrules import TRACKING, Plan
from embedded_cluster.controllers.podowners import PodController
from embedded_cluster.controllers.podrules import pod_of
from embedded_cluster.informer import Informer
from embedded_cluster.objects import FullPod, Job
from embedded_cluster.workqueue import WorkQueue


def worker(job: Job, index: int | None) -> dict[str, Any]:
    """A pod of the Job, ready to be encoded."""
    template = job.spec.template
    labels, annotations = dict(template.metadata.labels), dict(template.metadata.annotations)
    metadata: dict[str, Any] = {"labels": labels, "annotations": annotations, "finalizers": [TRACKING]}
    spec: Any = template.spec
    if index is not None:
        labels[jobindexes.INDEX] = annotations[jobindexes.INDEX] = str(index)
        metadata["generateName"] = f"{job.metadata.name}-{index}-"
        spec = _numbered(msgspec.json.decode(template.spec), f"{job.metadata.name}-{index}")
    return pod_of("Job", job.metadata, {"metadata": metadata, "spec": spec}, "batch/v1")


def _numbered(spec: dict[str, Any], host: str) -> dict[str, Any]:
    """The spec of a pod that is told its index."""
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{jobindexes.INDEX}']"}}
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return spec | {"hostname": host}


class JobController(PodController[Job]):
    """Runs Jobs. `first_pause`: seconds between the first failure and the next pod."""

    kind = "Job"
    api_version = "batch/v1"

    def __init__(
        self,
        client: KubeClient,
        jobs: Informer[Job],
        pods: Informer[FullPod],
        events: EventRecorder,
        *,
        first_pause: float = 10.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(client, jobs, pods, events)
        self.first_pause = first_pause
        self._now = now

    async def sync(self, owner: Job) -> None:
        if jobrules.over(owner) is not None:
            await self._expire(owner)
            return
        todo = jobrules.plan(owner, self.pods_of(owner), self._now(), first_pause=self.first_pause)
        await self._carry_out(owner, todo)

    async def leave(self, owner: Job) -> None:
        """A Job that waits for its pods to go: they are still counted, and released."""
        await self._carry_out(owner, jobrules.plan(owner, self.pods_of(owner), self._now()))

    async def _carry_out(self, owner: Job, todo: Plan) -> None:
        await self.report(owner, jobrules.written(todo.status, self.pods_of(owner)))
        for pod in (*todo.release, *todo.drop):
            await self.release(pod)
        for pod in (*todo.drop, *todo.end):
            await self.delete(pod)
            self.tell(owner, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
        for index in todo.create:
            made = await self.create(owner, worker(owner, index))
            self.tell(owner, "SuccessfulCreate", f"Created pod: {made.metadata.name}")
        for note in todo.notes:
            self.tell(owner, note.reason, note.text, note.kind)
        if todo.again is not None:
            self.queue.add_after(owner.metadata.key, todo.again)

    async def release(self, pod: FullPod) -> None:
        """Take the finalizer off; a pod that is gone is fine."""
        await released(self._client, self._pods, pod)

    async def _expire(self, owner: Job) -> None:
        """Delete the finished Job when its time has come; its pods go with it."""
        due = jobrules.expiry(owner)
        if due is None:
            return
        left = due - self._now().timestamp()
        if left > 0:
            self.queue.add_after(owner.metadata.key, left)
            return
        options = {"propagationPolicy": "Background", "preconditions": {"uid": owner.metadata.uid}}
        path = self._owners.resource.path(owner.metadata.namespace, owner.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode(options))
        except (NotFoundError, ConflictError):
            return


async def released(client: KubeClient, pods: Informer[FullPod], pod: FullPod) -> None:
    """Take the finalizer of Jobs off a pod."""
    kept = [name for name in pod.metadata.finalizers if name != TRACKING]
    if len(kept) == len(pod.metadata.finalizers):
        return
    body = encode({"metadata": {"uid": pod.metadata.uid, "finalizers": kept or None}})
    try:
        reply = await client.patch(pods.resource.path(pod.metadata.namespace, pod.metadata.name), body)
    except (NotFoundError, ConflictError):
        return
    pods.observe(pods.resource.decode(reply))


class JobOrphans:
    """Pods whose Job is gone lose the finalizer that nobody else would take off. `run` never returns."""

    def __init__(self, client: KubeClient, jobs: Informer[Job], pods: Informer[FullPod]) -> None:
        """`pods` must have the index "owner"."""
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self.queue: WorkQueue[str] = WorkQueue("joborphans", self._sync)
        jobs.subscribe(self._job_changed)
        pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._jobs.synced.wait()
        await self._pods.synced.wait()
        await self.queue.run()

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        if old is not None and new is None:
            for pod in self._pods.find("owner", old.metadata.uid):
                self.queue.add(pod.metadata.key)

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        if new is not None and TRACKING in new.metadata.finalizers and not self._has_job(new):
            self.queue.add(new.metadata.key)

    def _has_job(self, pod: FullPod) -> bool:
        owner = pod.metadata.controller
        job = self._jobs.get(pod.metadata.namespace, owner.name) if owner is not None else None
        return job is not None and owner is not None and job.metadata.uid == owner.uid

    async def _sync(self, key: str) -> None:
        pod = self._pods.objects.get(key)
        if pod is None or TRACKING not in pod.metadata.finalizers or self._has_job(pod) or await self._exists(pod):
            return
        await released(self._client, self._pods, pod)

    async def _exists(self, pod: FullPod) -> bool:
        """True when the API server knows the Job: a new one may be seen after its first pod."""
        owner = pod.metadata.controller
        if owner is None:
            return False
        try:
            found = await self._client.get(self._jobs.resource.path(pod.metadata.namespace, owner.name))
        except NotFoundError:
            return False
        return self._jobs.resource.decode(found).metadata.uid == owner.uid
