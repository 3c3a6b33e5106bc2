"""NoExecute taints: when pods go, and that they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.resource import DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, ResourceSlice
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.controllers import eviction

Make = Callable[..., dict[str, Any]]
Write = Callable[..., Awaitable[None]]

TAINT = DeviceTaint(key="k", value="v", effect="NoExecute", time_added="1970-01-01T00:01:40Z")


def result(*tolerations: dict[str, Any]) -> DeviceRequestAllocationResult:
    fields = {"request": "r", "driver": "d", "pool": "p", "device": "x", "tolerations": list(tolerations)}
    return convert(DeviceRequestAllocationResult, fields)


def tolerate(**fields: Any) -> dict[str, Any]:
    return {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", **fields}


@pytest.mark.parametrize(
    ("tolerations", "due"),
    [
        ((), 100),
        ((tolerate(),), None),
        ((tolerate(tolerationSeconds=30),), 130),
        ((tolerate(tolerationSeconds=30), tolerate(tolerationSeconds=10)), 110),
        ((tolerate(tolerationSeconds=30), tolerate()), None),
        ((tolerate(tolerationSeconds=-5),), 100),
        ((tolerate(effect=""),), 100),
        ((tolerate(effect="NoSchedule"),), 100),
        ((tolerate(value="w"),), 100),
        ((tolerate(operator="Exists", value=""),), None),
        ((tolerate(key="", operator="Exists", value="", tolerationSeconds=7),), 107),
    ],
)
def test_the_shortest_toleration_counts_and_an_empty_effect_does_not(
    tolerations: tuple[dict[str, Any], ...], due: float | None
) -> None:
    assert eviction.device_eviction(result(*tolerations), [TAINT]) == due


def test_other_effects_evict_nobody() -> None:
    assert eviction.device_eviction(result(), [DeviceTaint(key="k", effect="NoSchedule")]) is None


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    def part(generation: int, *taints: dict[str, str]) -> ResourceSlice:
        spec = {
            "driver": "d",
            "pool": {"name": "p", "generation": generation},
            "devices": [{"name": "x", "taints": list(taints)}],
        }
        return convert(ResourceSlice, {"metadata": {"name": str(generation)}, "spec": spec})

    tainted = {"key": "k", "effect": "NoExecute"}
    assert eviction.slice_taints([part(2), part(1, tainted)]) == {}
    assert list(eviction.slice_taints([part(1), part(2, tainted)])) == [("d", "p", "x")]


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        (None, False),
        ({}, True),
        ({"driver": "d"}, True),
        ({"driver": "other"}, False),
        ({"pool": "p", "device": "x"}, True),
        ({"pool": "p", "device": "y"}, False),
    ],
)
def test_rules_select_by_the_names_in_the_allocation(selector: dict[str, str] | None, selects: bool) -> None:
    spec = {
        "taint": {"key": "k", "effect": "NoExecute"},
        **({"deviceSelector": selector} if selector is not None else {}),
    }
    rule = convert(DeviceTaintRule, {"metadata": {"name": "r"}, "spec": spec})
    assert eviction.rule_selects(rule, ("d", "p", "x")) is selects


@pytest.fixture
async def using(cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write, bind: Write) -> EmbeddedCluster:
    """Pod `p` runs with gpu-0 of node-1, pod `q` with gpu-1."""
    for name, device in (("p", "gpu-0"), ("q", "gpu-1")):
        await cluster.apply([claim(f"c-{name}"), pod(name, claims={"gpu": f"c-{name}"})])
        await allocate("default", f"c-{name}", device, pods=(name,))
        await bind("default", name, "node-1")
    await cluster.wait_until(lambda: cluster.running("default", "p", "q"))
    return cluster


async def test_a_taint_of_the_driver_ends_the_pod_that_uses_the_device(using: EmbeddedCluster) -> None:
    await using.driver.taint("node-1", "gpu-0", "broken", "NoExecute")
    await using.wait_until(lambda: using.pod("default", "p") is None)
    assert using.running("default", "q")
    await using.wait_until(
        lambda: ("DeviceTaintManagerEviction", "Marking for deletion") in using.events("default", "p")
    )


async def test_a_rule_ends_pods_and_reports_that_it_did(using: EmbeddedCluster) -> None:
    spec = {
        "deviceSelector": {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-1"},
        "taint": {"key": "maintenance", "effect": "NoExecute"},
    }
    rule = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}
    await using.apply([rule])
    await using.wait_until(lambda: using.pod("default", "q") is None)

    def told() -> list[tuple[str, str, str]]:
        found = using.store.get("devicetaintrules", "r") or {}
        conditions = (found.get("status") or {}).get("conditions") or []
        return [(c["status"], c["reason"], c["message"]) for c in conditions]

    await using.wait_until(lambda: told() == [("False", "Completed", "1 pod evicted since starting the controller.")])
    assert using.running("default", "p")


async def test_a_tolerated_pod_stays_until_its_time_and_is_spared_when_the_taint_goes(
    cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write, bind: Write
) -> None:
    toleration = {"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
    await cluster.apply([claim("c"), pod("p", claims={"gpu": "c"})])
    await allocate("default", "c", pods=("p",), result={"tolerations": [toleration]})
    await bind("default", "p", "node-1")
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    await cluster.driver.taint("node-1", "gpu-0", "broken", "NoExecute")
    await cluster.wait_until(lambda: bool(cluster.controllers.eviction.pending))
    await cluster.driver.untaint("node-1", "gpu-0", "broken")
    await cluster.wait_until(lambda: not cluster.controllers.eviction.pending)
    await cluster.wait_until(
        lambda: ("DeviceTaintManagerEviction", "Cancelling deletion") in cluster.events("default", "p")
    )
    assert cluster.running("default", "p")
