"""What shadow mode predicts of a policy is what the policy does, within a point of all GPUs.

TRACE names the folder of the public trace; without it, the workload is made up in its shape.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.placement.shadow import POLICIES, compare, missed, table

TRACE = Path(os.environ["TRACE"]) if os.environ.get("TRACE") else None
NODES = 120
"""Of the trace's 1,213: a tenth."""


@pytest.mark.parametrize("policy", POLICIES)
def test_the_predicted_gpus_are_those_that_the_policy_uses(policy: str) -> None:
    found = compare((None, "made up", policy, 30, 42))
    assert found.points == 0, "it learns from the same pods, and places each of them on the same node"
    assert found.predicted.waiting == found.measured.waiting
    assert found.now.shares != found.predicted.shares, "the policy makes no difference"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(TRACE is None, reason="the files of the trace come from elsewhere: TRACE=DIR")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["default", "multigpu50"])
def test_so_they_are_on_a_tenth_of_the_trace(name: str, policy: str) -> None:
    found = compare((TRACE, name, policy, NODES, 42))
    print(table([found]))
    assert missed([found]) == []
