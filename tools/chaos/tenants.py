"""A second tenant in a chaotic world: users of the namespace mallory, who write what the role `edit` allows.

Their pods and claims compete like others. Besides, they write annotations of this service, finalizers, grace periods,
disruption budgets, PodGroups and references to them onto what is theirs, and delete it. They write no status, so no
nominatedNodeName either. What must hold for others is checked as for everybody: who
fits is bound, free devices are given (`Chaos.check`), and only more important pods evict (`Preempting`). And:

- S13 no event of an object and no answer about a pod names anything of another namespace: `judge` at every text.
- S14 no namespace waits for workers longer than its fair turn, although they flood them: `CountedQueue`.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta, OwnerReference
from dra_extender.api.resource import ResourceClaim
from dra_extender.api.scheduling import PodGroup
from dra_extender.scheduling.claims import ADOPTED
from tests.support.simulation.api import Api
from tests.support.simulation.objects import make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import Service
from tools.chaos.fairturns import CountedQueue
from tools.chaos.hardware import ONLY_NEW

NAMESPACE = "mallory"
FLOOD = 6
"""Pods at once."""
LONG = 120
"""A grace period, used up."""
QUOTA = [0, 0, 5]
"""Priorities that their quota allows."""
_MINE = re.compile(r"\bmallory\b|(?<!uid-)\bm\d+\b")
_OTHERS = re.compile(r"\bdefault/|(?<!uid-)\b[pcf]\d+\b")
"""Names of their objects and of others. A UID is not a name."""


class Tenants:
    """`act` once or often, where it is `on`."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api = api
        self._lots = random.Random(f"tenants {seed}")
        self.on = self._lots.random() < 0.4
        self.features = FeatureGates(DRAWorkloadResourceClaims=self._lots.random() < 0.5)
        self.counts: Counter[str] = Counter()
        self._serial = 0
        api.readers.append(self.judge)

    def act(self) -> None:
        """One of them does something."""
        if self.on:
            acts = [self._add, self._add, self._flood, self._annotate_claim, self._annotate_pod, self._delete]
            self._lots.choice(acts)()

    def oversee(self, service: Service) -> None:
        """Count the turns that namespaces get at the workers of the service."""
        deferred = service.extender.deferred
        if isinstance(deferred._workers, VirtualWorkers):
            deferred._queue = CountedQueue(deferred._workers.capacity, self._api.violations, self.counts)

    def _mine(self, kind: type[Pod | ResourceClaim]) -> Any:
        objects = [obj for obj in self._api.all(kind) if obj.metadata.namespace == NAMESPACE]
        return self._lots.choice(objects) if objects else None

    def _add(self) -> None:
        self._serial += 1
        name = f"m{self._serial}"
        spec: dict[str, Any] = {"priority": self._lots.choice(QUOTA)}
        if self._lots.random() < 0.3:
            spec["terminationGracePeriodSeconds"] = LONG
            self._api.stopping[name] = LONG
        if self._lots.random() < 0.3:
            self._api.protected.add(name)
        owner = name if self._lots.random() < 0.5 else ""
        claim = make_claim(name, count=self._lots.choice([1, 1, 2]), pod=owner, namespace=NAMESPACE)
        if self._lots.random() < 0.5:
            claim, spec = self._in_group(claim, spec)
        pod = make_pod(name, name, namespace=NAMESPACE, **spec)
        finalizers = ("example.com/mine",) if self._lots.random() < 0.3 else ()
        self._api.put(claim)
        self._api.put(with_metadata(pod, finalizers=finalizers, labels={"app": f"{self._lots.random()}"}))

    def _in_group(self, claim: ResourceClaim, spec: dict[str, Any]) -> tuple[ResourceClaim, dict[str, Any]]:
        """The claim belongs to a PodGroup; the pod refers to this one or to one that does not exist. A claim of a group
        that does not exist harms only its own pod: the claim controller may release it before the pod is bound.
        """
        named = self._lots.choice(["group", "group", "another"])
        self._api.put(PodGroup(ObjectMeta(name="group", namespace=NAMESPACE, uid="uid-group")))
        owner = OwnerReference("PodGroup", "group", "uid-group", "scheduling.k8s.io/v1alpha1", controller=True)
        owned = with_metadata(claim, owner_references=(owner,))
        return owned, spec | {"schedulingGroup": {"podGroupName": named}}

    def _flood(self) -> None:
        """Pods whose claims are all different, which share no work."""
        for _ in range(FLOOD):
            self._serial += 1
            name = f"m{self._serial}"
            selectors = [{"cel": {"expression": f"'{name}' != '' && {ONLY_NEW}"}}]
            exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": selectors}
            self._api.put(make_claim(name, requests=[{"name": "r", "exactly": exactly}], namespace=NAMESPACE))
            self._api.put(make_pod(name, name, namespace=NAMESPACE))

    def _annotate_claim(self) -> None:
        claim = self._mine(ResourceClaim)
        if claim is not None:
            self._annotate(claim, {ADOPTED: f"{self._lots.random()}", "resource.kubernetes.io/pod-claim-name": "c0"})

    def _annotate_pod(self) -> None:
        pod = self._mine(Pod)
        if pod is not None:
            self._annotate(pod, {"changed": f"{self._lots.random()}"})

    def _annotate(self, obj: Pod | ResourceClaim, annotations: dict[str, str]) -> None:
        merged = {**obj.metadata.annotations, **annotations}
        self._api.put(msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=merged)))

    def _delete(self) -> None:
        """A pod with a finalizer stays terminating."""
        pod = self._mine(Pod)
        if pod is None or pod.metadata.deletion_timestamp:
            return
        if pod.metadata.finalizers:
            self._api.put(with_metadata(pod, deletion_timestamp="2026-01-01T00:00:00Z"))
        else:
            self._api.drop(pod)
        self._api.clean_up()

    def judge(self, namespace: str, texts: Iterable[str]) -> str:
        """What is wrong with texts for the users of this namespace."""
        others = _OTHERS if namespace == NAMESPACE else _MINE
        found = next((text for text in texts if others.search(text)), "")
        return f"{namespace} is told about others: {found}" if found else ""
