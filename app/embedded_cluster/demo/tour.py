"""A guided tour: pods wait, the service says why, the remedy is applied, and the pods run.

Promises: a line after `$` is what a user would type. The tour asks the service with these commands, and changes the
cluster as kubectl would. A stop ends when what it describes has happened. Raises TimeoutError when it does not happen.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.manifests import samples
from embedded_cluster.objects import FullPod

_PATIENCE: Final = 60.0
"""Seconds."""
_SAMPLES: Final = "dra-samples"
_WRONG, _RIGHT = "NO-SUCH-MODEL", "LATEST-GPU-MODEL"
NODES: Final = 4
"""Of a cluster that the tour leads through; the small pods get one each, as they ask for CPU."""
_SMALL: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: small, namespace: dra-samples}
spec:
  replicas: 4
  selector: {matchLabels: {app: small}}
  template:
    metadata: {labels: {app: small}}
    spec:
      schedulerName: dra-scheduler
      containers:
      - name: main
        image: registry.k8s.io/pause:3.10
        resources: {claims: [{name: gpu}], requests: {cpu: "2"}}
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
"""
_BIG: Final = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: whole-node, namespace: dra-samples}
spec:
  devices:
    requests:
    - name: gpus
      exactly:
        deviceClassName: gpu.example.com
        count: COUNT
        selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model == "LATEST-GPU-MODEL"'}}]
---
apiVersion: v1
kind: Pod
metadata: {name: whole-node, namespace: dra-samples}
spec:
  schedulerName: dra-scheduler
  containers: [{name: main, image: "registry.k8s.io/pause:3.10", resources: {claims: [{name: gpus}]}}]
  resourceClaims: [{name: gpus, resourceClaimName: whole-node}]
