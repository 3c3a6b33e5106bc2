"""Every mistake of the table has its diagnosis, and with each remedy the pod fits."""

from __future__ import annotations

import pytest

from tests.support.diagnosis.misfits import MISFITS, POD, Misfit
from tests.support.diagnosis.scene import shown

FEWEST = 60


def test_the_table_is_long_and_names_each_misfit_once() -> None:
    assert len({misfit.name for misfit in MISFITS}) == len(MISFITS) >= FEWEST


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_the_rule_is_named_and_the_smallest_remedy_is_first(misfit: Misfit) -> None:
    found = misfit.scene().diagnose(POD)
    told = f"{found.summary}\n{shown(found.remedies)}"
    assert (found.state, found.rule) == ("refused", misfit.rule), told
    shorts = [remedy.short for remedy in found.remedies]
    if misfit.among:
        assert misfit.among.replace("NAMESPACE", "default") in shorts, told
    else:
        assert shorts[:1] == ([misfit.remedy] if misfit.remedy else []), told


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_each_remedy_applied_to_the_manifests_makes_the_pod_fit(misfit: Misfit) -> None:
    scene = misfit.scene()
    for remedy in scene.diagnose(POD).remedies:
        found = scene.after(remedy).diagnose(POD)
        assert found.state == "fits", f"{remedy.text}: {found.summary}"
        assert found.fits == remedy.nodes, remedy.text
