"""The same pods under two policies on the real kube-scheduler, one after the other on the same nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dra_extender.placement.policies import ANNOTATION, PolicyName
from tests.e2e.case import Case
from tests.e2e.ground import PLACING, Ground

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

POLICIES: tuple[PolicyName, ...] = ("first-fit", "fragmentation")
GPUS = (4, 1, 1, 2, 1, 4, 1, 1, 2, 4)
"""Devices of the pods, in order: 21 in all, where four nodes have four each."""
EACH = 4


@pytest.fixture(scope="module")
def placing(ground: Ground) -> Iterator[str]:
    """The name of one more scheduler, for which the policy decides."""
    ground.start_placing_scheduler()
    yield PLACING
    ground.plane.stop_component(PLACING)


def put_class(case: Case, policy: PolicyName) -> None:
    """Half of the devices, and the policy for pods that ask for them."""
    selector = {"cel": {"expression": f'device.attributes["{case.driver}"].side == "{policy}"'}}
    case.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": f"{case.name}-{policy}", "annotations": {ANNOTATION: policy}},
            "spec": {"selectors": [selector]},
        }
    )


def try_once(case: Case, ground: Ground, policy: PolicyName, number: int) -> int:
    """How many devices the pod gets; without any it is gone again."""
    name, count = f"{policy}-{number}", GPUS[number]
    exactly = {"deviceClassName": f"{case.name}-{policy}", "count": count}
    case.claim(name, {"name": "r", "exactly": exactly})
    case.pod(name, name, scheduler=PLACING, requests={"cpu": "2", "memory": "8Gi"})
    ground.eventually(lambda: case.node(name) or case.told(name), f"a decision about {name}")
    if case.node(name):
        return count
    case.delete_pod(name)
    case.delete_claim(name)
    return 0


def allocated(case: Case, ground: Ground, policy: PolicyName) -> int:
    """How many devices all pods get together. They are gone afterwards."""
    found = sum(try_once(case, ground, policy, number) for number in range(len(GPUS)))
    names = [f"{policy}-{number}" for number in range(len(GPUS))]
    for name in filter(case.phase, names):
        case.delete_pod(name)
    ground.eventually(lambda: not any(map(case.phase, names)), "the end of all pods")
    return found


@pytest.mark.usefixtures("placing")
def test_fragmentation_allocates_more_devices_than_first_fit(case: Case, ground: Ground) -> None:
    for node in ground.nodes:
        devices = [
            {"name": f"{policy}-{number}", "attributes": {"side": {"string": policy}}}
            for policy in POLICIES
            for number in range(EACH)
        ]
        case.publish(node, devices)
    for policy in POLICIES:
        put_class(case, policy)
    first, best = (allocated(case, ground, policy) for policy in POLICIES)
    assert best > first
