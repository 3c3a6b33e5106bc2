"""A cluster to install into: nodes whose pods run, the stock kube-scheduler, and its programs as processes.

There are no containers here. The stand-in for kubelet marks pods as running, and what would run in them is
started as a process, from nothing but what the release has put into the API server: environment, Secrets, ConfigMaps,
and the tokens of its service accounts. Only addresses and the places of files are other ones. If the control plane has
an `egress`, the API server reaches the insight port of the extender's process at the address of every pod.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import yaml

from dra_extender.api.resource import ResourceClaim
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.events import EventRecorder
from dra_extender.kube.resources import RESOURCE_CLAIMS
from embedded_cluster import hardware
from embedded_cluster.informer import Informer
from embedded_cluster.kubelet import Kubelet
from embedded_cluster.objects import PODS, FullPod
from tests.e2e.components import free_port
from tests.e2e.controlplane import ControlPlane
from tests.e2e.ground import claims_of
from tests.support.chart.egress import Egress
from tests.support.chart.helm import NAMESPACE, ROOT, Document
from tests.support.patience import LONGEST

NODES = 2
INSIGHT = 8080
"""The port of the pods, in the chart."""
T = TypeVar("T")

_RESOLVED = """
import socket
_ask = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: _ask("127.0.0.1" if host.endswith(".svc") else host, *rest, **more)
"""
"""Before the program of a pod: the names of Services, which a cluster would resolve."""


class Site:
    """Enter it to bring nodes, kubelet and the cluster's own scheduler up. `insight`: where the port of the pods is."""

    def __init__(self, plane: ControlPlane, nodes: int = NODES) -> None:
        self.plane = plane
        self.insight = 0
        self._nodes = nodes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="site", daemon=True)
        self._tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        self.plane.start_scheduler()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, run where the client lives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LONGEST)

    async def _start(self) -> None:
        settings = ClientSettings(kubeconfig=str(self.plane.admin_kubeconfig), timeout=LONGEST)
        self._client = await KubeClient.connect(settings)
        for index in range(self._nodes):
            await self._client.create("/api/v1/nodes", msgspec.json.encode(hardware.node(index)))
        pods: Informer[FullPod] = Informer(self._client, PODS, indexes={"claim": claims_of})
        claims: Informer[ResourceClaim] = Informer(self._client, RESOURCE_CLAIMS)
        events = EventRecorder(self._client, "site", controller="kubelet")
        self._kubelet = Kubelet(self._client, pods, claims, events)
        self._tasks = [asyncio.create_task(job.run()) for job in (pods, claims, events, self._kubelet)]
        await asyncio.gather(pods.synced.wait(), claims.synced.wait())
        if self.plane.egress:
            egress = Egress(lambda port: self.insight if port == INSIGHT else 0)
            self._tasks.append(asyncio.create_task(egress.run(self.plane.egress)))

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def ended(self, namespace: str, name: str, phase: str = "Succeeded") -> None:
        """The containers of a running pod have exited, from now on."""
        self.run(self._kubelet.finish(namespace, name, phase))

    def get(self, *what: str) -> Document:
        """What kubectl gets, as JSON; an empty one when it is not there."""
        said = self.plane.kubectl("get", *what, "--output=json", "--ignore-not-found")
        return dict(json.loads(said)) if said else {}


def eventually(look: Callable[[], T], what: str, otherwise: Callable[[], str] = str) -> T:
    """What `look` gives as soon as it is true. Raises AssertionError with what `otherwise` says."""
    deadline = time.monotonic() + LONGEST
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen\n{otherwise()}")
        time.sleep(0.05)
    return seen


