"""Every mistake of the table has its diagnosis, and with each remedy the pod fits."""

from __future__ import annotations

import pytest

from dra_extender.insight.snapshot import SimulatedPod, snapshot
from dra_extender.scheduling.feasibility import node_statuses
from tests.support.diagnosis.misfits import MISFITS, POD, Misfit
from tests.support.diagnosis.scene import Scene, shown

FEWEST = 190


def test_the_table_is_long_and_names_each_misfit_once() -> None:
    assert len({misfit.name for misfit in MISFITS}) == len(MISFITS) >= FEWEST


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_the_rule_is_named_and_the_smallest_remedy_is_first(misfit: Misfit) -> None:
    found = misfit.scene().diagnose(POD)
    told = f"{found.summary}\n{shown(found.remedies)}"
    assert (found.state, found.rule) == ("refused", misfit.rule), told
    assert [part for part in misfit.says if part not in found.summary] == [], told
    shorts = [remedy.short.replace("default/", "NAMESPACE/") for remedy in found.remedies]
    if misfit.among:
        assert misfit.among in shorts, told
    else:
        assert shorts[:1] == ([misfit.remedy] if misfit.remedy else []), told
    assert [short for short in shorts[1:] if short in misfit.then] == list(misfit.then), told


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_each_remedy_applied_to_the_manifests_makes_the_pod_fit(misfit: Misfit) -> None:
    scene = misfit.scene()
    for remedy in scene.diagnose(POD).remedies:
        found = scene.after(remedy).diagnose(POD)
        assert found.state == "fits", f"{remedy.text}: {found.summary}"
        assert found.fits == remedy.nodes, remedy.text


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_filter_gives_the_same_answer_as_the_diagnosis(misfit: Misfit) -> None:
    scene = misfit.scene()
    assert _filtered(scene) == []
    for remedy in scene.diagnose(POD).remedies[:1]:
        assert len(_filtered(scene.after(remedy))) == remedy.nodes, remedy.text


def _filtered(scene: Scene) -> list[str]:
    """The nodes that fit, if kube-scheduler asks about all nodes without other obstacles."""
    view = scene.view()
    pod = view.pods.named("default", POD)
    assert pod is not None
    simulated = SimulatedPod(pod, snapshot(view))
    asked = [name for name, node in view.cluster.nodes.items() if not any(simulated.obstacles(node))]
    return [] if simulated.excluding_rule() else node_statuses(view, simulated.prefiltered, asked).fits
