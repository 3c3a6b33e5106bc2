"""Priorities in a chaotic world, and what must hold when pods make room for others.

- S11 a pod is evicted only while a stored nomination of a more important pod exists: `judge` at every eviction.
- L5 after a quiet time no pod waits that could preempt, no devices are kept, and no pod says that
  it is nominated, except finished pods: `check`.
- L6 no pod was evicted in vain, where nothing else went wrong (`calm`: one replica, no faults, no strangers, no pod
  meddles with claims or hardware): the preemptor of every victim is bound or gone, or a pod of higher priority than it
  was bound on the node after that, or a pod that is being deleted stays on the node: `check`.
"""

from __future__ import annotations

import random

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.nomination.nominations import is_preempting
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.terms import Preemption, PreemptionTerms
from tests.support.simulation.api import Api
from tests.support.simulation.objects import KubernetesObject
from tests.support.simulation.world import Service
from tools.chaos.gangs import is_member

PRIORITIES = [0, 0, 0, 5, 10, 10, 100]
TROUBLE = frozenset(
    (
        "fault",
        "stranger",
        "hardware",
        "node",
        "driver",
        "kill",
        "watch gap",
        "outage",
        "permission",
        "spoil claim",
        "touch claim",
        "replace claim",
        "replace pod",
        "depose",
        "clock jump",
        "pause",
        "set back",
        "tenant",
        "replace member",
        "new leader",
    )
)


class _Named(msgspec.Struct, frozen=True):
    """A nomination: of whom, with which priority, and on which node."""

    preemptor: str
    priority: int
    node: str


class Preempting:
    """One per run. `on`: the first replica makes room for pods; `calm`: and nothing goes wrong."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api = api
        self._lots = random.Random(f"preemption {seed}")
        self.on = self._lots.random() < 0.5
        self.calm = self.on and self._lots.random() < 0.3
        self._services: list[Service] = []
        self._stored: dict[str, _Named] = {}
        """By UID of pods: their last nomination."""
        self._named: dict[str, list[_Named]] = {}
        """By UID of victims: the nominations for which they were evicted."""
        self._evicted: dict[str, str] = {}
        """UIDs and names of victims."""
        self._bound: list[tuple[str, int, int]] = []
        """Node and priority of each binding, and how many had been evicted before."""
        api.judges.append(self.judge)

    def config(self, config: SchedulingConfig) -> SchedulingConfig:
        """In a calm world a pod is not given up because no scheduler has tried it for a minute."""
        if not self.on:
            return config
        margin = 600.0 if self.calm else config.preemption_margin_seconds
        return msgspec.structs.replace(config, preemption="on", preemption_margin_seconds=margin)

    def weights(self, weights: dict[str, float]) -> dict[str, float]:
        """How often what happens."""
        return {name: 0.0 if self.calm and name in TROUBLE else weight for name, weight in weights.items()}

    def priority(self, name: str) -> int:
        """Of a new pod. Some need longer to end than we wait for them."""
        if not self.on:
            return 0
        if self._lots.random() < 0.1:
            self._api.stopping[name] = self._lots.choice([5.0, 45.0, 90.0])
        if not self.calm and self._lots.random() < 0.05:
            self._api.protected.add(name)
        return self._lots.choice(PRIORITIES)

    def oversee(self, service: Service) -> None:
        """A service that may evict pods."""
        self._services.append(service)

    def end(self) -> None:
        """Budgets allow everything from now on."""
        self._api.protected.clear()

    # --- what must hold ---------------------------------------------------------------------------------------------

    def judge(self, operation: str, before: KubernetesObject | None, after: KubernetesObject) -> str:
        if not isinstance(after, Pod):
            return ""
        uid = after.metadata.uid
        if is_preempting(after):
            self._stored[uid] = _Named(uid, after.spec.priority, after.status.nominated_node_name)
        if operation == "bind":
            self._bound.append((after.spec.node_name, after.spec.priority, len(self._evicted)))
        if operation != "evict":
            return ""
        self._evicted[uid] = after.metadata.name
        known = [each for service in self._services for each in service.extender.nominations if uid in each.victims]
        named = [
            _Named(preemptor, each.pod.spec.priority, node) for each in known for preemptor, node in each.by_pod.items()
        ]
        self._named[uid] = [each for each in named if each.preemptor in self._stored] or list(self._stored.values())
        if not any(named.priority > after.spec.priority for named in self._named[uid]):
            return f"{after.metadata.name} is evicted, and nobody of higher priority is nominated for that"
        return ""

    def check(self, service: Service) -> list[str]:
        """What is wrong when peace has lasted."""
        if not self.on:
            return []
        wrong = [f"a nomination of {each.pod.metadata.name} has not ended" for each in service.extender.nominations]
        pods = self._api.all(Pod)
        marked = [pod for pod in pods if is_preempting(pod) and not pod.finished]
        wrong += [f"{pod.metadata.name} says that it is nominated" for pod in marked]
        wrong += [text for pod in pods if not pod.spec.node_name for text in self._could_preempt(service, pod)]
        return wrong + self._in_vain() if self.calm else wrong

    def _could_preempt(self, service: Service, pod: Pod) -> list[str]:
        view = service.extender.view
        if (
            not view.uses_devices(pod)
            or pod.metadata.deletion_timestamp
            or is_member(pod)
            or self._api.lacks_group(pod)
            or not view.config.may_clear_for(pod.spec.scheduler_name)
        ):
            return []
        schedulers = view.config.scheduler_names
        terms = PreemptionTerms(preemptor=pod, scheduler_names=schedulers, violate_budgets=False)
        names = sorted(node.metadata.name for node in self._api.all(Node))
        found = PreemptionEvaluator(terms, names).evaluate(view.with_pod(pod))
        if isinstance(found, Preemption):
            victims = [victim.pod.metadata.name for victim in found.victims]
            return [f"{pod.metadata.name} waits and could preempt {victims} on {found.node}"]
        return []

    def _in_vain(self) -> list[str]:
        there = {pod.metadata.uid: pod for pod in self._api.all(Pod)}
        stuck = {pod.spec.node_name for pod in there.values() if pod.metadata.deletion_timestamp}
        wrong = []
        for number, (victim, name) in enumerate(self._evicted.items()):
            named = self._named.get(victim, ())
            if not any(
                each.node in stuck or self._is_justified(each, there.get(each.preemptor), number) for each in named
            ):
                wrong.append(f"{name} was evicted in vain")
        return wrong

    def _is_justified(self, named: _Named, preemptor: Pod | None, number: int) -> bool:
        if preemptor is None or preemptor.spec.node_name:
            return True
        return any(
            node == named.node and priority > named.priority and evicted > number
            for node, priority, evicted in self._bound
        )
