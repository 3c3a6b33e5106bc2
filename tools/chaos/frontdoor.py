"""`make chaos`, second part: replicas as processes, called as kube-scheduler calls them, while much goes wrong.

Real: HTTP, mutual TLS, forwarding, readiness and the lease, worker processes. Embedded: API server, kube-scheduler,
controllers and kubelet. A `Front` does what a Service does. Each replica has a clock of its own, an hour off. Mishaps,
one after another: a replica stops (SIGSTOP) for up to 100 s, most often when the API server has its binding but has not
carried it out; it is killed, or ends; certificates change, and tokens, of which the earlier ones expire at once; the
API server answers 429 and 503, cuts watches, sends no bookmarks, or is restored from a backup. At every moment the
audit of the embedded cluster must find nothing, and in the end every pod runs. The seed says which mishaps come; when
they hit is up to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import trustme
from aiohttp import web

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from embedded_cluster import RequestFault
from embedded_cluster.apiserver.access import Attributes
from embedded_cluster.apiserver.statuses import StatusError
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.hardware import GPU_DRIVER
from embedded_cluster.invariants import violations
from embedded_cluster.objects import FullPod
from tests.e2e.components import free_port
from tests.support.http.certificates import write_certificate
from tests.support.patience import LONGEST
from tests.support.service.backups import back_up, restore
from tools.chaos.oddclock import VARIABLE
from tools.hostile.service import Service

NAME = "dra-extender"
CLOCKS = ("3600 0.01", "-3600 -0.01")
EXPIRED = "expired"
"""The user of tokens that are no longer valid."""
PODS = 12
"""At a time; there are as many devices."""
SETTLED = 150.0
"""Seconds after a set-back until claims that were written during it are rolled back: their writer may stand still."""


class Replica(Service):
    """A process of the service."""

    module = "tools.chaos.oddclock"
    stopped = False

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        self.stopped = number == signal.SIGSTOP


class Front:
    """Sends each call to one of the replicas, over mutual TLS, and answers 503 when that fails."""

    def __init__(self, replicas: list[Replica], trust: Callable[[], ssl.SSLContext], dice: random.Random) -> None:
        self.answers: Counter[str] = Counter()
        self._replicas, self._trust, self._dice = replicas, trust, dice

    async def forward(self, request: web.Request) -> web.Response:
        replica, body = self._dice.choice(self._replicas), await request.read()
        connector, limit = aiohttp.TCPConnector(ssl=self._trust()), aiohttp.ClientTimeout(total=30.0)
        verb = request.path.rpartition("/")[2]
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
                headers = {"Content-Type": "application/json"}
                async with session.post(replica.verbs + request.path, data=body, headers=headers) as reply:
                    self.answers[f"{verb} {reply.status}"] += 1
                    return web.Response(body=await reply.read(), status=reply.status, content_type="application/json")
        except (aiohttp.ClientError, TimeoutError) as problem:
            self.answers[f"{verb} {type(problem).__name__}"] += 1
            return web.Response(status=503)


class FrontDoor:
    """The cluster, the replicas, and what happens to them."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.ran = 0
        self.peace = False
        """No new pods any more."""
        self._set_back_at = float("-inf")
        self.url = ""
        """Of the front, for kube-scheduler."""
        self.cluster = cluster
        self._directory = directory
        self._dice = random.Random(seed)
        self._authority = trustme.CA()
        self._serial = self._token = 0
        self.rotate()
        self.renew_token()
        cluster.server.access.policy = self._may
        (directory / "config").write_text(_kubeconfig(cluster.url, directory / "token"))
        self.replicas = [self._replica(number) for number in range(len(CLOCKS))]
        self.front = Front(self.replicas, self._trust, random.Random(f"front {seed}"))

    def _replica(self, number: int) -> Replica:
        verbs, insight = (f"127.0.0.1:{free_port()}" for _ in range(2))
        certificate, key, ca = (str(self._directory / name) for name in ("tls.crt", "tls.key", "ca.crt"))
        settings = {
            "listen": verbs, "insight_listen": insight, "kubeconfig": str(self._directory / "config"),
            "tls_cert": certificate,
            "tls_key": key, "tls_client_ca": ca, "leader_election": "true", "advertise": "127.0.0.1", "peer_name": NAME,
            "identity": f"replica-{number}", "lease_duration": "5", "renew_deadline": "3", "retry_period": "1",
            "api_timeout": "5", "bind_timeout": "10", "sweep_after": "20", "scheduler_names": "dra-scheduler",
        }  # fmt: skip
        environment = {f"DRA_EXTENDER_{name.upper()}": value for name, value in settings.items()}
        environment[VARIABLE] = CLOCKS[number]
        return Replica(f"https://{verbs}", f"http://{insight}", (), environment, self._directory / f"{number}.log")

    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._directory / "ca.crt"))
        context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")
        context.check_hostname = False
        return context

    # --- what goes on ------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Pods come, run, and go."""
        store = self.cluster.store
        while True:
            pods = self.cluster.pods("default")
            for pod in pods:
                ends = pod.status.phase == "Running" and self._dice.random() < 0.1
                if ends or self._lost_its_claim(pod):
                    self.ran += ends
                    store.delete("pods", pod.metadata.name, "default")
                    store.delete("resourceclaims", f"c{pod.metadata.name[1:]}", "default")
            if len(pods) < PODS and not self.peace:
                self._serial += 1
                store.create(_claim(f"c{self._serial}", self._dice.choice([1, 1, 2])))
                store.create(_pod(f"p{self._serial}", f"c{self._serial}"))
            await asyncio.sleep(0.2)

    def _lost_its_claim(self, pod: FullPod) -> bool:
        """It was being bound while the API server was set back. The runbook says to delete it."""
        claim = self.cluster.claim("default", f"c{pod.metadata.name[1:]}")
        return self.counts["set back"] > 0 and bool(pod.spec.node_name) and (claim is None or claim.allocation is None)

    async def watch(self) -> None:
        """Whatever is stored must be right."""
        while True:
            found = [line for line in self._audit() if line not in self.wrong]
            self.wrong += found
            await asyncio.sleep(0.05)

    def _audit(self) -> list[str]:
        """A claim that was written while the API server was set back is rolled back. No two pods are bound with it."""
        cluster, now = self.cluster, asyncio.get_running_loop().time()
        if now > self._set_back_at + SETTLED:
            return cluster.audit()
        nodes = {found["metadata"]["name"]: convert(Node, found) for found in cluster.store.list("nodes")}
        bound = {pod.metadata.uid for pod in cluster.pods() if pod.spec.node_name}
        claims = [found for found in cluster.claims() if bound & {user.uid for user in found.status.reserved_for}]
        return violations(claims, cluster.pods(), cluster.slices(), nodes)

    async def mishaps(self, seconds: float) -> None:
        """One after another."""
        end = asyncio.get_running_loop().time() + seconds
        kinds = [self._stop, self._stop, self._stop_before_binding, self._stop_before_binding, self._storm]
        kinds += [self._storm, self._kill, self._end, self._rotation, self._new_token, self._watches, self._set_back]
        while asyncio.get_running_loop().time() < end:
            kind = self._dice.choice(kinds)
            self.counts[kind.__name__.strip("_").replace("_", " ")] += 1
            await kind()
            await asyncio.sleep(self._dice.choice([0.1, 2.0, 5.0]))

    def rotate(self) -> None:
        write_certificate(self._directory, self._authority, NAME)

    async def _rotation(self) -> None:
        self.rotate()

    def renew_token(self) -> None:
        """The replicas find a new token in their file, and the earlier ones expire."""
        self._token += 1
        fresh = self._directory / "token.new"
        fresh.write_text(f"token-{self._token}")
        fresh.replace(self._directory / "token")
        users = {f"token-{number}": EXPIRED for number in range(self._token)}
        self.cluster.server.access.tokens = users | {f"token-{self._token}": NAME}

    async def _new_token(self) -> None:
        self.renew_token()

    def _may(self, attributes: Attributes) -> bool:
        """Every user may do everything. Raises StatusError for expired tokens."""
        if attributes.user == EXPIRED:
            self.counts["request with an expired token"] += 1
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return True

    async def _stop(self, seconds: float = 0.0) -> None:
        """A process that stands still."""
        replica = self._dice.choice(self.replicas)
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds or self._dice.choice([1.0, 8.0, 30.0]))
        replica.signal(signal.SIGCONT)

    async def _stop_before_binding(self) -> None:
        """The binding is on its way, its sender stands still, and it is carried out when that wakes."""
        held = RequestFault(verb="create", resource="pods/binding", until=asyncio.Event(), times=1)
        self.cluster.faults.add(held)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10.0):
                while not held.hits:
                    await asyncio.sleep(0.001)
        for replica in self.replicas:
            replica.signal(signal.SIGSTOP)
        leader = self._dice.choice(self.replicas)
        for replica in self.replicas:
            if replica is not leader:
                replica.signal(signal.SIGCONT)
        await asyncio.sleep(self._dice.choice([12.0, 100.0]))
        assert held.until is not None
        held.until.set()
        self.cluster.faults.remove(held)
        leader.signal(signal.SIGCONT)

    async def _storm(self) -> None:
        """Throttling with Retry-After, or a server that is not there."""
        status, share = self._dice.choice([429, 503]), self._dice.choice([0.3, 0.8])
        fault = RequestFault(user_agent="dra-extender*", status=status, probability=share)
        self.cluster.faults.add(fault)
        await asyncio.sleep(self._dice.choice([2.0, 10.0]))
        self.cluster.faults.remove(fault)

    async def _watches(self) -> None:
        """They break, have to list again, or get no bookmarks."""
        server = self.cluster.server
        self._dice.choice([self.cluster.faults.cut_watches, self.cluster.faults.expire_watches])()
        server.bookmark_interval = self._dice.choice([1.0, 10.0, 1e6])

    async def _set_back(self) -> None:
        """A backup is restored, and kube-scheduler, controllers and kubelet start again, as Kubernetes requires."""
        server, backup = self.cluster.server, back_up(self.cluster.server)
        await asyncio.sleep(self._dice.choice([0.5, 2.0, 10.0]))
        restore(server, backup, bump=self._dice.choice([0, 10**6]))
        self._set_back_at = asyncio.get_running_loop().time()
        await self.cluster.restart_controllers()
        await self.cluster.schedule_with(self.url)

    async def _kill(self) -> None:
        replica = self._dice.choice(self.replicas)
        await replica.kill()
        await replica.start()

    async def _end(self) -> None:
        """As a rolling upgrade does."""
        replica = self._dice.choice(self.replicas)
        await replica.stop()
        await replica.start()

    async def settle(self) -> None:
        """Peace: no pod waits for ever."""
        self.peace = True
        for replica in self.replicas:
            replica.signal(signal.SIGCONT)
        self.cluster.faults.clear()
        self.cluster.server.bookmark_interval = 1.0
        try:
            await self.cluster.wait_until(lambda: not self.cluster.pods("default"), 3 * LONGEST, "all pods run")
        except TimeoutError as problem:
            self.wrong.append(str(problem))


