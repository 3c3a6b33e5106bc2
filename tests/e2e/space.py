"""A namespace, and what can be seen of it and waited for in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dra_extender.api.errors import NotFoundError
from embedded_cluster.objects import FullPod
from tests.e2e.ground import Ground
from tests.support.patience import LONGEST

Body = dict[str, Any]


class Space:
    """Pods and claims by name. Waits end when it happens, and raise AssertionError when it does not."""

    def __init__(self, ground: Ground, name: str) -> None:
        self.ground = ground
        self.name = name

    def claim_path(self, name: str) -> str:
        return f"/apis/resource.k8s.io/v1/namespaces/{self.name}/resourceclaims/{name}"

    def pod_path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.name}/pods/{name}"

    def key(self, name: str) -> str:
        return f"{self.name}/{name}"

    def stored_claim(self, name: str) -> Body:
        return dict(self.ground.get(self.claim_path(name)))

    def stored_pod(self, name: str) -> Body:
        return dict(self.ground.get(self.pod_path(name)))

    def results(self, claim: str) -> list[Body]:
        """What the claim was given; empty when it is not allocated."""
        allocation = self.stored_claim(claim).get("status", {}).get("allocation")
        return list(allocation["devices"]["results"]) if allocation else []

    def devices(self, claim: str) -> list[str]:
        return [result["device"] for result in self.results(claim)]

    def reserved(self, claim: str) -> set[str]:
        """The names of the consumers."""
        return {entry["name"] for entry in self.stored_claim(claim).get("status", {}).get("reservedFor", ())}

    def node(self, name: str) -> str:
        """The node of a pod; empty while it has none."""
        pod = self._pod(name)
        return pod.spec.node_name if pod is not None else ""

    def told(self, name: str) -> str:
        """reason: message of the pod's PodScheduled condition while it is False."""
        pod = self._pod(name)
        found = pod.condition if pod is not None else None
        return f"{found.reason}: {found.message}" if found is not None and found.status == "False" else ""

    def told_by(self, name: str, reporter: str = "dra-extender") -> list[str]:
        """What a component has told about a pod."""
        found = self.ground.get(f"/api/v1/namespaces/{self.name}/events")["items"]
        of_pod = (each for each in found if each["involvedObject"]["name"] == name)
        return [each["message"] for each in of_pod if each["reportingComponent"] == reporter]

    def phase(self, name: str) -> str:
        """The node of a pod; empty when the pod is gone."""
        pod = self._pod(name)
        return pod.status.phase if pod is not None else ""

    def _pod(self, name: str) -> FullPod | None:
        return self.ground.pod(self.key(name))

    # --- waiting

    def until_bound(self, name: str, seconds: float = LONGEST) -> str:
        """The node."""
        return self.ground.eventually(lambda: self.node(name), f"binding of {name} ({self.told(name)})", seconds)

    def until_runs(self, *names: str) -> None:
        """Until kubelet has found the claims of these pods in order and started them."""
        for name in names:
            self.ground.eventually(lambda name=name: self.phase(name) == "Running", f"start of {name}")  # type: ignore[misc]

    def until_refused(self, name: str, *texts: str) -> str:
        """The condition, once it says all that."""

        def refused() -> str:
            told = self.told(name)
            return told if told and all(text in told for text in texts) else ""

        return self.ground.eventually(refused, f"refusal of {name} with {texts}, now {self.told(name)!r},")

    def until_free(self, claim: str) -> None:
        """Until the claim is not allocated, or gone."""

        def free() -> bool:
            try:
                return not self.results(claim)
            except NotFoundError:
                return True

        self.ground.eventually(free, f"deallocation of {claim}")

    def bound(self, names: Iterable[str]) -> list[str]:
        """Those that are bound now."""
        return [name for name in names if self.node(name)]
