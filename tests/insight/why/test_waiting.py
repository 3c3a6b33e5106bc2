"""Pods that wait share diagnoses, but no text that names one of them; the work of one answer is limited."""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.api.core import Pod, PodResourceClaimStatus
from dra_extender.insight.why import waiting as module
from dra_extender.insight.why.waiting import names_itself, waiting
from dra_extender.scheduling.turns import run_at_once
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.scene import Scene
from tests.support.simulation.objects import make_pod


def from_template(name: str, claim: str | None) -> Pod:
    pod, made = make_pod(name), PodResourceClaimStatus("gpu", claim)
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, resource_claim_statuses=(made,)))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("claim gpu: 9 devices of class gpu requested", False),
        ("pod default/train-0 is being deleted", True),
        ("claim default/train-0-gpu-x7f is being deleted", True),
        ("claim default/train-1-gpu-c2d is being deleted", False),
        ("pod other/train-0 uses the device", False),
    ],
)
def test_a_text_names_a_pod_by_its_namespace_and_name_or_by_a_claim_created_for_it(text: str, named: bool) -> None:
    assert names_itself(from_template("train-0", "train-0-gpu-x7f"), text) is named


def test_an_entry_that_needs_no_claim_is_named_by_no_text() -> None:
    assert not names_itself(from_template("train-0", None), "claim gpu: 9 devices requested")


def test_a_claim_that_a_pod_names_in_its_spec_is_no_name_of_the_pod() -> None:
    assert not names_itself(make_pod("train-0", "shared"), "claim default/shared does not exist")


def cluster() -> Scene:
    """Three pods that are refused for three reasons, and one that is refused like the first."""
    documents = [node("n1"), gpus("n1", "A100", 2, "40Gi", "535.1.0"), device_class("gpu", "true")]
    for count in (3, 4, 5):
        requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]
        spec = {"spec": {"devices": {"requests": requests}}}
        documents.append({"kind": "ResourceClaimTemplate", "metadata": {"name": f"of-{count}"}, "spec": spec})
    for name, count in (("a", 3), ("b", 4), ("c", 5), ("d", 3)):
        entries = [{"name": "gpu", "resourceClaimTemplateName": f"of-{count}"}]
        documents.append({"kind": "Pod", "metadata": {"name": name}, "spec": {"resourceClaims": entries}})
    return Scene(documents)


def groups(scene: Scene) -> list[tuple[str, tuple[str, ...]]]:
    return [(group.state, group.pods) for group in run_at_once(waiting(scene.view(), "default"))]


@pytest.mark.parametrize(
    ("most", "diagnosed"),
    [(0, ""), (1, "ad"), (module.MOST_TRIALS, "abcd")],
)
def test_no_diagnosis_begins_after_the_most_decisions_and_pods_like_a_diagnosed_one_share_it(
    monkeypatch: pytest.MonkeyPatch, most: int, diagnosed: str
) -> None:
    monkeypatch.setattr(module, "MOST_TRIALS", most)
    found = groups(cluster())
    assert {key for state, pods in found if state == "refused" for key in pods} == {f"default/{n}" for n in diagnosed}
    rest = tuple(f"default/{name}" for name in "abcd" if name not in diagnosed)
    assert [pods for state, pods in found if state == "not diagnosed"] == ([rest] if rest else [])
