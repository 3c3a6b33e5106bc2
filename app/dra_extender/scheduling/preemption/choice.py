"""On which node preemption hurts least.

Rules: Kubernetes 1.36, pickOneNodeForPreemption and OrderedScoreFuncs of pkg/scheduler/framework/preemption: the fewest
violated budgets, the lowest highest priority of a victim, the lowest sum of priorities (each raised above zero, so that
a victim more is never better), the fewest victims, the latest start among the earliest of the highest-priority victims
of each node; then, different from there, the name of the node instead of chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.api.times import parse_time
from dra_extender.scheduling.preemption.outcome import Victim

OFFSET: Final = 2**31
"""Makes every priority positive."""

Loss = tuple[int, int, int, int, float, str]
"""See the module; the smallest is best."""


def loss(node: str, victims: Sequence[Victim]) -> Loss:
    """What it costs to preempt these, at least one, for a pod on this node."""
    priorities = [victim.pod.spec.priority for victim in victims]
    highest = max(priorities)
    started = min(_started(victim.pod) for victim in victims if victim.pod.spec.priority == highest)
    violations = sum(victim.violates_budget for victim in victims)
    total = sum(priority + OFFSET for priority in priorities)
    return violations, highest, total, len(victims), -started, node


def _started(pod: Pod) -> float:
    """Seconds since the epoch; a pod that has not started would start now, later than all others."""
    moment = parse_time(pod.status.start_time or "")
    return moment.timestamp() if moment is not None else inf
