"""Every statement of every answer is true of the objects, whatever nodes lack, and with each remedy the pod fits."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings

from tests.support.diagnosis.mixed import POD, mixed
from tests.support.diagnosis.scene import Scene
from tests.support.diagnosis.truth import untrue
from tests.support.examples import examples

PARTS = 4
"""Parts of the examples, which run at the same time."""


@pytest.mark.parametrize("part", range(PARTS))
@given(scene=mixed())
@settings(max_examples=examples(40))
def test_no_statement_is_false(part: int, scene: Scene) -> None:
    found = scene.diagnose(POD)
    for statement in found.statements:
        event(type(statement).__name__)
    if found.state == "refused":
        assert found.statements and found.summary
    assert untrue(scene, POD, found) == [], found.summary
    if found.rule not in ("scheduling gate", "scheduler"):
        free = [name for group in found.groups if not group.obstacles for name in group.nodes]
        assert scene.filtered(POD, free) == found.fits, found.summary
    for remedy in found.remedies:
        after = scene.after(remedy).diagnose(POD)
        assert (after.state, after.fits) == ("fits", remedy.nodes), f"{remedy.text}: {after.summary}"
