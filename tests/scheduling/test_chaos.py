"""The short version of `make chaos`: the rules that are checked are told in `tools.chaos.chaos`."""

from __future__ import annotations

import pytest

from tools.chaos.chaos import Chaos, run


def bindings(chaos: Chaos) -> int:
    """How many pods were bound: a run in which nothing happens shows nothing."""
    return sum(operation == "bind" for operation, _ in chaos.world.api.log)


@pytest.mark.parametrize("block", range(5))
def test_nothing_is_doubled_lost_or_left_behind(block: int) -> None:
    seeds = range(5 * block, 5 * block + 5)
    assert sum(bindings(run(seed, 60)) for seed in seeds) >= len(seeds)


def test_a_run_is_its_seed() -> None:
    for seed in range(3):
        first, second = run(seed, 60), run(seed, 60)
        assert first.trace == second.trace
        assert first.seconds == second.seconds


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_nothing_is_doubled_lost_or_left_behind_in_many_runs(block: int) -> None:
    seeds = range(1000 + 20 * block, 1020 + 20 * block)
    assert sum(bindings(run(seed, 100)) for seed in seeds) >= len(seeds)
