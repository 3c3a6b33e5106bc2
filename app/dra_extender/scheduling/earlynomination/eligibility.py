"""Which pods may be nominated early without losing anything.

Promises: pure. kube-scheduler compares no other node when a pod fits on its nominated node. So a pod that prefers some
nodes over others is left to kube-scheduler. So is a pod with rules that only kube-scheduler can check: every early
nomination of it would be a guess.
"""

from __future__ import annotations

from typing import Literal

from dra_extender.api.core import Pod
from dra_extender.scheduling.noderules import is_large

NotEligible = Literal[
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


def why_not_eligible(pod: Pod, *, ignore_preferences: bool = False) -> NotEligible | None:
    """Why the pod is not nominated early; None when it may be."""
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
    return _rules_about_pods(pod) or (None if ignore_preferences else _preferences(pod))


def _rules_about_pods(pod: Pod) -> NotEligible | None:
    """Required rules that depend on other pods."""
    if any(constraint.when_unsatisfiable != "ScheduleAnyway" for constraint in pod.spec.topology_spread_constraints):
        return "topology spread"
    affinity = pod.spec.affinity
    for one in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if one is not None and one.required_during_scheduling_ignored_during_execution:
            return "affinity to other pods"
    return None


def _preferences(pod: Pod) -> NotEligible | None:
    if pod.spec.topology_spread_constraints:
        return "prefers"
    affinity = pod.spec.affinity
    if affinity is None:
        return None
    for one in (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity):
        if one is not None and one.preferred_during_scheduling_ignored_during_execution:
            return "prefers"
    return None
