"""Which policy is in force for whom, and how much devices of a class count.

The words of the block in the settings are those of NodeResourcesFit in a KubeSchedulerConfiguration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from dra_extender.placement.policies import POLICIES, PolicyName

ANNOTATION: Final = "dra-extender.dev/placement"
"""Of a pod or a DeviceClass: the policy for it."""

ScoringType = Literal["LeastAllocated", "MostAllocated", "Fragmentation"]

_BY_TYPE: Final[Mapping[ScoringType, PolicyName]] = {
    "LeastAllocated": "spread",
    "MostAllocated": "pack",
    "Fragmentation": "fragmentation",
}

_NO_WEIGHTS: Final[Mapping[str, float]] = {}


class Strategy(msgspec.Struct, frozen=True):
    """`policy` is for pods that nobody says anything else about. `weights`: what a device counts, by device class; 1
    for others. `only_chosen`: filter offers the chosen node alone.
    """

    policy: PolicyName = "first-fit"
    weights: Mapping[str, float] = _NO_WEIGHTS
    only_chosen: bool = False

    def named(self, annotations: Iterable[Mapping[str, str]]) -> str:
        """The policy for a pod: what the first of these annotations says that names one, or that of everybody."""
        for annotation in annotations:
            name = annotation.get(ANNOTATION)
            if name in POLICIES:
                return name
        return self.policy


def policy_of(kind: ScoringType) -> PolicyName:
    """The policy that a scoring strategy of this type means."""
    return _BY_TYPE[kind]
