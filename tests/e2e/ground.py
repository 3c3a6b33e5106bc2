"""Everything that the end-to-end tests stand on, brought up once: nodes whose pods run, the extender, a kube-scheduler.

kube-scheduler calls the extender through `calls`, and the extender the API server through `api`: proxies that see and
can disturb every exchange. Nodes exist without hardware: a stand-in for kubelet runs pods whose claims are in order.
All of that lives in a thread with a loop of its own, so that tests are plain functions; `run` takes a coroutine there.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Self, TypeVar

import msgspec

from dra_extender.api.errors import NotFoundError
from dra_extender.api.resource import ResourceClaim
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.events import EventRecorder
from dra_extender.kube.resources import RESOURCE_CLAIMS
from embedded_cluster import hardware, manifests
from embedded_cluster.driver import Driver
from embedded_cluster.informer import Informer
from embedded_cluster.kubelet import Kubelet
from embedded_cluster.objects import NODES as NODE_OBJECTS
from embedded_cluster.objects import PODS, FullNode, FullPod
from tests.e2e.components import Component
from tests.e2e.extender import ROOT, SCHEDULER_GATES, Extender, insight_reader, scheduler_configuration, scheduler_trust
from tests.e2e.heartbeats import Heartbeats
from tests.e2e.invariants import Invariants
from tests.e2e.plane import Plane
from tests.e2e.stream import STREAMED
from tests.e2e.wire import Exchange, Wire
from tests.support.patience import LONGEST

NODES = 4
SHIPPED = "dra-extender"
"""The name in the labels of the pods of the shipped Deployment."""
SCHEDULER = "dra-scheduler"
HASTY = SCHEDULER + "-hasty"
PLACING = SCHEDULER + "-placing"
BIND_TIMEOUT = 2.0
"""Seconds after which the hasty scheduler gives up on a bind."""
T = TypeVar("T")


class Ground:
    """Enter it to bring everything up."""

    def __init__(self, plane: Plane, nodes: int = NODES) -> None:
        """With this number of nodes, and those that tests create."""
        self.plane = plane
        self.nodes = tuple(hardware.node_name(index) for index in range(nodes))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ground", daemon=True)
        self._tasks: list[asyncio.Task[None]] = []
        self._extenders: list[Extender] = []

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._set_up()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._tear_down()

    # --- life

    def _set_up(self) -> None:
        for source in ("--filename={}/namespace.yaml", "--kustomize={}/rbac"):
            self.plane.kubectl("apply", source.format(ROOT / "manifests"))
        self.reader = insight_reader(self.plane)
        self.run(self._start_actors())
        self.extender = self.new_extender("dra-extender-0", server=self.api.url)
        self.calls.target = self.extender.url
        self.extender.start()
        self.start_scheduler()

    async def _start_actors(self) -> None:
        credentials = self.plane.credentials
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(*credentials.serving("wire"))
        self.calls = Wire("", serving, scheduler_trust(credentials))
        self.api = Wire(self.plane.url, serving, self.plane.trust())
        await self.calls.start()
        await self.api.start()
        settings = ClientSettings(kubeconfig=str(self.plane.admin_kubeconfig), timeout=LONGEST)
        self.client = await KubeClient.connect(settings)
        # Pods on the cluster's own nodes, if there are any, have a kubelet, and those of the shipped Deployment, too.
        ours = {
            "fieldSelector": ",".join(f"spec.nodeName!={node}" for node in self.plane.others),
            "labelSelector": f"app.kubernetes.io/name notin ({SHIPPED}, {STREAMED})",
        }
        self._pods: Informer[FullPod] = Informer(self.client, PODS, indexes={"claim": claims_of}, selector=ours)
        self._claims: Informer[ResourceClaim] = Informer(self.client, RESOURCE_CLAIMS)
        self.invariants = Invariants(self.client, self._claims, self._pods)
        await self._set_up_nodes()
        for job in (self._pods, self._claims, self.invariants):
            self._tasks.append(asyncio.create_task(job.run()))
        await asyncio.gather(self._pods.synced.wait(), self._claims.synced.wait())

    async def _set_up_nodes(self) -> None:
        """Nodes without hardware and a kubelet. Their pods and claims are not known yet."""
        self.driver = Driver(self.client)
        for index in range(len(self.nodes)):
            node = hardware.node(index)
            if self.plane.others:
                # There is no cluster network that could route to an address.
                del node["status"]["addresses"]
            await self.client.create("/api/v1/nodes", msgspec.json.encode(node))
        events = EventRecorder(self.client, "e2e", controller="kubelet")
        self.kubelet = Kubelet(self.client, self._pods, self._claims, events)
        self._tasks += [asyncio.create_task(job.run()) for job in (events, self.kubelet)]
        if self.plane.node_lifecycle:
            await self._keep_nodes_alive()

    async def _keep_nodes_alive(self) -> None:
        nodes: Informer[FullNode] = Informer(self.client, NODE_OBJECTS)
        heartbeats = Heartbeats(self.client, nodes, self.plane.others)
        self._tasks += [asyncio.create_task(job.run()) for job in (nodes, heartbeats)]
        await nodes.synced.wait()
        async with asyncio.timeout(LONGEST):
            while not heartbeats.schedulable():
                await asyncio.sleep(0.1)

    def _tear_down(self) -> None:
        for name in list(self.plane.components):
            if name.startswith(SCHEDULER):
                self.plane.stop_component(name)
        for extender in self._extenders:
            extender.stop()
        if self._thread.is_alive():
            self.run(self._stop_actors())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _stop_actors(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()
        for wire in (self.calls, self.api):
            await wire.stop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in left:
            connection.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def new_extender(self, identity: str, server: str = "", **settings: str) -> Extender:
        """A replica with the permissions of the manifests; not started, but stopped at the end."""
        kubeconfig = self.plane.service_account_kubeconfig("dra-system", "dra-extender")
        names = {"scheduler_names": f"{SCHEDULER},{HASTY},{PLACING}"}
        more = {f"DRA_EXTENDER_{name.upper()}": value for name, value in (names | settings).items()}
        if server:
            more["DRA_EXTENDER_SERVER"] = server
        made = Extender(
            self.plane.directory / "logs", identity, self.plane.credentials, kubeconfig, more, reader=self.reader
        )
        self._extenders.append(made)
        return made

    def start_scheduler(
        self,
        name: str = SCHEDULER,
        configuration: str = "secondary-scheduler.yaml",
        change: Callable[[dict[str, Any]], object] = lambda config: None,
    ) -> Component:
        """A stock kube-scheduler with a shipped configuration."""
        config = scheduler_configuration(configuration, self.calls.url, self.plane.credentials)
        change(config)
        secondary = configuration.startswith("secondary")
        rights = self.plane.service_account_kubeconfig("dra-system", "dra-scheduler") if secondary else None
        gates = {**self.plane.feature_gates, **SCHEDULER_GATES}
        return self.plane.start_scheduler(name, config, gates, rights)

    def start_hasty_scheduler(self) -> None:
        """One more scheduler with a name of its own, which gives up on a bind after two seconds."""

        def change(config: dict[str, Any]) -> None:
            config["leaderElection"]["leaderElect"] = False
            config["profiles"][0]["schedulerName"] = HASTY
            config["extenders"][1]["httpTimeout"] = f"{BIND_TIMEOUT:g}s"

        self.start_scheduler(HASTY, change=change)

    def start_placing_scheduler(self) -> None:
        """One more scheduler with a name of its own, for which our scores decide (docs/placement.md)."""

        def change(config: dict[str, Any]) -> None:
            config["leaderElection"]["leaderElect"] = False
            config["profiles"][0]["schedulerName"] = PLACING
            config["extenders"][0]["weight"] = 200

        self.start_scheduler(PLACING, change=change)

    # --- doing and looking

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, run where the clients live."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LONGEST)

    def begin(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Run a coroutine where the clients live, until `end`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self, job: Future[None]) -> None:
        """Cancel what was begun, and wait until it has ended. Raises what it has raised."""
        job.cancel()
        try:
            job.result(LONGEST)
        except CancelledError:
            return

    def now(self) -> float:
        """The time of the loop where the clients live."""
        return self._loop.time()

    def apply(self, *documents: dict[str, Any]) -> list[dict[str, Any]]:
        """Server-side apply; returns what was stored."""
        return self.run(manifests.apply(self.client, documents))

    def get(self, path: str) -> Any:
        """An object, or a list, as the API server stores it."""
        return msgspec.json.decode(self.run(self.client.get(path)))

    def patch(self, path: str, body: Any) -> Any:
        return msgspec.json.decode(self.run(self.client.patch(path, msgspec.json.encode(body))))

    def delete(self, path: str, **options: Any) -> None:
        """Delete; gone already is fine."""
        try:
            self.run(self.client.delete(path, msgspec.json.encode(options)))
        except NotFoundError:
            return

    def pod(self, key: str) -> FullPod | None:
        """A pod by namespace/name, as the watch has it."""
        return self._pods.objects.get(key)

    def pods(self, namespace: str) -> list[FullPod]:
        """The pods of a namespace, as the watch has them."""
        return [pod for pod in list(self._pods.objects.values()) if pod.metadata.namespace == namespace]

    def claims(self, namespace: str) -> list[ResourceClaim]:
        """The claims of a namespace, as the watch has them."""
        return [claim for claim in list(self._claims.objects.values()) if claim.metadata.namespace == namespace]

    def watches(self, flow: bool) -> None:
        """Whether the extender's watches deliver events; while False, events are held back."""
        event = self.api.watches_flow
        self.call(event.set if flow else event.clear)

    def answer(self, exchange: Exchange) -> Any:
        """What was replied, once it was: news of a binding comes before the reply of the call that made it."""
        self.eventually(exchange.sent.is_set, f"the reply of {exchange.path}")
        return exchange.answer

    def call(self, function: Callable[[], object]) -> None:
        """Call a function where the proxies live, soon."""
        self._loop.call_soon_threadsafe(function)

    def state(self) -> str:
        """What helps to understand why something did not happen."""
        return f"--- extender:\n{self.extender.tail()}"

    def eventually(self, look: Callable[[], T], what: str = "", seconds: float = LONGEST) -> T:
        """What `look` gives as soon as it is true. Raises AssertionError with the `state`."""
        deadline = time.monotonic() + seconds
        while not (seen := look()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what or 'it'} did not happen\n{self.state()}")
            time.sleep(0.02)
        return seen


def claims_of(pod: FullPod) -> list[str]:
    """The claims of a pod, as namespace/name: what the stand-in for kubelet finds pods by."""
    named = [entry.resource_claim_name for entry in pod.spec.resource_claims]
    named += [entry.resource_claim_name for entry in pod.status.resource_claim_statuses]
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        named.append(extended.resource_claim_name)
    return [f"{pod.metadata.namespace}/{name}" for name in named if name]
