"""The short version of `make contention`, on a control plane of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.contention.contest import OWN, Rules, compete
from tools.contention.history import OURS, STOCK

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.own_plane("it starts a control plane of its own"),
]


@pytest.fixture(autouse=True)
def has_what_is_needed() -> None:
    """Nothing but the binaries: the control plane of the other tests is not started for this one."""


@pytest.fixture(autouse=True)
def nothing_is_wrong() -> None:
    """Not here: the in-tree scheduler does give devices twice, and what counts is who did."""


@pytest.mark.timeout(400)
def test_two_replicas_and_an_in_tree_scheduler_share_devices_and_ours_give_none_twice(tmp_path: Path) -> None:
    outcome = compete(tmp_path, Rules(pods=120, waiting=60, patience=240))
    assert outcome.problems() == []
    ran = {pod.scheduler for pod in outcome.history.ran.values()}
    assert (len(outcome.history.ran), ran) == (120, {*OWN, STOCK})
    # It was a contest: a second writer has undone its write.
    assert any(overlap.ending == "taken back" for overlap in outcome.history.by(OURS))
