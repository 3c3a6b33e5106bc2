"""The takeover of the cluster's own scheduler: all its pods are bound by the extender."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.case import Case
from tests.e2e.ground import Ground

pytestmark = pytest.mark.e2e

STOCK = "default-scheduler"


@pytest.fixture
def takeover(ground: Ground) -> Iterator[str]:
    """The cluster's own scheduler, which leaves devices to the extender."""
    environment = ground.extender.environment
    served = environment["DRA_EXTENDER_SCHEDULER_NAMES"]
    ground.extender.stop()
    environment["DRA_EXTENDER_SCHEDULER_NAMES"] = ground.plane.stock_scheduler
    ground.extender.start()
    ground.start_scheduler(STOCK, "stock-scheduler.yaml")
    yield ground.plane.stock_scheduler
    ground.plane.stop_component(STOCK)
    ground.extender.stop()
    environment["DRA_EXTENDER_SCHEDULER_NAMES"] = served
    ground.extender.start()


def test_the_clusters_own_scheduler_can_leave_devices_to_us(case: Case, ground: Ground, takeover: str) -> None:
    case.publish("node-1", 1)
    case.publish("node-2", 1)
    case.template("each")
    case.pod("plain", scheduler=takeover)
    for name in ("one", "two", "three"):
        case.pod(name, template="each", scheduler=takeover)
    case.until_runs("plain")
    ground.eventually(lambda: len(case.bound(("one", "two", "three"))) == 2, "two bindings")
    (last,) = {"one", "two", "three"} - set(case.bound(("one", "two", "three")))
    case.until_refused(last, "cannot allocate all claims")
    case.publish("node-3", 1)
    assert case.until_bound(last) == "node-3"
    for name in ("plain", "one", "two", "three"):
        assert ground.answer(ground.calls.calls("bind", case.key(name))[-1]) == {"Error": ""}
