"""What a claim uses: devices and shares of devices, as its allocation names them.

Rules: Kubernetes 1.36, dynamic-resource-allocation/structured/internal/allocatedstate.go. Results with admin access use
nothing; a result with a share ID is a share when consumable capacity is on, everything else owns its device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import AllocationResult, DeviceID

PoolID = tuple[str, str]
"""(driver, pool name)."""

Use = tuple[DeviceID, str | None]
"""A device and the ID of the share of it; None stands for the whole device."""

Uses = Mapping[Use, Mapping[str, Quantity]]
"""What one claim uses, with the capacity each share consumes."""

EVERY_DEVICE: Final = "*"
"""In place of a device's name, which it cannot be: whoever uses it may have any device of the pool."""

NOTHING: Mapping[str, Quantity] = {}


def uses_of(allocation: AllocationResult | None, *, shares: bool) -> dict[Use, Mapping[str, Quantity]]:
    """What an allocation takes away from others. `shares`: the gate DRAConsumableCapacity."""
    if allocation is None:
        return {}
    uses: dict[Use, Mapping[str, Quantity]] = {}
    for result in allocation.devices.results:
        if result.admin_access:
            continue
        if shares and result.share_id is not None:
            uses[result.id, result.share_id] = result.consumed_capacity
        else:
            uses[result.id, None] = NOTHING
    return uses
