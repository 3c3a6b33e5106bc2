"""What users and workload controllers do in a chaotic world: pods and claims come, go, and come back under their names.

The claim controller and the garbage collector follow some time after that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec

from dra_extender.api.core import Pod, PodResourceClaimStatus
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from tests.support.simulation.api import claim_names
from tests.support.simulation.objects import KubernetesObject, make_claim, make_pod
from tests.support.simulation.world import World
from tools.chaos.hardware import BROKEN, GPU, Hardware
from tools.chaos.strangers import STRANGER

ENTRY = "from-template"


class Workload:
    """More pods than devices at times."""

    def __init__(
        self,
        world: World,
        dice: random.Random,
        hardware: Hardware,
        *,
        extended: bool,
        priority: Callable[[str], int] = lambda name: 0,
    ) -> None:
        """`priority`: of a new pod of this name."""
        self._api = world.api
        self._dice = dice
        self._hardware = hardware
        self._extended = extended
        self.priority = priority
        self._serial = 0
        self._deleted: list[ResourceClaim] = []
        """Claims to create again once their names are free."""

    def pending(self) -> list[Pod]:
        """The pods that our schedulers have to find a node for."""
        pods = [pod for pod in self._api.all(Pod) if not pod.spec.node_name and not pod.metadata.deletion_timestamp]
        return [pod for pod in pods if pod.spec.scheduler_name != STRANGER]

    def _next(self) -> str:
        self._serial += 1
        return f"{self._serial}"

    def _later(self, action: Callable[..., None], *args: object, most: float = 2.0) -> None:
        asyncio.get_running_loop().call_later(self._dice.random() * most, action, *args)

    def _pod(self, name: str, *claims: str, **spec: Any) -> Pod:
        return make_pod(name, *claims, priority=self.priority(name), **spec)

    # --- pods -------------------------------------------------------------------------------------------------------

    def add_pod(self) -> None:
        name, kind = self._next(), self._dice.random()
        if kind < 0.03:
            self._add_undecodable(name)
        elif kind < 0.2 and self._extended:
            container = {"name": "main", "resources": {"requests": {GPU: "1"}}}
            self._api.put(self._pod(f"p{name}", containers=[container]))
        elif kind < 0.35 and (shared := self._shared_claims()):
            self._api.put(self._pod(f"p{name}", self._dice.choice(shared)))
        elif kind < 0.5:
            self._add_template_pod(name)
        elif kind < 0.58:
            parts: list[Any] = [{"name": "first", "exactly": self._hardware.request()}]
            parts.append({"name": "second", "exactly": self._hardware.request()})
            self._put(make_claim(f"c{name}", requests=parts, pod=f"p{name}"), self._pod(f"p{name}", f"c{name}"))
        elif kind < 0.66:
            share = [{"name": "r", "exactly": self._hardware.share_request()}]
            self._put(make_claim(f"c{name}", requests=share, pod=f"p{name}"), self._pod(f"p{name}", f"c{name}"))
        else:
            owner = f"p{name}" if self._dice.random() < 0.5 else ""
            claim = make_claim(f"c{name}", count=self._dice.choice([1, 1, 2]), pod=owner)
            self._put(claim, self._pod(f"p{name}", f"c{name}"))

    def _put(self, *objects: KubernetesObject) -> None:
        for obj in objects:
            self._api.put(obj)

    def _shared_claims(self) -> list[str]:
        claims = [claim.metadata for claim in self._api.all(ResourceClaim)]
        return [meta.name for meta in claims if not meta.controller and meta.name.startswith("c")]

    def _add_undecodable(self, name: str) -> None:
        """A claim that cannot be allocated, of a pod that is tried again and again."""
        request = self._hardware.request() | {"selectors": [{"cel": {"expression": BROKEN}}]}
        claim = make_claim(f"c{name}", requests=[{"name": "r", "exactly": request}], pod=f"p{name}")
        self._put(claim, self._pod(f"p{name}", f"c{name}"))

    def delete_pod(self) -> None:
        """A pod that runs somewhere takes some time to end, all others are gone at once."""
        pods = [pod for pod in self._api.all(Pod) if not pod.metadata.deletion_timestamp]
        if not pods:
            return
        pod = self._dice.choice(pods)
        if pod.spec.node_name and self._dice.random() < 0.5:
            meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            self._api.put(msgspec.structs.replace(pod, metadata=meta))
            self._later(self._drop, pod, most=30.0)
        else:
            self._drop(pod)

    def _drop(self, pod: Pod) -> None:
        stored = self._api.objects.get((Pod, pod.metadata.key))
        if stored is not None and stored.metadata.uid == pod.metadata.uid:
            self._api.drop(stored)
            self._later(self._api.clean_up)

    def finish_pod(self) -> None:
        pods = [pod for pod in self._api.all(Pod) if pod.spec.node_name and not pod.finished]
        if pods:
            self._api.finish_pod(self._dice.choice(pods).metadata.key)
            self._later(self._api.clean_up)

    def replace_any_pod(self) -> None:
        pods = [pod for pod in self._api.all(Pod) if pod.spec.scheduler_name != STRANGER]
        if pods:
            self.replace_pod(self._dice.choice(pods))

    def replace_pod(self, pod: Pod) -> None:
        """The pod of a stateful set: deleted, and there again with its name and another UID."""
        self._drop(pod)
        spec = msgspec.structs.replace(pod.spec, node_name="")
        uid = f"{pod.metadata.uid.partition('+')[0]}+{self._next()}"
        meta = msgspec.structs.replace(pod.metadata, uid=uid, deletion_timestamp=None)
        self._api.put(Pod(metadata=meta, spec=spec))
        self._later(self._instantiate, uid)

    # --- claims -----------------------------------------------------------------------------------------------------

    def touch_claim(self) -> None:
        claims = self._api.all(ResourceClaim)
        if claims:
            self._api.touch(self._dice.choice(claims).metadata.key)

    def replace_claim(self) -> None:
        """Delete a claim; most are created again under the same name as soon as it is free."""
        claims = [claim for claim in self._api.all(ResourceClaim) if not claim.metadata.name.startswith("f")]
        if not claims:
            return
        claim = self._dice.choice(claims)
        self._api.delete_claim(claim)
        self._api.clean_up()
        if claim.metadata.name.startswith("c") and self._dice.random() < 0.8:
            meta = claim.metadata
            uid = f"{meta.uid.partition('+')[0]}+{self._next()}"
            fresh = msgspec.structs.replace(meta, uid=uid, deletion_timestamp=None, finalizers=(), annotations={})
            self._deleted.append(ResourceClaim(metadata=fresh, spec=claim.spec))
        if self._dice.random() < 0.5:
            self.tick()

    def tick(self) -> None:
        """Claims come back, and templates whose claims are missing are made into claims."""
        for claim in list(self._deleted):
            if (ResourceClaim, claim.metadata.key) not in self._api.objects:
                self._deleted.remove(claim)
                self._api.put(claim)
        for pod in self.pending():
            self._instantiate(pod.metadata.uid)

    def _add_template_pod(self, name: str) -> None:
        entry = {"name": ENTRY, "resourceClaimTemplateName": "template"}
        pod = self._pod(f"p{name}", resourceClaims=[entry])
        self._api.put(pod)
        self._later(self._instantiate, pod.metadata.uid, most=self._dice.choice([0.01, 5.0]))

    def _instantiate(self, pod_uid: str) -> None:
        """The claim controller makes the claim, and tells the pod its name a moment later. When it has lost the reply,
        it makes a second claim, and the pod may name that one even later.
        """
        pod = next((pod for pod in self.pending() if pod.metadata.uid == pod_uid), None)
        if pod is None or not any(entry.resource_claim_template_name for entry in pod.spec.resource_claims):
            return
        told = {status.resource_claim_name for status in pod.status.resource_claim_statuses}
        owned = [claim for claim in self._api.all(ResourceClaim) if _owner(claim) == pod_uid and _is_made(claim)]
        if any(claim.metadata.name in told for claim in owned):
            return
        name = owned[0].metadata.name if owned else f"{pod.metadata.name}-{self._next()}"
        if not owned:
            self._make_claim(pod, name)
            if self._dice.random() < 0.3:
                second = f"{pod.metadata.name}-{self._next()}"
                self._make_claim(pod, second)
                self._later(self._tell, pod_uid, second, True, most=self._dice.choice([0.01, 1.0, 10.0]))
        self._later(self._tell, pod_uid, name, most=self._dice.choice([0.01, 1.0]))

    def _make_claim(self, pod: Pod, name: str) -> None:
        claim = make_claim(name, pod=pod.metadata.name, pod_uid=pod.metadata.uid, uid=f"uid-{name}")
        annotations = {"resource.kubernetes.io/pod-claim-name": ENTRY}
        meta = msgspec.structs.replace(claim.metadata, annotations=annotations)
        self._api.put(msgspec.structs.replace(claim, metadata=meta))

    def _tell(self, pod_uid: str, claim: str, again: bool = False) -> None:
        """Unless the claim is gone again, or the pod has another one by now. `again`: name it all the same."""
        for pod in self.pending():
            known = [(ResourceClaim, f"default/{name}") in self._api.objects for name in (claim, *claim_names(pod))]
            if pod.metadata.uid == pod_uid and known[0] and (again or not any(known[1:])):
                told = (convert(PodResourceClaimStatus, {"name": ENTRY, "resourceClaimName": claim}),)
                status = msgspec.structs.replace(pod.status, resource_claim_statuses=told)
                self._api.put(msgspec.structs.replace(pod, status=status))


def _owner(claim: ResourceClaim) -> str:
    return claim.metadata.controller.uid if claim.metadata.controller is not None else ""


def _is_made(claim: ResourceClaim) -> bool:
    return "resource.kubernetes.io/pod-claim-name" in claim.metadata.annotations
