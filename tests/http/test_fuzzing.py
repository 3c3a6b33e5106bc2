"""The short version of `make fuzz`."""

from __future__ import annotations

import pytest

from tests.support.http.fuzzing import GROWTH, fuzz


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_body_breaks_a_verb_or_is_remembered_for_ever(seed: int) -> None:
    answers, growth = await fuzz(1500, seed)
    assert {kind.split()[0] for kind in answers} == {"filter", "prioritize", "preempt", "bind"}
    assert {kind.split()[1] for kind in answers} == {"200", "400"}
    assert growth < GROWTH
