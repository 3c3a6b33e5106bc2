"""Two active replicas, each with a stock kube-scheduler, and a stock in-tree scheduler: one set of devices for all.

`compete` brings up a real control plane, lets all pods through, a number at a time, and returns what happened. Nobody
leads: both replicas decide. The claim controller is the real one; a stand-in for kubelet runs what is bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from dra_extender.api.errors import NotFoundError
from dra_extender.api.resource import ResourceClaim
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.events import EventRecorder
from dra_extender.kube.resources import RESOURCE_CLAIMS
from embedded_cluster import hardware, manifests
from embedded_cluster.informer import Informer
from embedded_cluster.kubelet import Kubelet
from embedded_cluster.objects import PODS, FullPod
from tests.e2e.components import metric
from tests.e2e.controlplane import ControlPlane
from tests.e2e.extender import ROOT, SCHEDULER_GATES, Extender, insight_reader, scheduler_configuration
from tests.e2e.ground import claims_of
from tools.contention.entrants import (
    NAMESPACE,
    Entrant,
    claim,
    device_class,
    entrants,
    pod,
    resource_slice,
    template,
)
from tools.contention.history import STOCK, History, Version, claim_version, pod_version
from tools.contention.outcome import RESULTS, Outcome, Replica, api_conflicts, told_in

NODES, DEVICES = 4, 4
"""Nodes, and devices on each."""
OWN = ("dra-scheduler-a", "dra-scheduler-b")
"""The schedulers that call a replica of ours each."""
LEFT = 60.0
"""Seconds within which all devices are free again after the last pod."""

_CREATING = 16
"""Requests under way at the same time while pods are made."""
_RATES = {"qps": 500, "burst": 1000}
"""For all schedulers: no client-side rate limit slows one of them."""


class Rules(msgspec.Struct, frozen=True):
    """`waiting`: how many pods that have not run yet there are at the same time. `patience`: seconds for all of it."""

    pods: int
    waiting: int
    patience: float


Told = Callable[[int], object]
"""Called with the number of pods that have run."""


def compete(directory: Path, rules: Rules, told: Told = lambda ran: None) -> Outcome:
    """Play one contest from bringing everything up to the last free device."""
    # The features as they are by default, as in most clusters.
    with ControlPlane(directory, feature_gates={}, runtime_config=()) as plane:
        for source in ("--filename={}/namespace.yaml", "--kustomize={}/rbac"):
            plane.kubectl("apply", source.format(ROOT / "manifests"))
        return asyncio.run(_compete(plane, rules, told))


async def _compete(plane: ControlPlane, rules: Rules, told: Told) -> Outcome:
    settings = ClientSettings(kubeconfig=str(plane.admin_kubeconfig), user_agent="contest", timeout=60)
    async with await KubeClient.connect(settings) as client:
        names = [hardware.node_name(index) for index in range(NODES)]
        for index in range(NODES):
            await client.create("/api/v1/nodes", msgspec.json.encode(hardware.node(index)))
        slices = [resource_slice(name, DEVICES) for name in names]
        await manifests.apply(client, [device_class(), template(), *slices])
        async with Cluster(client) as cluster:
            with _replicas(plane) as replicas:
                await asyncio.to_thread(_start, plane, replicas)
                return await _play(plane, cluster, replicas, rules, told)


async def _play(plane: ControlPlane, cluster: Cluster, replicas: list[Extender], rules: Rules, told: Told) -> Outcome:
    listed = entrants(rules.pods, (OWN[0], OWN[1], STOCK))
    feeding = Feeding(cluster, listed, rules.waiting, told)
    started = time.monotonic()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(rules.patience):
            await feeding.run()
    seconds = time.monotonic() - started
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEFT):
            await cluster.until_free()
    await cluster.settle()
    (plane.directory / "versions.json").write_bytes(msgspec.json.encode(cluster.versions))
    history = History()
    history.replay(cluster.versions)
    return Outcome(
        entrants=listed,
        history=history,
        seconds=seconds,
        waited=feeding.waited,
        attempts={name: _attempts(plane, name) for name in (*OWN, STOCK)},
        replicas=[Replica(made.identity, made.metrics(), told_in(made.log.read_text())) for made in replicas],
        refused=api_conflicts((await cluster.client.get("/metrics")).decode()),
        events=await cluster.events("DeviceHeldTwice"),
    )


def _attempts(plane: ControlPlane, scheduler: str) -> dict[str, int]:
    page = plane.metrics(scheduler)
    return {result: int(metric(page, "scheduler_schedule_attempts_total", result=result)) for result in RESULTS}


class Feeding:
    """Makes the pods, a number at a time, and ends them. `waited`: seconds from making to running, by name."""

    def __init__(self, cluster: Cluster, listed: list[Entrant], waiting: int, told: Told) -> None:
        self.waited: dict[str, float] = {}
        self._cluster = cluster
        self._listed = listed
        self._told = told
        self._room = asyncio.Semaphore(waiting)
        self._made: dict[str, tuple[Entrant, float]] = {}
        self._all_ran = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()
        cluster.pods.subscribe(self._changed)

    async def run(self) -> None:
        """Until all have run and the pods that do not complete are deleted."""
        waiting = iter(self._listed)
        await asyncio.gather(*(self._make(waiting) for _ in range(_CREATING)))
        await self._all_ran.wait()
        await asyncio.gather(*self._ending)

    async def _make(self, waiting: Iterator[Entrant]) -> None:
        for entrant in waiting:
            await self._room.acquire()
            self._made[entrant.name] = entrant, time.monotonic()
            if entrant.makes_claim:
                await self._cluster.create(claim(entrant))
            await self._cluster.create(pod(entrant))

    def _changed(self, old: FullPod | None, new: FullPod | None) -> None:
        if new is None or new.status.phase != "Running" or new.metadata.name in self.waited:
            return
        entrant, since = self._made[new.metadata.name]
        self.waited[entrant.name] = time.monotonic() - since
        self._room.release()
        if not entrant.completes:
            ending = asyncio.create_task(self._delete(entrant.name))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._told(len(self.waited))
        if len(self.waited) == len(self._listed):
            self._all_ran.set()

    async def _delete(self, name: str) -> None:
        await asyncio.sleep(random.uniform(0.2, 0.8))
        await self._cluster.delete_pod(name)


# --- what takes part --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _replicas(plane: ControlPlane) -> Iterator[list[Extender]]:
    """Two replicas as shipped but without election; stopped at the end."""
    kubeconfig = plane.service_account_kubeconfig("dra-system", "dra-extender")
    settings = {"DRA_EXTENDER_LEADER_ELECTION": "false", "DRA_EXTENDER_SCHEDULER_NAMES": ",".join(OWN)}
    logs, reader = plane.directory / "logs", insight_reader(plane)
    made = [Extender(logs, f"dra-extender-{x}", plane.credentials, kubeconfig, settings, reader=reader) for x in "ab"]
    try:
        yield made
    finally:
        for replica in made:
            replica.stop()


def _start(plane: ControlPlane, replicas: Iterable[Extender]) -> None:
    rights = plane.service_account_kubeconfig("dra-system", "dra-scheduler")
    for name, replica in zip(OWN, replicas, strict=True):
        replica.start()
        config = scheduler_configuration("secondary-scheduler.yaml", replica.url, plane.credentials)
        config |= {"leaderElection": {"leaderElect": False}, "clientConnection": _RATES}
        config["profiles"][0]["schedulerName"] = name
        plane.start_scheduler(name, config, SCHEDULER_GATES, rights)
    plane.start_scheduler(STOCK, {"clientConnection": _RATES})


class Recorder:
    """Every version of every object of a kind, from now on."""

    def __init__(self, client: KubeClient, path: str, version: Callable[..., Version]) -> None:
        self.versions: list[Version] = []
        self._client = client
        self._path = path
        self._version = version

    def seen(self, key: str) -> bool:
        return any(version.key == key for version in reversed(self.versions))

    async def run(self) -> None:
        """For ever: a watch that ends goes on where it was. Raises ApiError when versions may have been missed."""
        last = msgspec.json.decode(await self._client.get(self._path))["metadata"]["resourceVersion"]
        while True:
            params = {"watch": "1", "resourceVersion": last, "allowWatchBookmarks": "true"}
            async for line in self._client.stream(self._path, params):
                event = msgspec.json.decode(line)
                last = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.versions.append(self._version(event["object"], gone=event["type"] == "DELETED"))


class Cluster:
    """What the contest sees of the cluster, and the kubelets' part in it."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.pods: Informer[FullPod] = Informer(client, PODS, indexes={"claim": claims_of})
        self.claims: Informer[ResourceClaim] = Informer(client, RESOURCE_CLAIMS)
        self._recorders = (
            Recorder(client, RESOURCE_CLAIMS.path(), claim_version),
            Recorder(client, PODS.path(), pod_version),
        )
        self._events = EventRecorder(client, "contest", controller="kubelet")
        self._kubelet = Kubelet(client, self.pods, self.claims, self._events)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Cluster:
        for job in (*self._recorders, self.pods, self.claims, self._events, self._kubelet):
            self._tasks.append(asyncio.create_task(job.run()))
        await asyncio.gather(self.pods.synced.wait(), self.claims.synced.wait())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def versions(self) -> list[Version]:
        return [version for recorder in self._recorders for version in recorder.versions]

    async def create(self, body: manifests.Manifest) -> None:
        await self.client.create(manifests.path_of(body).rpartition("/")[0], msgspec.json.encode(body))

    async def delete_pod(self, name: str) -> None:
        now = msgspec.json.encode({"gracePeriodSeconds": 0})
        with contextlib.suppress(NotFoundError):
            await self.client.delete(PODS.path(NAMESPACE, name), now)

    async def until_free(self) -> None:
        """Until no claim is allocated."""
        while any(found.allocation is not None for found in self.claims.objects.values()):
            await asyncio.sleep(0.1)

    async def settle(self) -> None:
        """Until the recorders have seen all that was written before. Raises what has ended one of them."""
        last = Entrant("last", scheduler="nobody", claim="last", devices=1, makes_claim=True, completes=True)
        await self.create(claim(last))
        await self.create(pod(last))
        while not all(recorder.seen(f"{NAMESPACE}/last") for recorder in self._recorders):
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.05)

    async def events(self, reason: str) -> int:
        """The number of objects with events of this reason."""
        listed = await self.client.get("/apis/events.k8s.io/v1/events", {"fieldSelector": f"reason={reason}"})
        return len({item["regarding"]["uid"] for item in msgspec.json.decode(listed)["items"]})
