"""The life of a pod as kube-scheduler asks for it: filter, prioritize, bind, against a running service.

Every simulated user creates a claim and a pod of its own, walks the pod through the verbs with all nodes as
candidates, checks each answer, and deletes both again, so that the cluster neither fills up nor empties. Pods name a
scheduler that does not exist, so only this load test touches them.

Two addresses: `--host` is the service; the environment variable APISERVER_URL is the API server (plain HTTP, as that
of the embedded cluster). `python -m loadtest` starts both and this file.
"""

from __future__ import annotations

import itertools
import os
import uuid
from typing import Any

from locust import FastHttpUser, events, task
from locust.env import Environment

API_SERVER = os.environ.get("APISERVER_URL", "http://127.0.0.1:8001").rstrip("/")
NAMESPACE = "loadtest"
CLAIMS = f"{API_SERVER}/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
PODS = f"{API_SERVER}/api/v1/namespaces/{NAMESPACE}/pods"
UNTIMED = "(cluster) "

_numbers = itertools.count()


def claim_body(name: str) -> dict[str, Any]:
    """One GPU with at least 10Gi: a selector, a class, a device."""
    selector = "device.capacity['gpu.example.com'].memory.compareTo(quantity('10Gi')) >= 0"
    exactly = {"deviceClassName": "gpu.example.com", "selectors": [{"cel": {"expression": selector}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def pod_body(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "loadtest",
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
    }


class Scheduler(FastHttpUser):
    """One pod after the other, as fast as the answers come."""

    nodes: tuple[str, ...] = ()

    def on_start(self) -> None:
        listed = self.client.get(f"{API_SERVER}/api/v1/nodes", name=UNTIMED + "list nodes").json()
        self.nodes = tuple(node["metadata"]["name"] for node in listed["items"])

    @task
    def place_a_pod(self) -> None:
        name = f"load-{next(_numbers)}-{uuid.uuid4().hex[:8]}"
        self.client.post(CLAIMS, json=claim_body(name), name=UNTIMED + "create claim")
        pod = self.client.post(PODS, json=pod_body(name), name=UNTIMED + "create pod").json()
        try:
            self._schedule(pod)
        finally:
            self.client.delete(f"{PODS}/{name}?gracePeriodSeconds=0", name=UNTIMED + "delete pod")
            self.client.delete(f"{CLAIMS}/{name}", name=UNTIMED + "delete claim")

    def _schedule(self, pod: dict[str, Any]) -> None:
        feasible = self._filter(pod)
        if feasible:
            best = self._prioritize(pod, feasible)
            self._bind(pod, best)

    def _filter(self, pod: dict[str, Any]) -> list[str]:
        body = {"Pod": pod, "Nodes": None, "NodeNames": self.nodes}
        with self.client.post("/scheduler/filter", json=body, name="filter", catch_response=True) as response:
            answer = response.json()
            if answer["Error"] or not answer["NodeNames"]:
                response.failure(answer["Error"] or "no node fits")
                return []
            return list(answer["NodeNames"])

    def _prioritize(self, pod: dict[str, Any], nodes: list[str]) -> str:
        body = {"Pod": pod, "Nodes": None, "NodeNames": nodes}
        scores = self.client.post("/scheduler/prioritize", json=body, name="prioritize").json()
        best = max(score["Score"] for score in scores)
        # kube-scheduler breaks ties at random; spreading by a counter does the same and is repeatable.
        candidates = [score["Host"] for score in scores if score["Score"] == best]
        return str(candidates[next(_numbers) % len(candidates)])

    def _bind(self, pod: dict[str, Any], node: str) -> None:
        metadata = pod["metadata"]
        body = {"PodName": metadata["name"], "PodNamespace": NAMESPACE, "PodUID": metadata["uid"], "Node": node}
        with self.client.post("/scheduler/bind", json=body, name="bind", catch_response=True) as response:
            if response.json()["Error"]:
                response.failure(response.json()["Error"])


@events.quitting.add_listener
def fail_on_errors(environment: Environment, **_: Any) -> None:
    """A load test with failed calls, or without any call, exits with 1."""
    total = environment.stats.total
    environment.process_exit_code = 1 if total.num_failures or not total.num_requests else 0
