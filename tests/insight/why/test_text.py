"""What people read: short first, within 80 columns, in words that are not Python's."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.manifests import defaulted
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import LONGEST, WIDTH, event_of, fully, shortly
from tests.support.diagnosis.hardware import cluster
from tests.support.diagnosis.misfits import MISFITS, POD, Misfit
from tests.support.diagnosis.scene import Scene
from tests.support.questions import diagnose

FOREIGN = re.compile(r"\b(None|True|False|Quantity|frozenset|tuple|dict|Struct|msgspec)\b|\(\)|\[\]|''")


def misfit_named(name: str) -> Misfit:
    return next(misfit for misfit in MISFITS if misfit.name == name)


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_every_text_fits_a_terminal_and_has_no_words_of_python(misfit: Misfit) -> None:
    found = misfit.scene().diagnose(POD)
    for text in (shortly(found), fully(found)):
        assert FOREIGN.search(text) is None, text
        for line in text.splitlines():
            folded = len(line) <= WIDTH or line.startswith("        ") or " " not in line.strip()
            assert folded, f"{len(line)} columns: {line}"
    first, why, *_ = shortly(found).splitlines()
    assert re.fullmatch(r"Pod default/misfit fits none of (9|12) nodes\.", first)
    assert why.startswith("Reason: ")


def test_a_pod_that_fits_is_told_where_and_what_was_not_checked() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "plain"}, "spec": {"nodeSelector": {"zone": "north"}}}
    found = Scene([*cluster(), pod]).diagnose("plain")
    assert shortly(found) == (
        "Pod default/plain fits 2 of 9 nodes: a1, a2.\n"
        "Not checked: volumes, whether scheduler default-scheduler runs and calls\n"
        "  dra-extender."
    )


def test_a_node_that_is_not_ready_is_repaired_and_not_tolerated() -> None:
    found = misfit_named("the GPUs of a node that is not ready").scene().diagnose(POD)
    assert "Suggestion: repair the node (`kubectl describe node v100-1`" in shortly(found)
    assert "toleration" not in fully(found)
    event = event_of(found)
    assert event is not None and event.note.endswith("; repair the node")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "a shared claim is on another node than the devices of the pod's own claim",
            "Suggestion: in claim own, request only devices that node dgx-1 has. While claim weights "
            "is allocated, the pod can only run there.",
        ),
        (
            "the claim is allocated on a node that does not exist any more",
            "Suggestion: delete the pods that `kubectl get resourceclaim old -n default -o yaml` lists in "
            "status.reservedFor. The claim is then deallocated.",
        ),
    ],
)
def test_of_a_claim_that_is_allocated_elsewhere_it_is_told_what_can_be_changed(name: str, hint: str) -> None:
    assert shortly(misfit_named(name).scene().diagnose(POD), 200).splitlines()[2:] == [hint]


def test_a_class_without_devices_leads_to_what_drivers_publish() -> None:
    bare = [document for document in cluster() if document["kind"] in {"Node", "DeviceClass"}]
    pod, claim = _pod("first"), _claim(deviceClassName="gpu")
    _, why, *helps = shortly(Scene([*bare, claim, pod]).diagnose("first")).splitlines()
    assert why == "Reason: claim c: no node has a device of class gpu."
    assert helps[0].startswith("Suggestion: install a driver that publishes devices of this class.")


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    entries = [{"name": "c", "resourceClaimName": "c"}]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"resourceClaims": entries, **spec}}


def _claim(**exactly: Any) -> dict[str, Any]:
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"}, "spec": spec}


def test_admin_access_of_a_claim_that_does_not_exist_yet_depends_on_the_namespace() -> None:
    """The API server checks the label of the namespace when a claim is stored."""
    view = Scene([*cluster(), _pod("watcher", schedulerName="dra")]).view()
    pod = view.pods.named("default", "watcher")
    claim = convert(ResourceClaim, _claim(deviceClassName="gpu", adminAccess=True))
    assert pod is not None
    found = diagnose(view, pod, claims=[msgspec.structs.replace(claim, spec=defaulted(claim.spec))])
    assert found.state == "fits"
    assert found.unchecked == (
        "volumes",
        "label resource.kubernetes.io/admin-access of namespace default",
        "whether scheduler dra runs and calls dra-extender",
    )


def test_a_toleration_is_told_as_it_is_written() -> None:
    """Last, because the device may be broken, and with the place in the manifest."""
    lines = shortly(misfit_named("every device is tainted").scene().diagnose(POD)).splitlines()
    assert lines[3].startswith("Suggestion: find out why the devices are tainted (`kubectl dra devices")
    assert lines[6] == "Or: add a toleration of maintenance=firmware:NoSchedule to claim c (then it fits"
    assert lines[8:] == [
        "        # in spec.devices.requests[0].exactly of resourceclaim c",
        "        tolerations:",
        "        - key: maintenance",
        "          operator: Equal",
        "          value: firmware",
        "          effect: NoSchedule",
    ]


def test_a_toleration_of_the_same_taint_with_another_effect_is_told() -> None:
    misfit = misfit_named("a toleration for the NoSchedule effect of an error that evicts")
    told = " ".join(shortly(misfit.scene().diagnose(POD)).split())
    added = "add a toleration of gpu.nvidia.com/xid=79:NoExecute to claim c"
    assert f"{added} (it already tolerates gpu.nvidia.com/xid:NoSchedule) (then it fits 1 node: l4-1)" in told


def test_a_clause_is_told_as_it_is_written_where_it_would_not_show_the_misspelt_word_otherwise() -> None:
    misfit = misfit_named("a misspelt domain")
    told = " ".join(shortly(misfit.scene().diagnose(POD)).split())
    assert (
        'claim c: use gpu.example.com instead of gpu.exmple.com in device.attributes["gpu.exmple.com"].model == "H100"'
        in told
    )


def test_a_selector_that_fails_is_shown_with_the_place() -> None:
    misfit = misfit_named("a misspelt attribute")
    text = fully(misfit.scene().diagnose(POD))
    assert "no such key: modle" in text
    assert "did you mean model?" in " ".join(text.partition("device ")[2].split()), "where the error is told, too"
    line, mark = next(
        (line, following)
        for line, following in zip(text.splitlines(), text.splitlines()[1:], strict=False)
        if following.endswith("^")
    )
    assert line[mark.index("^") :].startswith("modle")


def refused() -> Diagnosis:
    """With a reason as long as a note may be."""
    misfit = misfit_named("more devices than any node has")
    return msgspec.structs.replace(misfit.scene().diagnose(POD), summary="x" * LONGEST)


def test_a_note_keeps_the_remedy_and_cuts_the_reason() -> None:
    event = event_of(refused())
    assert event is not None and len(event.note) == LONGEST
    assert event.note.startswith("xxx") and "x…; count <= 8 (then it fits " in event.note


def test_a_remedy_that_leaves_no_room_for_the_reason_is_not_in_the_note() -> None:
    found = refused()
    (first, *rest) = found.remedies
    long = msgspec.structs.replace(first, short="y" * LONGEST)
    event = event_of(msgspec.structs.replace(found, remedies=(long, *rest)))
    assert event is not None and event.note == "x" * LONGEST


def test_what_requests_want_together_is_compared_with_the_node_that_has_most() -> None:
    """Either request fits alone on the first node too, which has five devices left."""
    busy = {"name": "busy", "claim": {"devices": {"requests": [exactly("a100", 3)]}}}
    claims = {"c": {"devices": {"requests": [exactly("a100", 4, "r"), exactly("a100", 5, "s")]}}}
    misfit = msgspec.convert({"name": "two", "rule": "together", "holders": [busy], "claims": claims}, Misfit)
    found = misfit.scene().diagnose(POD)
    assert found.summary == (
        "the requests of claim c need 9 devices together, node a2 has 8 that can be allocated; "
        "the requests of claim c need 9 devices together, node a1 has 5 that can be allocated (others are in use by "
        "default/busy)"
    )


def exactly(device_class: str, count: int, name: str = "r") -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count}}
