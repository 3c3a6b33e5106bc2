"""The texts of statements: amounts in the unit that was asked for, and no names that the reader may not see."""

from __future__ import annotations

import pytest

from dra_extender.insight.why.statements import DevicesUnavailable, HoldingClaim
from dra_extender.insight.why.wording import in_unit, obstacle_text, text_of
from dra_extender.scheduling.noderules import Obstacle
from dra_extender.scheduling.reader import Reader
from tests.support.diagnosis.misfits import MISFITS, POD


@pytest.mark.parametrize(
    ("amount", "like", "expected"),
    [
        ("32873652Ki", "64Gi", "31.35Gi"),
        ("32Gi", "64Gi", "32Gi"),
        ("1500m", "2", "1.5"),
        ("1500m", "100m", "1500m"),
        ("0", "64Gi", "0Gi"),
        ("0 of 110", "1", "0 of 110"),
        ("1Ti", "100G", "1099.51G"),
    ],
)
def test_an_amount_is_told_in_the_unit_that_was_asked_for(amount: str, like: str, expected: str) -> None:
    assert in_unit(amount, like) == expected


def test_the_amount_of_several_nodes_is_the_largest() -> None:
    obstacle = Obstacle("memory", "memory", "64Gi", "32873652Ki")
    assert obstacle_text(obstacle, several=True) == "memory: 64Gi requested, at most 31.35Gi free"


def test_holders_of_other_namespaces_are_counted() -> None:
    misfit = next(misfit for misfit in MISFITS if misfit.name == "a pod has all of the devices")
    (statement,) = misfit.scene().diagnose(POD).statements
    assert isinstance(statement, DevicesUnavailable)
    (holder,) = statement.holders
    assert holder == HoldingClaim("default/of-busy", ("default/busy",), 2)
    assert text_of([statement]).endswith("2 are in use (by default/busy)")
    assert text_of([statement], Reader("other")).endswith("2 are in use (by 1 claim of another namespace)")
