"""The group that a pod belongs to, and what the pod says of its size.

Promises: pure, and a few look-ups per pod. A pod belongs to at most one group: of several the first in `Source`.

Sources: Kubernetes 1.36 and 1.37 (`spec.schedulingGroup`), Kueue's plain pod groups, LeaderWorkerSet, the coscheduling
plugin of kubernetes-sigs/scheduler-plugins, and an annotation of this project for everybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from dra_extender.api.core import Pod

Source = Literal["PodGroup", "gang", "LeaderWorkerSet", "Kueue", "coscheduling"]

GANG: Final = "dra-extender.dev/gang"
GANG_SIZE: Final = "dra-extender.dev/gang-size"
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
KUEUE_NAME: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
COSCHEDULING: Final = "scheduling.x-k8s.io/pod-group"

SIZES: Final[Mapping[Source, str]] = {"gang": GANG_SIZE, "LeaderWorkerSet": LWS_SIZE, "Kueue": KUEUE_SIZE}
"""The annotation of the pods that says how many they are; other sources have an object that says it."""


MOST_SHOWN: Final = 253
"""Characters of a text that users write, in the reasons of all nodes."""


class GroupKey(NamedTuple):
    """Which group. Groups of two sources are two groups, also when they have one name."""

    source: Source
    namespace: str
    name: str

    def __str__(self) -> str:
        """As people write it, such as `PodGroup ml/train`; a name that no object could have is cut."""
        return f"{self.source} {self.namespace}/{self.name[:MOST_SHOWN]}"


def group_of(pod: Pod) -> GroupKey | None:
    """The group of the pod; None for almost all pods."""
    meta = pod.metadata
    if pod.group_name:
        return GroupKey("PodGroup", meta.namespace, pod.group_name)
    if meta.annotations and (name := meta.annotations.get(GANG)):
        return GroupKey("gang", meta.namespace, name)
    labels = meta.labels
    if not labels:
        return None
    if (name := labels.get(LWS_NAME)) and (index := labels.get(LWS_GROUP)):
        return GroupKey("LeaderWorkerSet", meta.namespace, f"{name}-{index}")
    if name := labels.get(KUEUE_NAME):
        return GroupKey("Kueue", meta.namespace, name)
    if name := labels.get(COSCHEDULING):
        return GroupKey("coscheduling", meta.namespace, name)
    return None
