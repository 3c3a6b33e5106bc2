"""For which pods nothing is lost when kube-scheduler is told which node to try first.

Promises: pure. A pod that gets on the first node that it is tried on has had no other node compared with it: so pods
that prefer some of the nodes they fit on are left to kube-scheduler, and those whose rules only it can check, for which
every hint would be a guess.
"""

from __future__ import annotations

from typing import Literal

from dra_extender.api.core import Pod
from dra_extender.scheduling.noderules import is_large

Objection = Literal[
    "bound",
    "leaving",
    "gated",
    "nominated",
    "group",
    "large",
    "affinity to other pods",
    "topology spread",
    "volumes",
    "prefers",
]


def objection(pod: Pod, *, preferring: bool = False) -> Objection | None:
    """Why the pod is not to be nominated ahead of the queue; None when it may be. `preferring`: preferences do not
    count.
    """
    spec = pod.spec
    if spec.node_name:
        return "bound"
    if pod.finished or pod.metadata.deletion_timestamp:
        return "leaving"
    if spec.scheduling_gates:
        return "gated"
    if pod.status.nominated_node_name:
        return "nominated"
    if pod.group_name:
        return "group"
    if is_large(pod):
        return "large"
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        return "volumes"
    return _rules(pod) or (_preferences(pod) if not preferring else None)


def _rules(pod: Pod) -> Objection | None:
    """Those that look at other pods."""
    if any(constraint.when_unsatisfiable != "ScheduleAnyway" for constraint in pod.spec.topology_spread_constraints):
        return "topology spread"
    affinity = pod.spec.affinity
    for one in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if one is not None and one.required_during_scheduling_ignored_during_execution:
            return "affinity to other pods"
    return None


def _preferences(pod: Pod) -> Objection | None:
    if pod.spec.topology_spread_constraints:
        return "prefers"
    affinity = pod.spec.affinity
    if affinity is None:
        return None
    for one in (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity):
        if one is not None and one.preferred_during_scheduling_ignored_during_execution:
            return "prefers"
    return None
