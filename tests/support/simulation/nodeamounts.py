"""Devices that take CPU, memory or huge pages of their node, and pods that use them."""

from __future__ import annotations

from typing import Any

from dra_extender.api.core import Pod
from dra_extender.api.features import FeatureGates
from tests.support.simulation.objects import make_pod

Json = dict[str, Any]
FEATURES = FeatureGates.parse("DRANodeAllocatableResources=true", "1.37")


def maps(amount: str, name: str = "a", resource: str = "cpu") -> Json:
    """A device that is this amount of a resource."""
    return {"name": name, "nodeAllocatableResources": {resource: {"mapping": {"deviceMultiplier": amount}}}}


def costs(name: str = "a", resource: str = "cpu", **overhead: str) -> Json:
    """A device that costs this amount of a resource: `perPod`, `perContainer`."""
    return {"name": name, "nodeAllocatableResources": {resource: {"overhead": overhead}}}


def consumes(factor: str, name: str = "a", key: str = "cores", resource: str = "cpu") -> Json:
    """A device with 16 cores that can be shared; it takes the consumed `key` times the factor."""
    mapping = {"capacityKey": key, "capacityMultiplier": factor}
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "capacity": {"cores": {"value": "16", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}},
        "nodeAllocatableResources": {resource: {"mapping": mapping}},
    }


def user(name: str, *claims: str, cpu: str = "0", containers: int = 1, node: str = "", **more: Any) -> Pod:
    """A pod that requests CPU, and each of its containers uses all of its claims."""
    used = [{"name": f"c{index}"} for index in range(len(claims))]
    parts = [{"name": f"part-{index}", "resources": {"claims": used}} for index in range(containers)]
    parts[0]["resources"] = {"claims": used, "requests": {"cpu": cpu}}
    return make_pod(name, *claims, node=node, containers=parts, **more)
