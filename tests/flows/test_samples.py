"""The samples that people try first, from apply to running and back."""

from __future__ import annotations

import pytest

from embedded_cluster import manifests
from embedded_cluster.manifests import FIRST_SAMPLES
from tests.support.flows.flow import Flow

pytestmark = pytest.mark.slow


async def test_the_tutorial_pod_gets_a_gpu_with_enough_memory_and_gives_it_back(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("tutorial")
    await cluster.wait_until(lambda: cluster.running("dra-tutorial", "pod0"))
    (device,) = flow.devices("dra-tutorial", "some-gpu")
    assert device.partition("/")[0] in ("node-1", "node-2", "node-3"), "node-4 has only 8Gi"
    await cluster.delete("pods", "pod0", "dra-tutorial")
    await cluster.wait_until(lambda: flow.devices("dra-tutorial", "some-gpu") == [])
    await cluster.wait_until(lambda: flow.claim("dra-tutorial", "some-gpu").metadata.finalizers == ())


async def test_two_pods_share_one_device_on_one_node(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("shared")
    await cluster.wait_until(lambda: cluster.running("dra-samples", "shared-a", "shared-b"))
    assert len(flow.devices("dra-samples", "shared-gpu")) == 1
    assert len(flow.claim("dra-samples", "shared-gpu").status.reserved_for) == 2
    assert len({flow.pod("dra-samples", name).spec.node_name for name in ("shared-a", "shared-b")}) == 1


async def test_every_replica_gets_a_claim_and_a_device_of_its_own(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("deployment")
    await cluster.wait_until(lambda: [pod.status.phase for pod in cluster.pods("dra-samples")] == ["Running"] * 3)
    claims = [claim.metadata.name for claim in cluster.claims("dra-samples")]
    assert len({device for name in claims for device in flow.devices("dra-samples", name)}) == 3
    await cluster.delete("deployments", "workers", "dra-samples")
    await cluster.wait_until(lambda: not cluster.pods("dra-samples") and not cluster.claims("dra-samples"))


async def test_mode_all_takes_every_matching_gpu_of_a_node(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("all")
    await cluster.wait_until(lambda: cluster.running("dra-samples", "takes-all"))
    assert sorted(flow.devices("dra-samples", "all-small-gpus")) == [f"node-4/gpu-{n}" for n in range(8)]


async def test_a_matched_pair_sits_behind_one_pcie_root(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("matched-pair")
    await cluster.wait_until(lambda: cluster.running("dra-samples", "matched-pair"))
    first, second = (int(device.rpartition("-")[2]) for device in flow.devices("dra-samples", "pair"))
    assert first != second and first // 2 == second // 2


async def test_a_prioritized_list_falls_back_to_the_best_there_is(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("prioritized")
    await cluster.wait_until(lambda: cluster.running("dra-samples", "prioritized"))
    assert flow.results("dra-samples", "best-available")[0].request == "gpu/big"
    assert flow.pod("dra-samples", "prioritized").spec.node_name != "node-4"


async def test_an_urgent_pod_takes_the_place_of_another_one(flow: Flow) -> None:
    cluster = flow.cluster
    await flow.kill()
    await flow.start(preemption="on")
    await cluster.apply_samples("preemption")
    await cluster.wait_until(lambda: cluster.running("dra-preemption", "training-a", "training-b"))
    await cluster.apply_samples("preemption-urgent")
    await cluster.wait_until(lambda: cluster.running("dra-preemption", "urgent"))
    names = {pod.metadata.name for pod in cluster.pods("dra-preemption")}
    assert len(names & {"training-a", "training-b"}) == 1


async def test_with_a_policy_one_more_large_pod_fits(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("placement")
    small = [f"{policy}-small-{letter}" for policy in ("first-fit", "fragmentation") for letter in "ab"]
    await cluster.wait_until(lambda: cluster.running("dra-placement", *small))
    await cluster.apply_samples("placement-pairs")
    await cluster.wait_until(lambda: cluster.running("dra-placement", "fragmentation-pair"))
    await cluster.wait_until(lambda: flow.reason("dra-placement", "first-fit-pair")[0] == "Unschedulable")
    taken = [flow.devices("dra-placement", name)[0].rpartition("/")[2] for name in small]
    first_fit, fragmentation = taken[:2], taken[2:]
    assert (sorted(first_fit), sorted(fragmentation)) == (["gpu-0", "gpu-1"], ["gpu-0", "gpu-2"]), "who comes first?"


async def test_the_pods_of_a_gang_get_devices_with_which_both_run(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("gang")
    await cluster.wait_until(lambda: cluster.running("dra-gang", "gang-a", "gang-b"))
    names = [claim.metadata.name for claim in cluster.claims("dra-gang")]
    devices = [device.rpartition("/")[2] for name in names for device in flow.devices("dra-gang", name)]
    assert sorted(devices) == ["gpu-0-half-0", "gpu-0-half-1"]


async def test_a_pod_that_fits_nowhere_says_why_and_leaves_the_extender_in_peace(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("unschedulable")
    await cluster.wait_until(lambda: flow.reason("dra-samples", "unschedulable")[0] == "Unschedulable")
    assert flow.reason("dra-samples", "unschedulable")[1] == (
        "0/4 nodes are available: 4 cannot allocate all claims. "
        "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )
    calls = [call for call in flow.calls if call.pod == "dra-samples/unschedulable"]
    assert len(calls) <= 3, "the pod's own condition wakes it once; nothing else does"


async def test_all_samples_together_find_their_place(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("tutorial", "all")
    await cluster.wait_until(lambda: cluster.running("dra-samples", "takes-all"))
    without_preemption = [name for name in FIRST_SAMPLES if name != "preemption-urgent"]
    await cluster.apply_samples(*without_preemption)

    def placed() -> bool:
        pods = [pod for pod in cluster.pods() if pod.metadata.name not in ("unschedulable", "first-fit-pair")]
        return len(pods) == 18 and all(pod.status.phase == "Running" for pod in pods)

    await cluster.wait_until(placed)
    assert flow.wrong() == []


async def test_admin_access_takes_nothing_away(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("admin-access")
    await cluster.wait_until(lambda: cluster.running("dra-admin", "monitor"))
    assert len(flow.devices("dra-admin", "watch-all")) == 8
    results = flow.results("dra-admin", "watch-all")
    assert all(result.admin_access for result in results)


async def test_partitions_share_what_the_whole_has(flow: Flow) -> None:
    cluster = flow.cluster
    documents = manifests.read(manifests.samples() / "partitionable.yaml")
    later = [each for each in documents if (each["kind"], each["metadata"]["name"]) == ("Pod", "whole")]
    await cluster.apply([each for each in documents if each not in later])
    await cluster.wait_until(lambda: cluster.running("dra-samples", "half-a", "half-b"))
    await cluster.apply(later)
    await cluster.wait_until(lambda: flow.reason("dra-samples", "whole")[0] == "Unschedulable")
    assert not flow.pod("dra-samples", "whole").spec.node_name


async def test_bandwidth_is_shared_until_it_is_used_up(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("consumable-capacity")
    pods = ("traffic-a", "traffic-b", "traffic-c")

    def refused() -> list[str]:
        return [name for name in pods if flow.reason("dra-samples", name)[0] == "Unschedulable"]

    await cluster.wait_until(lambda: sum(cluster.running("dra-samples", name) for name in pods) == 2)
    await cluster.wait_until(lambda: len(refused()) == 1)
    claims = [claim.metadata.name for claim in cluster.claims("dra-samples")]
    shares = [result for name in claims for result in flow.results("dra-samples", name)]
    assert [share.consumed_capacity["bandwidth"].value() for share in shares] == [40 * 10**9] * 2
    assert len({share.share_id for share in shares}) == 2


async def test_a_tainted_device_is_for_those_who_tolerate_it(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("taints")
    await cluster.wait_until(lambda: cluster.running("dra-samples", "tolerant"))
    await cluster.wait_until(lambda: flow.reason("dra-samples", "careful")[0] == "Unschedulable")
    assert not flow.pod("dra-samples", "careful").spec.node_name


async def test_a_pod_is_bound_when_its_device_is_attached(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("binding-conditions")
    await cluster.wait_until(lambda: cluster.running("dra-samples", "attached"))
    (status,) = flow.claim("dra-samples", "attached").status.devices
    assert [(condition.type, condition.status) for condition in status.conditions] == [
        ("fabric.example.com/attached", "True")
    ]


async def test_an_extended_resource_becomes_a_claim(flow: Flow) -> None:
    cluster = flow.cluster
    await cluster.apply_samples("extended-resource")
    await cluster.wait_until(lambda: cluster.running("dra-samples", "extended"))
    made = flow.pod("dra-samples", "extended").status.extended_resource_claim_status
    assert made is not None
    assert len(flow.devices("dra-samples", made.resource_claim_name)) == 2
    assert [mapping.resource_name for mapping in made.request_mappings] == ["example.com/gpu"]
    await cluster.delete("pods", "extended", "dra-samples")
    await cluster.wait_until(lambda: cluster.claim("dra-samples", made.resource_claim_name) is None)
