"""Where it happens: a cluster with a scheduler, nodes with devices, and the service, each a process of its own.

Two kinds: the embedded cluster and a real control plane. What only the embedded one can do returns 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Protocol

import msgspec

from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from embedded_cluster import hardware, manifests
from embedded_cluster.demo.show import service_command
from tests.e2e.components import free_port
from tests.e2e.controlplane import ControlPlane
from tests.e2e.extender import SCHEDULER_GATES, Extender, scheduler_configuration
from tools.contention.contest import Cluster
from tools.hostile.cluster import Answer, Command
from tools.hostile.observer import trust
from tools.hostile.service import ROOT, Service
from tools.hostile.shapes import NODES
from tools.hostile.things import DRIVER, HOSTILE, ORDINARY, SCHEDULER, device_class

DEVICES: Final = 8
"""GPUs on each node, all different from each other: 32 on the first four nodes."""
_TIMEOUT: Final = 120.0
_BURST: Final = 60.0


class Faulty(Protocol):
    """Faults of an API server that a real one cannot be made to show."""

    async def tell(self, resource: str, line: bytes) -> int:
        """Write a line into the watches of a kind; returns into how many."""

    async def expire(self, resource: str) -> int:
        """End these watches, so that everything is listed again."""

    async def burst(self, name: str, count: int) -> int:
        """So many writes to a claim, or as many as there is time for; how many it were."""

    async def audit(self) -> tuple[str, ...]:
        """What is wrong with the cluster."""


class Ground:
    """`client` may do anything; the files are what a client of the verbs shows and trusts, if they have TLS."""

    def __init__(self, client: KubeClient, service: Service, faults: Faulty, files: tuple[str, str, str]) -> None:
        self.client, self.service, self.faults = client, service, faults
        self.authorities, self.certificate, self.key = files
        self.watches: dict[str, int] = {}
        """The most watches that have been seen of each kind."""
        self.open_insight = not self.authorities
        """True when everybody may ask for its pages."""
        self.nodes = [hardware.node_name(index) for index in range(NODES)]

    async def create(self, body: manifests.Manifest) -> None:
        """Raises ApiError."""
        await self.client.create(manifests.path_of(body).rpartition("/")[0], msgspec.json.encode(body))


# --- embedded ---------------------------------------------------------------------------------------------------------


class Embedded:
    """The process of the embedded cluster, and its faults."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    async def ask(self, command: Command | None = None) -> Answer:
        """One command, one answer. Raises AssertionError with the problem."""
        assert self._process.stdin is not None and self._process.stdout is not None
        async with self._turn:
            if command is not None:
                self._process.stdin.write(msgspec.json.encode(command) + b"\n")
                await self._process.stdin.drain()
            line = await self._process.stdout.readline()
        answer = msgspec.json.decode(line or b'{"problem":"the cluster has ended"}', type=Answer)
        assert not answer.problem, answer.problem
        return answer

    async def tell(self, resource: str, line: bytes) -> int:
        return (await self.ask(Command("tell", resource=resource, line=line))).count

    async def expire(self, resource: str) -> int:
        return (await self.ask(Command("expire", resource=resource))).count

    async def burst(self, name: str, count: int) -> int:
        return (await self.ask(Command("burst", namespace=HOSTILE, name=name, count=count))).count

    async def audit(self) -> tuple[str, ...]:
        return (await self.ask(Command("audit"))).found


@contextlib.asynccontextmanager
async def embedded(directory: Path, *, memory: int = 0, schedule: bool = True) -> AsyncIterator[Ground]:
    """The embedded cluster and the service, both up, and the scheduler unless told otherwise."""
    errors = (directory / "cluster.log").open("ab")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tools.hostile.cluster", str(NODES), str(DEVICES),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
        cwd=ROOT, limit=2**27, start_new_session=True,
    )  # fmt: skip
    errors.close()
    try:
        cluster = Embedded(process)
        url = (await cluster.ask()).url
        verbs, insight = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        flags = [*service_command(url, verbs)[4:], "--insight-listen", insight, "--log-level", "warning"]
        service = Service(f"http://{verbs}", f"http://{insight}", flags, {}, directory / "service.log", memory)
        settings = ClientSettings(server=url, user_agent="hostile", timeout=_TIMEOUT)
        async with await KubeClient.connect(settings) as client:
            await _namespaces(client)
            try:
                await service.start()
                if schedule:
                    await cluster.ask(Command("schedule", url=service.verbs))
                yield Ground(client, service, cluster, ("", "", ""))
            finally:
                await service.stop()
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _namespaces(client: KubeClient) -> None:
    for name in (HOSTILE, ORDINARY):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await client.create("/api/v1/namespaces", msgspec.json.encode(body))


