"""A real control plane full of nodes with devices, and the two schedulers that are compared on it.

`Arena` is the control plane with its nodes and slices. A contestant enters for one round: everything it needs is
started, and stopped at the end, so that the two never compete for the machine. kube-controller-manager is left out: it
has nothing to do here, and its cost does not belong to scheduling.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from tests.e2e.components import Component, free_port
from tests.e2e.controlplane import ControlPlane
from tests.e2e.extender import SCHEDULER_GATES, Extender, insight_reader, scheduler_configuration, shipped_environment
from tests.e2e.pacing import together

ROOT = Path(__file__).parents[1]
NAMESPACE = "bench"
DRIVER = "gpu.example.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
CLASS = "gpu"
DEVICES = 10
"""Per node, two behind each PCIe root."""

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PODGROUPS = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{NAMESPACE}/podgroups"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"

GANG_GATES = {"GenericWorkload": True}
"""What makes kube-scheduler of 1.37 schedule PodGroups as gangs; in 1.36 that took GangScheduling as well."""

# Both schedulers get the same: more than they can use, so that no client waits for its own limit.
CLIENT = {"qps": 5000, "burst": 5000}
_CLIENTS = 24
"""Requests under way at the same time while objects are made and removed."""
_STARTING = 60.0
_TICK = os.sysconf("SC_CLK_TCK")


def node(index: int) -> dict[str, Any]:
    name = f"node-{index}"
    room = {"cpu": "64", "memory": "512Gi", "pods": "250"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{index % 3}"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": room, "capacity": room}}


def resource_slice(index: int) -> dict[str, Any]:
    name = f"node-{index}"
    return {
        "metadata": {"name": f"{name}-gpu"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(index, number) for number in range(DEVICES)],
        },
    }


def _device(index: int, number: int) -> dict[str, Any]:
    """As drivers publish them: with an attribute that no other device has."""
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "model": {"string": "H100"},
            "index": {"int": number},
            "uuid": {"string": f"GPU-{index:06d}-{number}-8a2b-4c3d"},
            "driverVersion": {"version": "570.12.1"},
            PCIE_ROOT: {"string": f"pci0000:{number // 2:02x}"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


class Arena:
    """Enter it with `async with`."""

    def __init__(self, directory: Path, nodes: int, *, gangs: bool = False) -> None:
        """`gangs`: PodGroups are served, and all components know gangs."""
        # The features as they are by default: no contestant pays for a feature that the row leaves unused.
        self._gates = GANG_GATES if gangs else {}
        served = ("scheduling.k8s.io/v1beta1=true",) if gangs else ()
        self.plane = ControlPlane(directory, feature_gates=self._gates, runtime_config=served, controllers=False)
        self.nodes = nodes
        self.profile: Path | None = None
        """Where the service writes what cProfile finds, when it ends: `bench.profiled`."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Arena:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self.plane)
            settings = ClientSettings(kubeconfig=str(self.plane.admin_kubeconfig), timeout=60)
            self.client = await stack.enter_async_context(await KubeClient.connect(settings))
            await self._set_up()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _set_up(self) -> None:
        for source in ("--filename={}/namespace.yaml", "--kustomize={}/rbac"):
            self.plane.kubectl("apply", source.format(ROOT / "manifests"))
        device_class = {
            "metadata": {"name": CLASS},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        }
        await self.create("/api/v1/namespaces", [{"metadata": {"name": NAMESPACE}}])
        account = {"metadata": {"name": "default"}}
        await self.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", [account])
        await self.create("/apis/resource.k8s.io/v1/deviceclasses", [device_class])
        await self.create("/api/v1/nodes", map(node, range(self.nodes)))
        await self.create("/apis/resource.k8s.io/v1/resourceslices", map(resource_slice, range(self.nodes)))

    async def create(self, path: str, objects: Iterable[Mapping[str, Any]]) -> None:
        """All of them, many at a time."""
        await self._each(self.client.create(path, msgspec.json.encode(made)) for made in objects)

    async def clear(self, names: Iterable[str], groups: Iterable[str] = ()) -> None:
        """Remove these pods and their claims, which have the same names, and these PodGroups. The devices are free
        again at once.
        """
        names, groups = list(names), list(groups)
        now = msgspec.json.encode({"gracePeriodSeconds": 0})
        release = msgspec.json.encode({"metadata": {"finalizers": None}})
        await self._each(self.client.delete(f"{PODS}/{name}", now) for name in names)
        await self._each(self.client.patch(f"{CLAIMS}/{name}", release) for name in names)
        await self._each(self.client.delete(f"{CLAIMS}/{name}") for name in names)
        await self._each(self.client.patch(f"{PODGROUPS}/{name}", release) for name in groups)
        await self._each(self.client.delete(f"{PODGROUPS}/{name}") for name in groups)

    async def writes(self) -> float:
        """Requests that changed something since the API server was started, events and leases left out."""
        lines = (await self.client.get("/metrics")).decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if _is_write(line))

    async def _each(self, calls: Iterable[Awaitable[bytes]]) -> None:
        await together(calls, _CLIENTS)

    # --- the contestants

    def contestant(
        self, ours: bool, percent: int = 0, tls: bool = True
    ) -> contextlib.AbstractAsyncContextManager[dict[str, int]]:
        """One of the two; `percent` of the nodes are looked at by theirs, offered by ours; 0: as they are shipped.
        `tls`: whether ours is asked over mutual TLS.
        """
        return self.ours(offered=percent, tls=tls) if ours else self.in_tree(percent)

    @contextlib.asynccontextmanager
    async def in_tree(self, percent: int = 0) -> AsyncIterator[dict[str, int]]:
        """The stock kube-scheduler. Gives the processes that take part, by name."""
        looks = {"percentageOfNodesToScore": percent} if percent else {}
        with self._scheduler("in-tree", {"clientConnection": CLIENT, **looks}) as pid:
            yield self.processes({"scheduler": pid})

    @contextlib.asynccontextmanager
    async def ours(self, weight: int = 0, offered: int = 0, *, tls: bool = True) -> AsyncIterator[dict[str, int]]:
        """The shipped configuration of a second kube-scheduler, perhaps with another `weight` of our scores, and the
        service as a process of its own, which offers this percentage of the nodes that fit; 0: the default. They
        speak mutual TLS with each other, as shipped, or without `tls` plain HTTP.
        """
        address, process = await asyncio.to_thread(self._start_service, offered, tls)
        try:
            config = scheduler_configuration("secondary-scheduler.yaml", f"https://{address}", self.plane.credentials)
            config |= {"leaderElection": {"leaderElect": False}, "clientConnection": CLIENT}
            config["profiles"][0]["schedulerName"] = "default-scheduler"
            for extender in config["extenders"]:
                if not tls:
                    extender["urlPrefix"] = f"http://{address}/scheduler"
                    del extender["enableHTTPS"], extender["tlsConfig"]
                if weight and "weight" in extender:
                    extender["weight"] = weight
            with self._scheduler("ours", config, {**SCHEDULER_GATES, **self._gates}) as pid:
                yield self.processes({"scheduler": pid, "extender": process.pid})
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 45)

    @contextlib.asynccontextmanager
    async def shipped(self, scheduler: str) -> AsyncIterator[tuple[Extender, Component]]:
        """The service and a second kube-scheduler of that name with all their shipped settings: TLS, leases,
        client limits.
        """
        plane = self.plane
        plane.kubectl("apply", f"--filename={ROOT / 'manifests' / 'rbac' / 'scheduler.yaml'}")
        account = plane.service_account_kubeconfig("dra-system", "dra-extender")
        extender = Extender(
            plane.directory / "logs", "dra-extender-0", plane.credentials, account, reader=insight_reader(plane)
        )
        config = scheduler_configuration("secondary-scheduler.yaml", extender.url, plane.credentials)
        account = plane.service_account_kubeconfig("dra-system", "dra-scheduler")
        try:
            await asyncio.to_thread(extender.start)
            yield extender, await asyncio.to_thread(plane.start_scheduler, scheduler, config, SCHEDULER_GATES, account)
        finally:
            if scheduler in plane.components:
                plane.stop_component(scheduler)
            await asyncio.to_thread(extender.stop)

    @contextlib.contextmanager
    def _scheduler(
        self, name: str, config: Mapping[str, Any], gates: Mapping[str, bool] | None = None
    ) -> Iterator[int]:
        component = self.plane.start_scheduler(name, config, gates)
        try:
            yield component.process.pid
        finally:
            self.plane.stop_component(name)

    def _start_service(self, offered: int, tls: bool) -> tuple[str, subprocess.Popen[bytes]]:
        """The address of its verbs, when it is ready."""
        kubeconfig = self.plane.service_account_kubeconfig("dra-system", "dra-extender")
        address, probes = (f"127.0.0.1:{free_port()}" for _ in range(2))
        command = [sys.executable, "-m", "dra_extender.cli", "serve", "--listen", address, "--insight-listen", probes]
        command += ["--kubeconfig", str(kubeconfig)]
        command += ["--offered-percent", str(offered or shipped_environment()["DRA_EXTENDER_OFFERED_PERCENT"])]
        if tls:
            certificate, key = self.plane.credentials.serving("dra-extender")
            command += ["--tls-cert", str(certificate), "--tls-key", str(key)]
            command += ["--tls-client-ca", str(self.plane.credentials.ca_file)]
        if self.profile is not None:
            command[2:3] = ["bench.profiled", str(self.profile)]
        with (self.plane.directory / "logs" / "extender.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip
        try:
            _until_ready(f"http://{probes}", process)
        except TimeoutError:
            process.kill()
            raise
        return address, process

    def processes(self, more: Mapping[str, int]) -> dict[str, int]:
        """The process numbers of the control plane and of these, by name."""
        shared = ("kube-apiserver", "etcd")
        return {name.removeprefix("kube-"): self.plane.components[name].process.pid for name in shared} | dict(more)


def cpu_seconds(processes: Mapping[str, int]) -> dict[str, float]:
    """What each has used since its start."""
    return {name: _cpu(pid) for name, pid in processes.items()}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _is_write(line: str) -> bool:
    if not line.startswith("apiserver_request_total{"):
        return False
    if not any(f'verb="{verb}"' in line for verb in ("POST", "PUT", "PATCH", "DELETE")):
        return False
    return not any(f'resource="{name}"' in line for name in ("events", "leases"))


def _until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + _STARTING
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=5):
            return
        time.sleep(0.1)
    raise TimeoutError("the service is not ready")
