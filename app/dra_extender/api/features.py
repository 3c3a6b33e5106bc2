"""Feature gates that change what allocation does, and the Kubernetes release whose rules hold.

Names are those of kube-scheduler's `--feature-gates`, so one flag value serves both processes.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Release = Literal["1.36", "1.37"]


class FeatureGates(msgspec.Struct, frozen=True):
    """Which features are on. `parse` reads the flag form; unknown names are an error that lists the known ones."""

    DRAAdminAccess: bool = True
    DRAPrioritizedList: bool = True
    DRAPartitionableDevices: bool = True
    DRADeviceTaints: bool = True
    DRADeviceTaintRules: bool = True
    DRAConsumableCapacity: bool = True
    DRADeviceBindingConditions: bool = True
    DRAResourceClaimDeviceStatus: bool = True
    DRAExtendedResource: bool = True
    DRASchedulerFilterTimeout: bool = True
    DRAListTypeAttributes: bool = False
    DRAWorkloadResourceClaims: bool = False
    DRAFractionalCapacityRange: bool = False
    DRADeviceCompatibilityGroups: bool = False
    DRADerivedAttributes: bool = False
    DRAOptionalNodeOperations: bool = False
    DRANodeAllocatableResources: bool = False
    DRAPartitionableDevicesType: bool = False
    release: Release = "1.36"
    """Older releases have the rules of 1.36, newer ones those of 1.37."""

    @property
    def is_1_37(self) -> bool:
        return self.release == "1.37"

    @property
    def partition_types(self) -> bool:
        """Reports count partitions by type."""
        return self.DRAPartitionableDevicesType and self.DRAPartitionableDevices

    @property
    def is_experimental(self) -> bool:
        """Kubernetes 1.37 uses its experimental allocator."""
        gates = self.DRAListTypeAttributes, self.DRAOptionalNodeOperations, self.DRADeviceCompatibilityGroups
        return self.is_1_37 and (any(gates) or self.DRADerivedAttributes)

    @property
    def binding_conditions(self) -> bool:
        """Devices with binding conditions may be allocated (the allocator feature DeviceBindingAndStatus)."""
        return self.DRADeviceBindingConditions and self.DRAResourceClaimDeviceStatus

    @property
    def taint_rules(self) -> bool:
        """DeviceTaintRules are merged into the taints of slices."""
        return self.DRADeviceTaints and self.DRADeviceTaintRules

    @classmethod
    def parse(cls, text: str, release: Release | None = None, *, removed: bool = False) -> FeatureGates:
        """Read `Name=true,Other=false`; raises ValueError naming the part that is wrong. `release` has to have the
        gates; with `removed`, it need not have gates that 1.37 has removed.
        """
        chosen: dict[str, bool] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, separator, value = part.partition("=")
            if name not in GATES and name not in WITHOUT_EFFECT:
                raise ValueError(f"feature gate {name!r} is unknown; known are: {', '.join(GATES)}")
            if not separator or value.lower() not in ("true", "false"):
                raise ValueError(f"feature gate {name}: {value!r} is not true or false")
            if release and name in ABSENT[release] and not (removed and name in ABSENT["1.37"]):
                raise ValueError(f"feature gate {name} is not available with the rules of Kubernetes {release}")
            if name in GATES:
                chosen[name] = value.lower() == "true"
        return cls(**chosen, release=release or "1.36")

    def __str__(self) -> str:
        return ",".join(f"{name}={str(getattr(self, name)).lower()}" for name in GATES)


GATES: Final = tuple(name for name in FeatureGates.__struct_fields__ if name != "release")
"""The names of the gates."""
WITHOUT_EFFECT: Final = (
    *("ClearingNominatedNodeNameAfterBinding", "CompositePodGroup", "DRAResourceClaimGranularStatusAuthorization"),
    *("DRAResourcePoolStatus", "DynamicResourceAllocation", "GangScheduling", "GenericWorkload"),
    *("InPlacePodVerticalScalingSchedulerPreemption", "NodeDeclaredFeatures", "NominatedNodeNameForExpectation"),
    *("OpportunisticBatching", "PodGroupPreemptionPolicy", "SchedulerAsyncAPICalls", "SchedulerAsyncPreemption"),
    *("SchedulerPopFromBackoffQ", "SchedulerPreQueueingHints", "SchedulerQueueingHints"),
    *("TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption", "WorkloadWithJob"),
)
"""Gates of 1.36 or 1.37 that concern kube-scheduler or the API server only: accepted, and nothing depends on them."""
ABSENT: Final[dict[Release, tuple[str, ...]]] = {
    "1.36": (
        *(*GATES[GATES.index("DRAFractionalCapacityRange") :], "CompositePodGroup", "PodGroupPreemptionPolicy"),
        *("InPlacePodVerticalScalingSchedulerPreemption", "SchedulerPreQueueingHints"),
    ),
    "1.37": ("GangScheduling", "SchedulerQueueingHints", "WorkloadAwarePreemption"),
}
"""The gates that a release does not have, or has with another API. Those that 1.37 removed are without effect here."""


def release_of(version: str) -> Release:
    """The rules of an API server of this version, such as v1.37.2; those of 1.36 when it cannot be read."""
    minor = version.removeprefix("v1.").partition(".")[0]
    return "1.37" if minor.isdecimal() and int(minor) >= 37 else "1.36"