# --- real -------------------------------------------------------------------------------------------------------------


class Real:
    """A real API server writes no line that we tell it to; a burst goes through it, as many writes as it takes in
    `_BURST` seconds: it stores about 60 versions of one object in a second.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def tell(self, resource: str, line: bytes) -> int:
        return 0

    async def expire(self, resource: str) -> int:
        return 0

    async def burst(self, name: str, count: int) -> int:
        path = f"/apis/resource.k8s.io/v1/namespaces/{HOSTILE}/resourceclaims/{name}"
        numbers = iter(range(count))
        written = 0
        clock = asyncio.get_running_loop().time
        deadline = clock() + _BURST

        async def write() -> None:
            nonlocal written
            while clock() < deadline and (number := next(numbers, None)) is not None:
                await self._client.patch(path, b'{"metadata":{"annotations":{"n":"%d"}}}' % number)
                written += 1

        await asyncio.gather(*(write() for _ in range(16)))
        return written

    async def audit(self) -> tuple[str, ...]:
        return ()


@contextlib.asynccontextmanager
async def real(directory: Path, *, memory: int = 0) -> AsyncIterator[Ground]:
    """A control plane built with Go, the service as shipped, a stand-in for kubelet."""
    plane = await asyncio.to_thread(ControlPlane(directory, feature_gates={}, runtime_config=()).__enter__)
    try:
        for source in ("--filename={}/namespace.yaml", "--kustomize={}/rbac"):
            await asyncio.to_thread(plane.kubectl, "apply", source.format(ROOT / "manifests"))
        settings = ClientSettings(kubeconfig=str(plane.admin_kubeconfig), user_agent="hostile", timeout=_TIMEOUT)
        async with await KubeClient.connect(settings) as client:
            await _furnish(client)
            kubeconfig = plane.service_account_kubeconfig("dra-system", "dra-extender")
            # Probes need no token, and nothing else is asked of the insight address.
            shipped = Extender(directory / "logs", "dra-extender-0", plane.credentials, kubeconfig, reader="")
            certificate, key = plane.credentials.client("dra-scheduler-client", "dra-scheduler")
            files = str(plane.credentials.ca_file), str(certificate), str(key)
            environment = shipped.environment
            service = Service(shipped.url, shipped.insight, (), environment, shipped.log, memory, trust(*files))
            async with Cluster(client):
                try:
                    await service.start()
                    await asyncio.to_thread(_scheduler, plane, service.verbs)
                    yield Ground(client, service, Real(client), files)
                finally:
                    await service.stop()
    finally:
        await asyncio.to_thread(plane.stop)


def _scheduler(plane: ControlPlane, verbs: str) -> None:
    config = scheduler_configuration("secondary-scheduler.yaml", verbs, plane.credentials)
    config |= {"leaderElection": {"leaderElect": False}}
    permissions = plane.service_account_kubeconfig("dra-system", "dra-scheduler")
    plane.start_scheduler(SCHEDULER, config, SCHEDULER_GATES, permissions)


async def _furnish(client: KubeClient) -> None:
    await _namespaces(client)
    for index in range(NODES):
        await client.create("/api/v1/nodes", msgspec.json.encode(hardware.node(index)))
        pool = hardware.gpus(index, DEVICES)
        await manifests.apply(client, [hardware.manifest(part) for part in hardware.slices(pool, 1)])
    await manifests.apply(client, [device_class(DRIVER, f"device.driver == '{DRIVER}'")])
