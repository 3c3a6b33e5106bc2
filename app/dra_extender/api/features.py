"""Feature gates that change what allocation does, with the defaults of Kubernetes 1.36.

Names are those of kube-scheduler's `--feature-gates`, so one flag value serves both processes.
"""

from __future__ import annotations

import msgspec


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

    @property
    def binding_conditions(self) -> bool:
        """Devices with binding conditions may be allocated (the allocator feature DeviceBindingAndStatus)."""
        return self.DRADeviceBindingConditions and self.DRAResourceClaimDeviceStatus

    @property
    def taint_rules(self) -> bool:
        """DeviceTaintRules are merged into the taints of slices."""
        return self.DRADeviceTaints and self.DRADeviceTaintRules

    @classmethod
    def parse(cls, text: str) -> FeatureGates:
        """Read `Name=true,Other=false`; raises ValueError naming the part that is wrong."""
        chosen: dict[str, bool] = {}
        known = cls.__struct_fields__
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, separator, value = part.partition("=")
            if name not in known:
                raise ValueError(f"feature gate {name!r} is unknown; known are: {', '.join(known)}")
            if not separator or value.lower() not in ("true", "false"):
                raise ValueError(f"feature gate {name}: {value!r} is not true or false")
            chosen[name] = value.lower() == "true"
        return cls(**chosen)

    def __str__(self) -> str:
        return ",".join(f"{name}={str(getattr(self, name)).lower()}" for name in self.__struct_fields__)