def _kubeconfig(server: str, token: Path) -> str:
    """How the replicas reach the API server, with the token in this file."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "replica", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "replica"}}],
        "current-context": "here",
    }
    return json.dumps(config)


def _claim(name: str, count: int) -> dict[str, Any]:
    exactly = {"deviceClassName": GPU_DRIVER, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def _pod(name: str, claim: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "dra-scheduler",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        },
    }


@contextlib.asynccontextmanager
async def _served(front: Front) -> AsyncIterator[str]:
    """The address of a Service."""
    application = web.Application(client_max_size=2**24)
    application.router.add_post("/{path:.*}", front.forward)
    runner = web.AppRunner(application)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def run(seed: int, seconds: float, directory: Path) -> FrontDoor:
    """`seconds` of mishaps, then peace."""
    async with EmbeddedCluster(nodes=4, devices=PODS // 4, seed=seed) as cluster:
        door = FrontDoor(cluster, directory, seed)
        try:
            async with _served(door.front) as url:
                await asyncio.gather(*(replica.start() for replica in door.replicas))
                door.url = url
                await cluster.schedule_with(url)
                tasks = [asyncio.create_task(door.work()), asyncio.create_task(door.watch())]
                await door.mishaps(seconds)
                await door.settle()
                for task in tasks:
                    task.cancel()
        finally:
            for replica in door.replicas:
                replica.signal(signal.SIGCONT)
                await replica.kill()
    return door


def main() -> int:
    parser = argparse.ArgumentParser(description="Stop, kill and disturb replicas that are processes.")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the mishaps")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="dra-extender-") as directory:
        door = asyncio.run(run(options.seed, options.seconds, Path(directory)))
    print(f"seed {options.seed}: {door.ran} pods ran", dict(door.counts), dict(door.front.answers))
    for line in door.wrong:
        print(line)
    print(f"violations: {len(door.wrong)}")
    return int(bool(door.wrong))


if __name__ == "__main__":
    raise SystemExit(main())