class Programs:
    """What runs in the pods of a release, as processes: one replica of the extender, and the second kube-scheduler."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self._port, self._insight = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(LONGEST)

    def files(self, kind: str, name: str) -> Path:
        """A Secret or ConfigMap of the release as the folder that a pod would have it mounted as."""
        found = self._site.get(kind, name, f"--namespace={NAMESPACE}")
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        for file, content in found["data"].items():
            (folder / file).write_bytes(base64.b64decode(content) if kind == "secret" else content.encode())
        return folder

    def extender(self, deployment: str = "dra-extender") -> None:
        """Start one replica, and wait until it is ready. Raises AssertionError with its log."""
        spec = self._site.get("deployment", deployment, f"--namespace={NAMESPACE}")["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        (volume,) = (each for each in spec["volumes"] if each["name"] == "tls")
        mount = next(each["mountPath"] for each in container["volumeMounts"] if each["name"] == "tls")
        files = str(self.files("secret", volume["secret"]["secretName"]))
        of_the_pod = {
            "metadata.namespace": NAMESPACE,
            "metadata.name": deployment,
            "status.podIP": "127.0.0.1",
        }
        made = {
            entry["name"]: of_the_pod[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            if "valueFrom" in entry
            else entry.get("value", "").replace(mount, files)
            for entry in container["env"]
        }
        kubeconfig = self._site.plane.service_account_kubeconfig(NAMESPACE, spec["serviceAccountName"])
        made |= {
            "DRA_EXTENDER_LISTEN": f"127.0.0.1:{self._port}",
            "DRA_EXTENDER_INSIGHT_LISTEN": f"127.0.0.1:{self._insight}",
            "DRA_EXTENDER_KUBECONFIG": str(kubeconfig),
            "DRA_EXTENDER_SHUTDOWN_LINGER": "0",  # no endpoints lead here
        }
        self._authority = Path(files) / "ca.crt"
        self._site.insight = self._insight
        self._processes.append(
            self._process([sys.executable, "-m", "dra_extender.cli", *container["args"]], made, "extender")
        )
        eventually(lambda: self.page("/readyz")[0] == 200, "a replica that is ready", self.logs)

    def scheduler(self, deployment: str = "dra-scheduler") -> None:
        """Start the second kube-scheduler with the flags and the configuration of its Deployment."""
        spec = self._site.get("deployment", deployment, f"--namespace={NAMESPACE}")["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        volumes = {each["name"]: each for each in spec["volumes"]}
        config = yaml.safe_load(
            (self.files("configmap", volumes["config"]["configMap"]["name"]) / "config.yaml").read_text()
        )
        secret = str(self.files("secret", volumes["client-tls"]["secret"]["secretName"]))
        mount = next(each["mountPath"] for each in container["volumeMounts"] if each["name"] == "client-tls")
        self._call_here(config, mount, secret)
        kubeconfig = self._site.plane.service_account_kubeconfig(NAMESPACE, spec["serviceAccountName"])
        config["clientConnection"]["kubeconfig"] = str(kubeconfig)
        file = self._folder / "config.yaml"
        file.write_text(yaml.safe_dump(config))
        flags = [flag for flag in container["command"][1:] if not flag.startswith("--config=")]
        binary = str(self._site.plane.binaries / container["command"][0])
        command = [binary, f"--config={file}", f"--secure-port={free_port()}", *flags]
        self._processes.append(self._process(command, {}, "scheduler"))

    def stock_scheduler(self, copied: Path) -> None:
        """Start the cluster's own kube-scheduler with what was copied to `copied`, as to the /etc of a node."""
        config = yaml.safe_load((copied / "kubernetes" / "dra-extender.yaml").read_text())
        self._call_here(config, "/etc", str(copied))
        self._site.plane.start_scheduler("called-stock", config, {"SchedulerPopFromBackoffQ": False})

    def _call_here(self, config: Document, mount: str, files: str) -> None:
        """The address is here; the name in the certificate is still the Service's, as kube-scheduler checks it."""
        for entry in config["extenders"]:
            entry["urlPrefix"] = f"https://127.0.0.1:{self._port}/{entry['urlPrefix'].rpartition('/')[2]}"
            tls = entry["tlsConfig"]
            tls |= {key: value.replace(mount, files) for key, value in tls.items() if key.endswith("File")}

    def run(self, spec: Document) -> int:
        """Run what the container of a pod would, to its end: the exit status."""
        (container,) = spec["containers"]
        secrets = {each["name"]: each["secret"]["secretName"] for each in spec.get("volumes", ()) if "secret" in each}
        made = {entry["name"]: entry["value"] for entry in container.get("env", ())}
        for mount in container.get("volumeMounts", ()):
            if mount["name"] in secrets:
                files = str(self.files("secret", secrets[mount["name"]]))
                made = {name: value.replace(mount["mountPath"], files) for name, value in made.items()}
        if not container.get("command"):
            return self._process([sys.executable, "-m", "dra_extender.cli", *container["args"]], made, "test").wait(
                LONGEST
            )
        assert container["command"] == ["python", "-c"]
        (code,) = container["args"]
        made = {name: value.replace(":8443", f":{self._port}") for name, value in made.items()}
        return self._process([sys.executable, "-c", _RESOLVED + code], made, "test").wait(LONGEST)

    def logs(self) -> str:
        """The ends of all that was written."""
        return "\n".join(f"--- {file.name}\n{file.read_text()[-2000:]}" for file in self._folder.glob("*.log"))

    def page(self, path: str, token: str = "") -> tuple[int, str]:
        """Status and text of a page of the insight address; 0 when no process answers."""
        request = urllib.request.Request(f"https://127.0.0.1:{self._insight}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        trust = ssl.create_default_context(cafile=str(self._authority))
        trust.check_hostname = False  # the name of the Service, which only the cluster can resolve
        try:
            with urllib.request.urlopen(request, timeout=LONGEST, context=trust) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def _process(self, command: list[str], made: dict[str, str], name: str) -> subprocess.Popen[bytes]:
        environment = {each: value for each, value in os.environ.items() if each != "KUBECONFIG"} | made
        with (self._folder / f"{name}.log").open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
