"""Nomination ahead of the queue in a chaotic world, and what must hold then.

- S12 the plans of nominated pods name no device twice: `overlaps` after every step. Nobody else's nomination is
  overwritten or taken away: `judge` at every write.
- L7 when peace has lasted, no pod that waits is nominated ahead of the queue: `check`.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec

from dra_extender.api.core import Pod
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.simulation.api import Api
from tests.support.simulation.objects import KubernetesObject
from tests.support.simulation.world import Service


class EarlyNominating:
    """One per run. `on`: the first replica nominates pods ahead of the queue."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api = api
        self.on = random.Random(f"planning {seed}").random() < 0.5
        api.judges.append(self.judge)

    def config(self, config: SchedulingConfig) -> SchedulingConfig:
        return msgspec.structs.replace(config, nominate="always" if self.on else "never")

    def judge(self, operation: str, before: KubernetesObject | None, after: KubernetesObject) -> str:
        """What is wrong with a write."""
        if not isinstance(after, Pod) or not isinstance(before, Pod) or not operation.endswith("e_pod"):
            return ""
        named = before.status.nominated_node_name
        if operation == "nominate_pod" and named and named != after.status.nominated_node_name:
            return f"{after.metadata.name} was nominated for {named} by somebody else"
        return ""

    def overlaps(self, service: Service) -> list[str]:
        """Devices that two plans name, among plans that may share none."""
        taken: Counter[tuple[str, str, str]] = Counter()
        for nomination in service.extender.early_nomination.nominations.values():
            taken.update(nomination.plan.devices if nomination.plan is not None else ())
        return [f"{device} is planned for {number} pods" for device, number in taken.items() if number > 1]

    def check(self, service: Service) -> list[str]:
        """What is wrong when peace has lasted. Who fits is bound by now."""
        if not self.on:
            return []
        nominations = service.extender.early_nomination.nominations.values()
        wrong = [f"{each.uid} is still nominated" for each in nominations if not each.ending]
        pods = [pod for pod in self._api.all(Pod) if not pod.spec.node_name and pod.status.nominated_node_name]
        ahead = self._api.nominated_ahead
        left = [pod for pod in pods if ahead.get(pod.metadata.uid) == pod.status.nominated_node_name]
        return wrong + [f"{pod.metadata.name} says that it is nominated ahead of the queue" for pod in left]
