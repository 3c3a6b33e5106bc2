"""Gangs and single pods arrive together, and the leader is killed now and then: no gang stays incomplete.

GANGS, SINGLES and NODES in the environment make the load larger.
"""

from __future__ import annotations

import os

import pytest

from tests.e2e.case import Case
from tests.e2e.extender import Extender
from tests.e2e.gangload import Killing, furnish, jobs, play
from tests.e2e.gangs import annotation
from tests.e2e.ground import Ground

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GANGS, SINGLES, NODES = (
    int(os.environ.get(name, usual)) for name, usual in (("GANGS", "30"), ("SINGLES", "30"), ("NODES", "15"))
)
PATIENCE = 240.0 * max(1, GANGS // 30)
PARTIAL_SECONDS = 60.0
KILL_SECONDS = 10.0


@pytest.mark.timeout(PATIENCE + 300)
def test_every_gang_that_fits_runs_and_none_stays_incomplete(
    case: Case, ground: Ground, pair: tuple[Extender, Extender]
) -> None:
    """T8. All tests look for a device that is held twice."""
    furnish(case, NODES)
    listed = jobs(GANGS, SINGLES, NODES, seed=1)
    outcome = play(case, Killing(ground, pair, KILL_SECONDS), listed, annotation, PATIENCE)
    assert outcome.waiting == [f"too-large: 0 of {NODES + 1} pods"]
    assert outcome.partial < PARTIAL_SECONDS
    assert outcome.killed
