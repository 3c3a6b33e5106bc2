"""Acceptance tests 27 to 32: whatever makes a refused pod fit brings it back; waits end long before the scheduler's own
retry after five minutes, so a pod that is bound here was woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.case import Case
from tests.e2e.ground import Ground
from tests.e2e.schedulerqueue import Queue

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", autouse=True)
def nobody_waits_until_the_scheduler_tries_by_itself(ground: Ground) -> Iterator[None]:
    before = Queue(ground).flushed()
    yield
    assert Queue(ground).flushed() == before


def test_27_a_new_slice_wakes_although_kube_scheduler_does_not_look_at_slices(case: Case, ground: Ground) -> None:
    case.pod_with_claim("waiting")
    case.until_refused("waiting")
    ground.eventually(lambda: len(ground.calls.calls("filter", case.key("waiting"))) >= 2)
    case.publish("node-2", 1)
    assert case.until_bound("waiting") == "node-2"


def pod_deleted(case: Case) -> None:
    case.delete_pod("holder")


def pod_finished(case: Case) -> None:
    case.until_runs("holder")
    case.ground.run(case.ground.kubelet.finish(case.name, "holder"))


def claim_deleted_with_its_pod(case: Case) -> None:
    case.delete_claim("holder")
    case.delete_pod("holder")


def device_added(case: Case) -> None:
    case.publish("node-1", 2)


def node_with_devices_added(case: Case) -> None:
    case.publish(f"{case.name}-node", 1)
    case.node_added()


def taint_removed(case: Case) -> None:
    case.publish("node-3", [{"name": "tainted"}])


RELIEFS: list[Callable[[Case], None]] = [
    pod_deleted,
    pod_finished,
    claim_deleted_with_its_pod,
    device_added,
    node_with_devices_added,
]


@pytest.mark.parametrize("relief", RELIEFS, ids=lambda relief: relief.__name__)
def test_28_everything_that_helps_wakes(case: Case, relief: Callable[[Case], None]) -> None:
    _refused_until(case, relief)
    assert case.reserved("waiting") == {"waiting"}


@pytest.mark.needs("DRADeviceTaints")
def test_28_a_taint_that_goes_wakes(case: Case) -> None:
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    case.publish("node-3", [{"name": "tainted", "taints": [taint]}])
    _refused_until(case, taint_removed)
    assert case.devices("waiting") == ["tainted"]


def _refused_until(case: Case, relief: Callable[[Case], None]) -> None:
    case.publish("node-1", 1)
    case.pod_with_claim("holder")
    case.until_bound("holder")
    case.pod_with_claim("waiting")
    case.until_refused("waiting", "cannot allocate all claims")
    relief(case)
    case.until_runs("waiting")


def test_28_a_class_that_comes_late_wakes(case: Case) -> None:
    late = f"{case.name}-late"
    case.publish("node-1", 1)
    case.claim("one", {"name": "r", "exactly": {"deviceClassName": late}})
    case.pod("one", "one")
    case.until_refused("one", late)
    case.device_class(late)
    case.until_runs("one")
    assert case.devices("one") == ["device-0"]


def test_29_a_pod_refused_because_we_saw_the_news_late_is_woken_again(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.pod_with_claim("holder")
    case.until_bound("holder")
    case.pod_with_claim("waiting")
    case.until_refused("waiting")

    def asked() -> int:
        return len(ground.calls.calls("filter", case.key("waiting")))

    ground.eventually(lambda: asked() >= 2)
    ground.watches(False)
    try:
        before = asked()
        case.delete_pod("holder")
        case.until_free("holder")
        # The scheduler sees it first and asks; we do not know better yet.
        ground.eventually(lambda: asked() > before, "a call about the news")
        time.sleep(2)
        assert case.node("waiting") == ""
    finally:
        ground.watches(True)
    case.until_runs("waiting")


def test_31_a_pod_is_not_asked_about_before_its_generated_claim_exists(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.pod("early", template="late")
    time.sleep(1)
    assert ground.calls.calls("filter", case.key("early")) == []
    case.template("late")
    case.until_runs("early")
    (claim,) = ground.claims(case.name)
    assert case.reserved(claim.metadata.name) == {"early"}
    assert claim.metadata.controller is not None
    case.delete_pod("early")
    ground.eventually(lambda: not ground.claims(case.name), "the end of the generated claim")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_32_hundreds_of_refused_pods_do_not_keep_others_waiting(case: Case, ground: Ground) -> None:
    case.publish("node-1", 2)
    case.claim("never", case.request(count=50))
    names = [f"refused-{index}" for index in range(150)]
    for name in names:
        case.pod(name, "never")
    ground.eventually(lambda: all(case.told(name) for name in names), "all refusals", 300)
    case.pod_with_claim("busy")
    case.until_runs("busy")
    deadline = time.monotonic() + 5
    number = 0
    while time.monotonic() < deadline:
        number += 1
        ground.patch(case.pod_path("busy"), {"metadata": {"annotations": {"example.com/number": str(number)}}})
    case.pod_with_claim("urgent")
    case.until_runs("urgent")
    assert case.bound(names) == []
    (call,) = ground.calls.calls("bind", case.key("urgent"))
    assert ground.answer(call) == {"Error": ""}
