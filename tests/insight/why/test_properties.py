"""Each remedy helps, and without a remedy no single change helps: on random small clusters."""

from __future__ import annotations

from hypothesis import event, given, settings

from tests.support.diagnosis.scenarios import POD, changed, scenes
from tests.support.diagnosis.scene import Scene, shown
from tests.support.examples import examples


@given(scene=scenes())
@settings(max_examples=examples(60))
def test_with_a_remedy_the_pod_fits_the_reported_number_of_nodes(scene: Scene) -> None:
    found = scene.diagnose(POD)
    event(found.rule or "fits")
    for remedy in found.remedies:
        after = scene.after(remedy).diagnose(POD)
        assert (after.state, after.fits) == ("fits", remedy.nodes), f"{remedy.text}: {after.summary}"


@given(scene=scenes())
@settings(max_examples=examples(60))
def test_without_a_remedy_of_one_change_no_single_change_helps(scene: Scene) -> None:
    found = scene.diagnose(POD)
    if found.state == "fits" or any(len(remedy.changes) == 1 for remedy in found.remedies):
        return
    event("nothing helps" if not found.remedies else "two changes help")
    for what, after in changed(scene):
        assert not after.fits(POD), f"{what} helps; {found.summary}\n{shown(found.remedies)}"
