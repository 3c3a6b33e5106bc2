"""What to type for a remedy, and what is suggested first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.insight.why.report import Remedy
from dra_extender.insight.why.text import event_of, shortly
from tests.support.diagnosis.misfits import MISFITS, POD, Misfit
from tests.support.diagnosis.scene import Scene

CONTROLLED = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set", "controller": True}


def first(scene: Scene) -> Remedy:
    return scene.diagnose(POD).remedies[0]


def misfit(name: str) -> Misfit:
    return next(each for each in MISFITS if each.name == name)


def with_owner(scene: Scene, name: str, owner: dict[str, Any]) -> Scene:
    pod = next(item for item in scene.documents if (item["kind"], item["metadata"]["name"]) == ("Pod", name))
    pod["metadata"]["ownerReferences"] = [owner]
    return scene


@pytest.mark.parametrize(
    ("name", "owner", "expected"),
    [
        (
            "too many network cards",
            None,
            (
                "kubectl get resourceclaim c -n default -o yaml > c.yaml",
                "# make the change in c.yaml",
                "kubectl replace --force -f c.yaml",
            ),
        ),
        (
            "too many from a template",
            None,
            (
                "kubectl get resourceclaimtemplate c -n default -o yaml > c.yaml",
                "# make the change in c.yaml",
                "kubectl replace --force -f c.yaml",
                "kubectl get pod misfit -n default -o yaml > misfit.yaml",
                "kubectl replace --force -f misfit.yaml",
            ),
        ),
        (
            "too many from a template",
            CONTROLLED,
            (
                "kubectl get resourceclaimtemplate c -n default -o yaml > c.yaml",
                "# make the change in c.yaml",
                "kubectl replace --force -f c.yaml",
                "kubectl delete pod misfit -n default",
            ),
        ),
        (
            "a label in the wrong case",
            CONTROLLED,
            (
                "# make the change in the pod template of ReplicaSet set, or of its owner",
                "kubectl delete pod misfit -n default",
            ),
        ),
        ("a scheduling gate", None, ()),
        ("devices only on a cordoned node", None, ()),
    ],
)
def test_commands_make_an_object_that_cannot_be_changed_again(
    name: str, owner: dict[str, Any] | None, expected: tuple[str, ...]
) -> None:
    scene = misfit(name).scene()
    assert first(with_owner(scene, POD, owner) if owner else scene).commands == expected


def test_the_commands_follow_the_first_suggestion() -> None:
    lines = shortly(misfit("too many network cards").scene().diagnose(POD)).splitlines()
    assert lines[4] == "        kubectl get resourceclaim c -n default -o yaml > c.yaml"


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ({**CONTROLLED, "apiVersion": "batch/v1", "kind": "Job"}, "wait for pod default/busy"),
        (CONTROLLED, "delete claim default/of-gone"),
    ],
)
def test_a_pod_that_ends_by_itself_is_waited_for_before_anything_is_deleted(
    owner: dict[str, Any], expected: str
) -> None:
    claims = {"c": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "nic"}}]}}}
    holders = [{"name": name, "claim": claims["c"]} for name in ("busy", "gone")]
    scene = msgspec.convert({"name": "m", "rule": "in use", "holders": holders, "claims": claims}, Misfit).scene()
    scene.documents = [item for item in scene.documents if (item["kind"], item["metadata"]["name"]) != ("Pod", "gone")]
    unused = next(item for item in scene.documents if item["metadata"]["name"] == "of-gone")
    unused["status"]["reservedFor"] = []
    found = first(with_owner(scene, "busy", owner))
    assert (found.short, found.weakens) == (expected, False)


def test_an_event_about_tainted_devices_names_the_taint_and_does_not_ask_to_tolerate_it() -> None:
    event = event_of(misfit("every device is tainted").scene().diagnose(POD))
    assert event is not None
    assert "maintenance=firmware:NoSchedule" in event.note and event.note.endswith("; repair them, or remove the taint")


def test_an_event_about_a_class_without_devices_asks_for_its_driver() -> None:
    event = event_of(misfit("a class without a device").scene().diagnose(POD))
    assert event is not None and event.note == "claim c: no node has a device of class tpu; is its driver installed?"
