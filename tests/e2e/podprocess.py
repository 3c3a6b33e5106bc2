"""One pod of a Deployment as a process on this machine, with its manifest taken at its word: environment, Secrets,
probes, grace period, restarts.

A pod has an address of its own: `10.X.0.N` to the API server, which takes no loopback address for an endpoint, and
`127.X.0.N`, where its ports really are, to everybody here.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from dra_extender.api.errors import ApiError, NotFoundError
from dra_extender.kube.client import STRATEGIC_PATCH, KubeClient
from tests.e2e.extender import ROOT

Body = dict[str, Any]


def shown(network: int, number: int) -> str:
    """The IP address that the pod reports. Each run has its own network."""
    return f"10.{network}.{number >> 8}.{number & 255}"


def real(address: str) -> str:
    """Where the pod with this address is reached."""
    return "127." + address.partition(".")[2]


class PodProcess:
    """`run` it as a task: from start to end of the pod. `machine` are variables that stand for what a cluster has: how
    to reach the API server. Other containers than the first are not run.
    """

    def __init__(
        self, client: KubeClient, namespace: str, name: str, address: str, folder: Path, machine: Mapping[str, str]
    ) -> None:
        self.name = name
        self.address = address
        self.log = folder / f"{name}.log"
        self._client = client
        self._namespace = namespace
        self._spec: Body = {}
        self._container: Body = {}
        self._files = folder / name
        self._machine = machine
        self._path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._told: tuple[bool, bool, int] | None = None
        self._started = self._ready = False
        self._restarts = 0
        self._leaving = asyncio.Event()
        self._lost = False
        self.refused: list[int] = []
        """Exit statuses of processes that were asked to end, and ended otherwise than well."""

    # --- what happens to it ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the pod is deleted and has ended, or its node is lost."""
        self._spec = msgspec.json.decode(await self._client.get(self._path))["spec"]
        self._container = self._spec["containers"][0]
        await self._mount()
        try:
            await self._live()
        finally:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        if not self._lost:
            await self._remove()

    def leave(self) -> None:
        """The pod was deleted."""
        self._leaving.set()

    def kill(self) -> None:
        """As a crash ends its process; it is started again."""
        assert self._process is not None
        self._process.kill()

    def lose(self) -> None:
        """As when its node loses power: the process ends, and the API server does not learn it."""
        self._lost = True
        self.kill()

    def _restart(self) -> None:
        """Probes say that it does not work. One that is about to end gets its time."""
        if not self._leaving.is_set():
            self.kill()

    # --- its life ----------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        while not self._leaving.is_set() and not self._lost:
            self._started = self._ready = False
            self._process = self._start()
            probing = asyncio.create_task(self._probe())
            ended = asyncio.create_task(_end_of(self._process))
            leaving = asyncio.create_task(self._leaving.wait())
            await asyncio.wait({ended, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self._terminate(ended)
            for task in (probing, leaving):
                task.cancel()
            await asyncio.gather(probing, leaving, return_exceptions=True)
            self._restarts += 1

    async def _terminate(self, ended: asyncio.Task[int]) -> None:
        """As kubelet does: SIGTERM, then SIGKILL after the grace period. Of the probes, only readiness counts then."""
        assert self._process is not None
        assert "lifecycle" not in self._container, "hooks are not played"
        self._process.terminate()
        _, late = await asyncio.wait({ended}, timeout=self._spec["terminationGracePeriodSeconds"])
        if late:
            self._process.kill()
        if await ended:
            self.refused.append(ended.result())

    async def _probe(self) -> None:
        await self._tell()
        startup, readiness, liveness = (
            self._container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")
        )
        await self._until(startup, wanted=True, otherwise=self._restart)
        self._started = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_readiness(readiness))
            group.create_task(self._until(liveness, wanted=False, otherwise=self._restart))

    async def _watch_readiness(self, probe: Body) -> None:
        failures = 0
        while True:
            failures = 0 if await self._answers(probe) else failures + 1
            if failures == 0 or failures >= probe.get("failureThreshold", 3):
                self._ready = failures == 0
                await self._tell()
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _until(self, probe: Body, *, wanted: bool, otherwise: Callable[[], None]) -> None:
        """Return when a startup probe succeeds; call `otherwise` when probes have failed as often as they may."""
        failures = 0
        while True:
            good = await self._answers(probe)
            if good and wanted:
                return
            failures = 0 if good else failures + 1
            if failures >= probe.get("failureThreshold", 3):
                otherwise()
                return
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _answers(self, probe: Body) -> bool:
        """As kubelet asks: whatever certificate is shown, within timeoutSeconds."""
        asked = probe["httpGet"]
        (port,) = (each["containerPort"] for each in self._container["ports"] if each["name"] == asked["port"])
        url = f"{asked.get('scheme', 'HTTP').lower()}://{real(self.address)}:{port}{asked['path']}"
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the default one reads all authorities there are, every time
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        timeout = aiohttp.ClientTimeout(total=probe.get("timeoutSeconds", 1))
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), timeout=timeout) as session,
                session.get(url) as reply,
            ):
                return 200 <= reply.status < 400
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    # --- its process -------------------------------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "dra_extender.cli", *self._container["args"]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=dict(self._environment()),
                start_new_session=True,
            )

    def _environment(self) -> Mapping[str, str]:
        said = {entry["name"]: self._value(entry) for entry in self._container["env"]}
        return {name: self._here(value) for name, value in said.items()} | dict(self._machine)

    def _value(self, entry: Body) -> str:
        if "value" in entry:
            return str(entry["value"])
        field = entry["valueFrom"]["fieldRef"]["fieldPath"]
        known = {
            "metadata.name": self.name,
            "metadata.namespace": self._namespace,
            "status.podIP": real(self.address),
        }
        return str(known[field])

    def _here(self, value: str) -> str:
        """The same on a machine where pods share network and files."""
        for mount in self._container["volumeMounts"]:
            value = value.replace(mount["mountPath"], str(self._files / mount["name"]))
        return value.replace("0.0.0.0", real(self.address))

    async def _mount(self) -> None:
        for volume in self._spec["volumes"]:
            if "secret" in volume:
                path = f"/api/v1/namespaces/{self._namespace}/secrets/{volume['secret']['secretName']}"
                secret = msgspec.json.decode(await self._client.get(path))
                folder = self._files / volume["name"]
                folder.mkdir(parents=True)
                for file, content in secret["data"].items():
                    (folder / file).write_bytes(base64.b64decode(content))

    # --- what is said of it ------------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        """Write the status, when it has changed. What was not taken is written after the next good probe."""
        now = self._started, self._ready, self._restarts
        if now == self._told:
            return
        conditions = {"Initialized": True, "PodReadyToStartContainers": True}
        conditions |= {"ContainersReady": self._ready, "Ready": self._ready}
        status = {
            "phase": "Running",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [{"type": kind, "status": str(on)} for kind, on in conditions.items()],
            "containerStatuses": [
                {
                    "name": self._container["name"],
                    "ready": self._ready,
                    "started": self._started,
                    "restartCount": self._restarts,
                    "image": self._container["image"],
                    "imageID": "",
                    "state": {"running": {}},
                }
            ],
        }
        try:
            await self._client.patch(f"{self._path}/status", msgspec.json.encode({"status": status}), STRATEGIC_PATCH)
        except ApiError:
            return
        self._told = now

    async def _remove(self) -> None:
        """The last word of kubelet about a pod."""
        try:
            await self._client.delete(self._path, msgspec.json.encode({"gracePeriodSeconds": 0}))
        except NotFoundError:
            pass  # another reader took it


async def _end_of(process: subprocess.Popen[bytes]) -> int:
    """The exit status, when there is one. No thread waits for it, which would outlive a test."""
    while (status := process.poll()) is None:
        await asyncio.sleep(0.05)
    return status
