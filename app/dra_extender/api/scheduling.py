"""PodGroups of scheduling.k8s.io and of the coscheduling plugin.

Promises: one struct decodes v1beta1, v1alpha3 and v1alpha2, and the PodGroup of scheduling.x-k8s.io/v1alpha1, which
has only `minMember`. With a size below 1 the group is not a gang. Status is not read.
"""

from __future__ import annotations

from typing import ClassVar

from dra_extender.api.meta import Object, ObjectMeta


class GangSchedulingPolicy(Object, frozen=True, gc=False):
    min_count: int = 0


class TopologyConstraint(Object, frozen=True, gc=False):
    key: str = ""


class PodGroupSchedulingConstraints(Object, frozen=True, gc=False):
    topology: tuple[TopologyConstraint, ...] = ()


class DisruptionMode(Object, frozen=True, gc=False):
    all: Object | None = None


class PodGroupSpec(Object, frozen=True, gc=False):
    scheduling_policy: dict[str, GangSchedulingPolicy] = {}
    """`basic` or `gang`."""
    scheduling_constraints: PodGroupSchedulingConstraints = PodGroupSchedulingConstraints()
    disruption_mode: str | DisruptionMode = ""
    """In v1alpha2 `Pod` or `PodGroup`."""
    min_member: int = 0
    """Of coscheduling."""


class PodGroup(Object, frozen=True, gc=False):
    api_group: ClassVar[str] = "scheduling.k8s.io"
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def min_count(self) -> int | None:
        """How many pods have to be scheduled together; None when it is not a gang."""
        gang = self.spec.scheduling_policy.get("gang")
        return max(0, gang.min_count if gang is not None else self.spec.min_member) or None

    @property
    def disrupts_all(self) -> bool:
        mode = self.spec.disruption_mode
        return mode == "PodGroup" or (isinstance(mode, DisruptionMode) and mode.all is not None)

    @property
    def topology_key(self) -> str:
        """All pods are on nodes with one value of this label; empty without a constraint."""
        return next((constraint.key for constraint in self.spec.scheduling_constraints.topology), "")


class CoschedulingPodGroup(PodGroup, frozen=True, gc=False):
    """Another kind than PodGroup, so that groups with one name in both APIs are two objects."""

    api_group: ClassVar[str] = "scheduling.x-k8s.io"
