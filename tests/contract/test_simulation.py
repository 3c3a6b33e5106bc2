"""The API server in memory, which the tests of scheduling and chaos happen at, does as a real one was recorded to do.

What it cannot be asked is counted by reason, so that nothing falls out of the comparison unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.contract import exchanges, simulated
from tests.support.contract.exchanges import Scenario
from tests.support.contract.simulated import Played
from tests.support.simulation import strategy

SCENARIOS = [each for each in exchanges.load() if each.file not in ("manifests", "podspecs", "podupdates")]
"""Left out as a whole: what is wrong in manifests of pods, which only others write."""


async def played(*scenarios: Scenario) -> Played:
    found = Played()
    for scenario in scenarios:
        await simulated.play(scenario, exchanges.recording(scenario.file)[scenario.name], found)
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{each.file}: {each.name}" for each in SCENARIOS])
async def test_the_simulation_does_as_the_real_server(scenario: Scenario) -> None:
    assert (await played(scenario)).differences == []


async def test_what_is_left_out_is_known_by_number() -> None:
    found = await played(*SCENARIOS)
    assert found.alike == 264
    assert dict(found.left) == {
        "kinds of objects that only others write": 231,
        "what only others do to pods": 48,
        "lists, watches and other forms of an answer": 72,
        "options that none of ours sends": 22,
        "other versions of the API": 3,
        "rights: everybody has all": 21,
        "requests that are not well formed": 17,
        "whole objects are never replaced": 18,
        "fields that none of ours writes": 37,
        "fields that the simulation has not": 5,
        "names that the server makes": 2,
        "the form of what is written": 88,
    }


@pytest.mark.parametrize(
    ("rule", "instead"),
    [
        ("with_status", lambda claim, status: msgspec.structs.replace(claim, status=status)),
        (
            "with_finalizer",
            lambda claim, name: strategy.with_metadata(claim, finalizers=(*claim.metadata.finalizers, name)),
        ),
        ("with_defaults", lambda claim: claim),
        ("is_scheduled", lambda pod: pod),
    ],
)
def test_a_rule_that_is_missing_is_found(
    monkeypatch: pytest.MonkeyPatch, rule: str, instead: Callable[..., Any]
) -> None:
    monkeypatch.setattr(strategy, rule, instead)
    assert asyncio.run(played(*SCENARIOS)).differences != []