"""


class Tour:
    """`say` shows lines, `go_on` waits until people want the next stop."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        kubeconfig: Path,
        devices: int,
        say: Callable[[str], object],
        go_on: Callable[[], Awaitable[object]],
    ) -> None:
        self._cluster = cluster
        self._kubeconfig = kubeconfig
        self._devices = devices
        self._say = say
        self._go_on = go_on

    async def run(self) -> None:
        """All stops."""
        stops = (self._waits, self._remedy, self._breaks, self._preempts, self._makes_room)
        for number, stop in enumerate(stops, start=1):
            self._say("")
            await stop(f"{number} of {len(stops)}")
            await self._go_on()
        self._say("")
        self._say("That was the tour. `make demo` shows the same cluster with all samples, and its page in a browser.")

    # --- the stops

    async def _waits(self, number: str) -> None:
        self._title(number, "A pod waits. Why?")
        await self._apply("deployment", "unschedulable")
        await self._until(lambda: self._waiting("unschedulable"), "pod unschedulable is refused")
        await self._ask("why", "unschedulable", "-n", _SAMPLES)

    async def _remedy(self, number: str) -> None:
        self._title(number, "The remedy is applied, and the pod runs.")
        self._typed(f"sed s/{_WRONG}/{_RIGHT}/ manifests/samples/unschedulable.yaml | kubectl replace --force -f -")
        text = (samples() / "unschedulable.yaml").read_text(encoding="utf-8")
        for kind in ("pods", "resourceclaims"):
            name = "unschedulable" if kind == "pods" else "no-such-gpu"
            await self._cluster.delete(kind, name, _SAMPLES)
            await self._gone(kind, name)
        await self._cluster.apply(text.replace(_WRONG, _RIGHT))
        await self._runs("unschedulable")

    async def _breaks(self, number: str) -> None:
        self._title(number, "Its GPU breaks: the driver taints it, and the pod is evicted.")
        pool, device = self._device("no-such-gpu")
        self._say(f"the driver taints {device} of {pool} with broken:NoExecute")
        await self._cluster.driver.taint(pool, device, "broken", "NoExecute")
        await self._until(lambda: not self._stored("pods", "unschedulable"), f"the pod leaves {pool}")
        self._say("pod unschedulable is gone; no other pod gets the device:")
        await self._ask("devices", "--node", pool)
        await self._cluster.driver.untaint(pool, device, "broken")

    async def _preempts(self, number: str) -> None:
        self._title(number, "Both GPUs are taken, and an urgent pod comes.")
        await self._apply("preemption", "preemption-urgent")
        await self._runs("urgent", "dra-preemption")
        for reason, note in self._cluster.events("dra-preemption", "urgent"):
            if reason.startswith("Preempt"):
                self._say(f"  event on urgent: {reason}: {note}")

    async def _makes_room(self, number: str) -> None:
        self._title(number, "A pod wants all GPUs of a node, but on every node one is in use.")
        self._typed("kubectl apply -f small.yaml -f whole-node.yaml")
        await self._cluster.apply(_SMALL)
        await self._until(lambda: len(self._small()) == NODES and self._all_run(), "the small pods run")
        await self._cluster.apply(_BIG.replace("COUNT", str(self._devices)))
        await self._until(lambda: self._waiting("whole-node"), "pod whole-node is refused")
        await self._ask("compact", "whole-node", "-n", _SAMPLES)
        advice = msgspec.json.decode(await self._answer("compact", "whole-node", "-n", _SAMPLES, "-o", "json"))
        node = advice["node"]
        self._typed(f"kubectl cordon {node}")
        await self._cordon(node, True)
        for move in advice["moves"]:
            namespace, _, name = move["pod"].partition("/")
            self._typed(f"kubectl delete pod {name} -n {namespace}")
            await self._cluster.delete("pods", name, namespace)
            await self._gone("pods", name, namespace)
        await self._until(self._all_run, "the moved pods run again")
        self._typed(f"kubectl uncordon {node}")
        await self._cordon(node, False)
        await self._runs("whole-node")

    # --- doing

    async def _apply(self, *names: str) -> None:
        for name in names:
            self._typed(f"kubectl apply -f manifests/samples/{name}.yaml")
            await self._cluster.apply_samples(name)

    async def _runs(self, name: str, namespace: str = _SAMPLES) -> None:
        await self._until(lambda: self._cluster.running(namespace, name), f"pod {name} runs")
        self._say(f"pod {name} runs on {self._node(name, namespace)}")

    async def _gone(self, plural: str, name: str, namespace: str = _SAMPLES) -> None:
        await self._until(lambda: not self._stored(plural, name, namespace), f"{name} is gone")

    async def _until(self, happened: Callable[[], object], what: str) -> None:
        await self._cluster.wait_until(happened, _PATIENCE, what)

    async def _cordon(self, node: str, away: bool) -> None:
        body = msgspec.json.encode({"spec": {"unschedulable": away}})
        await self._cluster.client.patch(f"/api/v1/nodes/{node}", body)

    async def _ask(self, *arguments: str) -> None:
        """What the command answers, for everybody to see."""
        self._typed(" ".join(("dra-extender", *arguments)))
        for line in (await self._answer(*arguments)).decode().splitlines():
            self._say(line)

    async def _answer(self, *arguments: str) -> bytes:
        command = [sys.executable, "-m", "dra_extender.cli", *arguments]
        environment = os.environ | {"KUBECONFIG": str(self._kubeconfig.resolve()), "COLUMNS": "98"}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment)
        answer, problems = await process.communicate()
        return answer or problems

    # --- looking

    def _waiting(self, name: str, namespace: str = _SAMPLES) -> bool:
        pod = self._cluster.pod(namespace, name)
        return pod is not None and pod.condition is not None and pod.condition.reason == "Unschedulable"

    def _small(self) -> list[FullPod]:
        return [pod for pod in self._cluster.pods(_SAMPLES) if pod.metadata.labels.get("app") == "small"]

    def _all_run(self) -> bool:
        pods = self._cluster.pods(_SAMPLES)
        return all(pod.status.phase == "Running" for pod in pods if pod.metadata.name != "whole-node")

    def _stored(self, plural: str, name: str, namespace: str = _SAMPLES) -> bool:
        return self._cluster.store.get(plural, name, namespace) is not None

    def _node(self, name: str, namespace: str = _SAMPLES) -> str:
        pod = self._cluster.pod(namespace, name)
        return pod.spec.node_name if pod is not None else ""

    def _device(self, claim: str) -> tuple[str, str]:
        """(pool, device) that the claim has."""
        found = self._cluster.claim(_SAMPLES, claim)
        assert found is not None and found.allocation is not None, claim
        result = found.allocation.devices.results[0]
        return result.pool, result.device

    # --- telling

    def _title(self, number: str, text: str) -> None:
        self._say(f"{number}: {text}")

    def _typed(self, command: str) -> None:
        self._say(f"$ {command}")
