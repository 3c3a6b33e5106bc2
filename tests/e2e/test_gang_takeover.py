"""A leader that is killed while it binds a gang: its plan is lost, and the next leader has to make the best of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web

from dra_extender.scheduling.config import SchedulingConfig
from tests.e2e.case import Case
from tests.e2e.extender import Extender
from tests.e2e.gangs import annotation, holding, members
from tests.e2e.ground import Ground
from tests.e2e.wire import Exchange

pytestmark = pytest.mark.e2e

SECONDS = 60.0
"""Within which a gang that fits is complete."""
ABANDONED_SECONDS = SchedulingConfig().abandoned_seconds + 30.0
"""Within which nothing is allocated for a gang that cannot be completed: a bind of the former leader, which may still
reach the API server, relies on a claim for so long.
"""


@contextmanager
def killed(ground: Ground, leader: Extender, bindings: int) -> Iterator[Callable[[], bool]]:
    """The leader is killed instead of its next write after so many bindings, and no write of it arrives later. Gives
    whether it has happened.
    """
    seen: list[Exchange] = []
    done: list[bool] = []

    async def kill(exchange: Exchange) -> web.Response | None:
        if exchange.method == "GET":
            return None
        if exchange.verb == "binding":
            seen.append(exchange)
        if len(seen) <= bindings:
            return None
        leader.kill()
        done.append(True)
        return web.Response(status=502)

    with ground.api.rule(before=kill):
        yield lambda: bool(done)


def test_the_next_leader_completes_a_gang_of_which_three_are_bound(
    case: Case, ground: Ground, pair: tuple[Extender, Extender]
) -> None:
    """T5, with devices for the rest."""
    first, second = pair
    for node in ("node-1", "node-2"):
        case.publish(node, 4)
    with killed(ground, first, bindings=3) as happened:
        pods = members(case, annotation, "g", 8)
        ground.eventually(happened, "the end of the leader")
        ground.eventually(lambda: second.leading, "the next leader")
        assert len(case.bound(pods)) == 3
        ground.calls.target = second.url
        ground.eventually(lambda: len(case.bound(pods)) == 8, "a complete gang", SECONDS)
    case.until_runs(*pods)


@pytest.mark.slow
def test_what_was_allocated_for_a_gang_that_cannot_be_completed_becomes_free(
    case: Case, ground: Ground, pair: tuple[Extender, Extender]
) -> None:
    """T5, without devices for the rest. Claims are written, no pod is bound, and a node loses its devices."""
    first, second = pair
    for node in ("node-1", "node-2"):
        case.publish(node, 4)
    with killed(ground, first, bindings=0) as happened:
        pods = members(case, annotation, "g", 8)
        ground.eventually(happened, "the end of the leader")
        assert holding(case, pods) != []
        for node in ("node-1", "node-2"):
            case.publish(node, 2)
        ground.eventually(lambda: second.leading, "the next leader")
        ground.calls.target = second.url
        ground.eventually(lambda: holding(case, pods) == [], "the end of the allocations", ABANDONED_SECONDS)
    assert case.bound(pods) == []
    case.pod_with_claim("single")
    case.until_runs("single")
