"""What people read: short first, within 80 columns, in words that are not Python's."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.manifests import defaulted
from dra_extender.insight.why.diagnosis import diagnose
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import LONGEST, WIDTH, event_of, fully, shortly
from tests.support.diagnosis.hardware import cluster
from tests.support.diagnosis.misfits import MISFITS, POD, Misfit
from tests.support.diagnosis.scene import Scene

FOREIGN = re.compile(r"\b(None|True|False|Quantity|frozenset|tuple|dict|Struct|msgspec)\b|\(\)|\[\]|''")


def scene_of(misfit: Misfit) -> Scene:
    return Scene([*cluster(), *misfit.before("default")]).settled().with_more(misfit.after("default"))


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_every_text_fits_a_terminal_and_has_no_words_of_python(misfit: Misfit) -> None:
    found = scene_of(misfit).diagnose(POD)
    for text in (shortly(found), fully(found)):
        assert FOREIGN.search(text) is None, text
        for line in text.splitlines():
            folded = len(line) <= WIDTH or line.startswith("        ") or " " not in line.strip()
            assert folded, f"{len(line)} columns: {line}"
    first, why, *_ = shortly(found).splitlines()
    assert first == "Pod default/misfit fits none of 9 nodes."
    assert why.startswith("Reason: ")


def test_a_pod_that_fits_is_told_where_and_what_was_not_checked() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "plain"}, "spec": {"nodeSelector": {"zone": "north"}}}
    found = Scene([*cluster(), pod]).diagnose("plain")
    assert shortly(found) == (
        "Pod default/plain fits 2 of 9 nodes: a1, a2.\n"
        "Not checked: volumes, whether scheduler default-scheduler runs and calls\n"
        "  dra-extender."
    )


def test_a_class_without_devices_leads_to_what_drivers_publish() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "first"},
        "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
    }
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    bare = [document for document in cluster() if document["kind"] in {"Node", "DeviceClass"}]
    _, why, *helps = shortly(Scene([*bare, claim, pod]).diagnose("first")).splitlines()
    assert why == "Reason: claim c: no node has a device of class gpu."
    assert helps[0].startswith("Suggestion: install a driver that publishes devices of this class.")


def _made(claim: dict[str, Any]) -> ResourceClaim:
    """As it would be stored."""
    found = convert(ResourceClaim, claim)
    return msgspec.structs.replace(found, spec=defaulted(found.spec))


def test_admin_access_of_a_claim_that_is_only_supposed_depends_on_the_namespace() -> None:
    """The API server has looked at the label of the namespace when a claim was stored."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }
    pod = {
        "kind": "Pod",
        "metadata": {"name": "watcher"},
        "spec": {"schedulerName": "dra", "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
    }
    view = Scene([*cluster(), pod]).view()
    asking = view.pods.named("default", "watcher")
    assert asking is not None
    found = diagnose(view, asking, claims=[_made(claim)])
    assert found.state == "fits"
    assert found.unchecked == (
        "volumes",
        "label resource.kubernetes.io/admin-access of namespace default",
        "whether scheduler dra runs and calls dra-extender",
    )


def test_a_toleration_is_told_as_it_is_written() -> None:
    misfit = next(misfit for misfit in MISFITS if misfit.name == "every device is tainted")
    lines = shortly(scene_of(misfit).diagnose(POD)).splitlines()
    assert lines[3] == "Suggestion: add a toleration of maintenance=firmware:NoSchedule to claim c (fits"
    assert lines[5:10] == [
        "        tolerations:",
        "        - key: maintenance",
        "          operator: Equal",
        "          value: firmware",
        "          effect: NoSchedule",
    ]


def test_a_word_that_was_misspelt_is_named_where_the_clause_as_it_is_told_does_not_show_it() -> None:
    misfit = next(misfit for misfit in MISFITS if misfit.name == "a misspelt domain")
    told = " ".join(shortly(scene_of(misfit).diagnose(POD)).split())
    assert 'claim c: model == "H100": did you mean gpu.example.com instead of gpu.exmple.com?' in told


def test_a_selector_that_fails_is_shown_with_the_place() -> None:
    misfit = next(misfit for misfit in MISFITS if misfit.name == "a misspelt attribute")
    text = fully(scene_of(misfit).diagnose(POD))
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
    misfit = next(misfit for misfit in MISFITS if misfit.name == "more devices than any node has")
    return msgspec.structs.replace(scene_of(misfit).diagnose(POD), summary="x" * LONGEST)


def test_a_note_keeps_the_remedy_and_cuts_the_reason() -> None:
    note = event_of(refused())
    assert note is not None and len(note.note) == LONGEST
    assert note.note.startswith("xxx") and "x…; count <= 8 fits " in note.note


def test_a_remedy_that_leaves_no_room_for_the_reason_is_not_in_the_note() -> None:
    found = refused()
    (first, *rest) = found.remedies
    long = msgspec.structs.replace(first, short="y" * LONGEST)
    note = event_of(msgspec.structs.replace(found, remedies=(long, *rest)))
    assert note is not None and note.note == "x" * LONGEST


def test_what_requests_want_together_is_compared_with_the_node_that_has_most() -> None:
    """Either request fits alone on the first node too, which has five devices left."""
    busy = {"name": "busy", "claim": {"devices": {"requests": [exactly("a100", 3)]}}}
    claims = {"c": {"devices": {"requests": [exactly("a100", 4, "r"), exactly("a100", 5, "s")]}}}
    misfit = msgspec.convert({"name": "two", "rule": "together", "holders": [busy], "claims": claims}, Misfit)
    found = scene_of(misfit).diagnose(POD)
    assert found.summary == "the requests of claim c need 9 devices together, but a node has 8"


def exactly(device_class: str, count: int, name: str = "r") -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count}}
