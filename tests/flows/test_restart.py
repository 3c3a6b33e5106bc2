"""The service dies at the worst moments: nothing is lost and nothing is doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from embedded_cluster import RequestFault
from tests.support.flows.flow import Flow

pytestmark = pytest.mark.slow

Make = Callable[..., dict[str, Any]]


async def test_a_killed_and_restarted_service_loses_nothing_and_doubles_nothing(
    flow: Flow, claim: Make, pod: Make
) -> None:
    cluster = flow.cluster
    await cluster.apply([claim("one", template=True)])
    first = [f"before-{number}" for number in range(6)]
    await cluster.apply([pod(name, templates={"gpu": "one"}) for name in first])
    await cluster.wait_until(lambda: cluster.running("default", *first))
    before = {claim.metadata.uid: claim.allocation for claim in cluster.claims("default")}
    await flow.kill()
    second = [f"after-{number}" for number in range(6)]
    await cluster.apply([pod(name, templates={"gpu": "one"}) for name in second])
    await asyncio.sleep(0.2)
    assert not any(cluster.running("default", name) for name in second)
    await flow.start()
    await cluster.wait_until(lambda: cluster.running("default", *first, *second))
    after = {claim.metadata.uid: claim.allocation for claim in cluster.claims("default")}
    assert {uid: after[uid] for uid in before} == before


@pytest.mark.parametrize(
    ("verb", "resource"),
    [("patch", "resourceclaims"), ("patch", "resourceclaims/status"), ("create", "pods/binding")],
)
@pytest.mark.parametrize("after", [False, True], ids=["before it is done", "after it is done"])
async def test_a_crash_in_the_middle_of_a_bind_is_made_good(
    flow: Flow, claim: Make, pod: Make, verb: str, resource: str, after: bool
) -> None:
    cluster = flow.cluster
    await cluster.apply([claim("c")])
    # The write hangs until the service is gone, and has taken effect or never does.
    never = asyncio.Event()
    fault = RequestFault(verb=verb, resource=resource, user_agent="dra-extender*", times=1, until=never, after=after)
    cluster.faults.add(fault)
    await cluster.apply([pod("p", claims={"gpu": "c"})])
    await cluster.wait_until(lambda: fault.hits)
    await flow.kill()
    await flow.start()
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    assert len(flow.devices("default", "c")) == 1


async def test_the_scheduler_may_be_restarted_too(flow: Flow, claim: Make, pod: Make) -> None:
    cluster = flow.cluster
    await cluster.apply([claim("one", template=True)])
    names = [f"p{number}" for number in range(12)]
    await cluster.apply([pod(name, templates={"gpu": "one"}) for name in names])
    await cluster.stop_scheduler()
    await flow.schedule()
    await cluster.wait_until(lambda: cluster.running("default", *names))
    assert len(cluster.claims("default")) == len(names)
