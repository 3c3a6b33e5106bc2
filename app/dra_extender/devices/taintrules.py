"""Device taint rules: which devices they reach, and the devices with the rules' taints added.

Promises: a rule's taint is appended to what the slice says, nothing is replaced; the order of rules does not matter.
A rule without `deviceSelector` selects nothing, an empty one selects every device (the API documentation of
Kubernetes 1.36; its tracker, dynamic-resource-allocation/resourceslice/tracker/tracker.go, differs in the first).
"""

from __future__ import annotations

import msgspec

from dra_extender.api.resource import Device, DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec
from dra_extender.devices.uses import PoolID


def reaches(spec: DeviceTaintRuleSpec, pool: PoolID) -> bool:
    """Whether the rule may taint a device of the pool."""
    selector = spec.device_selector
    return (
        selector is not None
        and (not selector.driver or selector.driver == pool[0])
        and (not selector.pool or selector.pool == pool[1])
    )


class TaintRules:
    """The known rules. Changed by the inventory only."""

    def __init__(self) -> None:
        self._rules: dict[str, DeviceTaintRule] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def get(self, name: str) -> DeviceTaintRule | None:
        return self._rules.get(name)

    def put(self, rule: DeviceTaintRule) -> None:
        self._rules[rule.metadata.name] = rule

    def drop(self, name: str) -> None:
        self._rules.pop(name, None)

    def tainted(self, pool: PoolID, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """The devices of the pool as the allocator has to see them."""
        rules = [
            (rule.spec.device_selector.device, rule.spec.taint)
            for _, rule in sorted(self._rules.items())
            if rule.spec.device_selector is not None and reaches(rule.spec, pool)
        ]
        return tuple(_tainted(device, rules) for device in devices) if rules else devices


def _tainted(device: Device, rules: list[tuple[str | None, DeviceTaint]]) -> Device:
    added = tuple(taint for name, taint in rules if not name or name == device.name)
    return msgspec.structs.replace(device, taints=device.taints + added) if added else device
