"""The short version of `make fuzz` for what the watches bring."""

from __future__ import annotations

import pytest

from tests.support.kube.fuzzing import GROWTH, fuzz

KINDS = ("nodes", "pods", "deviceclasses", "resourceclaims", "resourceslices")


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_object_breaks_a_watch_and_each_is_known_or_reported(seed: int) -> None:
    seen, growth = await fuzz(600, seed)
    assert all(seen[f"{kind} {fate}"] for kind in KINDS for fate in ("known", "left out", "deleted", "broken"))
    assert seen["filter answered"]
    assert growth < GROWTH
