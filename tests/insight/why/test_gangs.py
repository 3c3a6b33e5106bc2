"""What is said about a gang is true, and with each remedy it fits."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import event, given, settings

from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.groups import LWS_GROUP, LWS_NAME, LWS_SIZE
from dra_extender.api.meta import ObjectMeta
from dra_extender.insight.snapshot import SimulatedPod, snapshot
from dra_extender.insight.why.candidates import CandidateChange, object_change
from dra_extender.insight.why.gangs import trials_of
from dra_extender.insight.why.text import event_of
from dra_extender.insight.why.waiting import waiting
from dra_extender.scheduling.gangs.attributes import SAME
from dra_extender.scheduling.turns import QueryBudget, query_budgets, run_at_once
from tests.support.counting import calls
from tests.support.diagnosis.gangscenes import (
    CLASS,
    GANG,
    GPU,
    MEMBER,
    REQUIRED,
    SIZE,
    claim,
    gangs,
    host,
    member,
    members,
    most,
    pod,
)
from tests.support.diagnosis.scene import Scene, shown
from tests.support.diagnosis.truth import untrue
from tests.support.examples import examples
from tests.support.questions import diagnose
from tests.support.scheduling.gangs import gang, nodes, offered
from tests.support.scheduling.gangs import member as make_member
from tests.support.simulation.objects import Objects, make_claim
from tests.support.simulation.world import World

Json = dict[str, Any]


@given(scene=gangs())
@settings(max_examples=examples(60))
def test_no_statement_about_a_gang_is_false(scene: Scene) -> None:
    found = scene.diagnose(MEMBER)
    for statement in found.statements:
        event(type(statement).__name__)
    assert untrue(scene, MEMBER, found) == [], found.summary
    size = int(members(scene)[0]["metadata"]["annotations"][SIZE])
    if found.state == "fits":
        assert most(scene) >= size
    for remedy in found.remedies:
        event(remedy.changes[0].kind if remedy.changes else remedy.text)
        after = scene.after(remedy).diagnose(MEMBER)
        assert after.state == "fits", f"{remedy.text}: {after.summary}"
        assert remedy.pods <= most(scene.after(remedy)), remedy.text


# --- readable cases ---------------------------------------------------------------------------------------------------


def gang_of(count: int, size: int = 0, cpu: int = 0, **annotations: str) -> list[Json]:
    pods = [member(number, size or count, cpu, **annotations) for number in range(count)]
    return [*(claim(each["metadata"]["name"]) for each in pods), *pods]


def busy(documents: list[Json], count: int) -> list[Json]:
    """The cluster with `count` pods that run, with a device each."""
    scene = Scene(documents)
    for number in range(count):
        scene = scene.with_more([claim(f"busy-{number}"), pod(f"busy-{number}")]).settled()
    return scene.documents


def from_template(count: int, devices: int, **spec: Any) -> list[Json]:
    pods = [member(number, count) for number in range(count)]
    for each in pods:
        each["spec"] |= {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}], **spec}
        owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True, "apiVersion": "batch/v1"}
        each["metadata"]["ownerReferences"] = [owner]
    template = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"spec": claim("t", devices)["spec"]},
    }
    return [template, *pods]


@pytest.mark.parametrize(
    ("documents", "reason", "helps"),
    [
        (
            [*busy([CLASS, *host("n0", 4)], 2), *gang_of(4)],
            "2 of 4 pods fit together; not pod g-2: claim g-2: 1 device requested, node n0 has 4 of class gpu: 4 are "
            "in use (by default/busy-0, default/busy-1)",
            ["wait for pods default/busy-0 and default/busy-1", "add a node like n0", "reduce the gang to 2 pods"],
        ),
        (
            [CLASS, *host("n0", 2), *gang_of(6)],
            "2 of 6 pods fit together; not pod g-2: claim g-2: 1 device requested, node n0 has 2 of class gpu: 2 are "
            "in use",
            ["add 2 nodes like n0", "reduce the gang to 2 pods"],
        ),
        (
            [CLASS, *host("n0", 2), *host("n1", 2, rack="b"), *gang_of(4, 4, 0, **{REQUIRED: "rack"})],
            "2 of 4 pods fit on nodes with one value of label rack",
            [
                "add a node like n0", "add a node like n1", "prefer label rack instead of requiring it",
                "reduce the gang to 2 pods",
            ],
        ),
        (
            [CLASS, *host("n0", 4), *gang_of(3, 3, 0, **{SAME: f"{GPU}/model"})],
            "2 of 3 pods fit together with one value of device attribute gpu.example.com/model",
            ["add a node like n0", "reduce the gang to 2 pods"],
        ),
        (
            [CLASS, *host("n0", 2), claim("g-0"), claim("g-1", 1, "Z"), member(0, 2), member(1, 2)],
            '1 of 2 pods fit together; not pod g-1: claim g-1: no device of class gpu satisfies model == "Z" (the '
            "values are A, B)",
            ['model == "A"', 'without model == "Z"'],
        ),
        (
            [CLASS, *host("n0", 2), claim("g-0"), member(0, 2), member(1, 2)],
            "1 of 2 pods fit together; not pod g-1: claim default/g-1 does not exist",
            ["did you mean g-0?"],
        ),
        ([CLASS, *host("n0", 2), *gang_of(2, 3)], "2 of 3 pods exist", []),
    ],
)  # fmt: skip
def test_it_is_said_how_many_pods_fit_which_does_not_and_what_helps(
    documents: list[Json], reason: str, helps: list[str]
) -> None:
    view = Scene(documents).view()
    pod = view.pods.named("default", MEMBER)
    assert pod is not None
    in_turns = msgspec.structs.replace(view, budgets=partial(query_budgets, WorkerReplies(), view.config))
    for found in (diagnose(view, pod), diagnose(in_turns, pod)):
        assert (found.state, found.rule) == ("refused", "gang")
        assert found.summary == f"gang default/g: {reason}"
        assert [remedy.short for remedy in found.remedies] == helps, shown(found.remedies)


def test_a_pod_that_does_not_fit_alone_has_its_own_reason_and_remedies_for_the_gang() -> None:
    found = Scene([*busy([CLASS, *host("n0", 2)], 2), *gang_of(2)]).diagnose(MEMBER)
    assert found.summary.startswith("claim g-0: 1 device requested, node n0 has 2 of class gpu: 2 are in use")
    first = found.remedies[0]
    assert (first.short, first.pods) == ("wait for pods default/busy-0 and default/busy-1", 2)
    note = event_of(found)
    assert note is not None and note.note.endswith(f"; {first.short} (then 2 pods fit together)")


def test_a_change_of_the_template_is_made_for_all_pods_of_the_gang() -> None:
    found = Scene([CLASS, *host("n0", 2), *from_template(2, 2)]).diagnose(MEMBER)
    assert found.remedies[0].short == "count <= 1"
    assert found.remedies[0].commands[-2:] == ("kubectl delete pod g-1 -n default", "kubectl delete pod g-0 -n default")


def calls_of_first_turn(pods: int) -> int:
    entries = [{"name": f"c{number}", "resourceClaimTemplateName": "t"} for number in range(25)]
    view = Scene([CLASS, *host("n0", 2), *from_template(pods, 1, resourceClaims=entries)]).view()
    first = view.pods.named("default", MEMBER)
    assert first is not None
    trials = trials_of(view, SimulatedPod(first, snapshot(view)), ["n0"])
    assert trials is not None
    path = "/spec/spec/devices/requests/0/exactly/count"
    change = object_change("count", "ResourceClaimTemplate", ObjectMeta(name="t", namespace="default"), path, 2)
    turns = trials.fit([CandidateChange("", "", (change,))], first, QueryBudget(view))
    return calls(lambda: next(turns))


def test_a_turn_changes_a_limited_number_of_the_claims_of_a_gang() -> None:
    assert calls_of_first_turn(40) < 1.2 * calls_of_first_turn(20)


def test_a_change_of_the_pods_of_a_controller_is_made_for_all_of_them() -> None:
    found = Scene([CLASS, *host("n0", 2), *from_template(2, 1, nodeSelector={"rack": "c"})]).diagnose(MEMBER)
    first = found.remedies[0]
    assert (first.short, first.pods) == ("nodeSelector rack=a", 2)
    assert first.commands[-2:] == ("kubectl delete pod g-0 -n default", "kubectl delete pod g-1 -n default")


def test_the_size_of_a_gang_is_changed_where_it_is_written() -> None:
    pods = [member(number, 3) for number in range(3)]
    for each in pods:
        each["metadata"] |= {"labels": {LWS_NAME: "serve", LWS_GROUP: "0"}, "annotations": {LWS_SIZE: "3"}}
    claims = [claim(f"g-{number}") for number in range(3)]
    found = Scene([CLASS, *host("n0", 2), *claims, *pods]).diagnose(MEMBER)
    assert found.remedies[-1].text == (
        "reduce the gang to 2 pods: change spec.leaderWorkerTemplate.size of LeaderWorkerSet default/serve"
    )


def test_the_pods_of_a_gang_share_a_diagnosis_and_those_of_two_gangs_do_not() -> None:
    others = [member(number + 4, 2) for number in range(2)]
    for each in others:
        each["metadata"]["annotations"][GANG] = "h"
    more = [claim("g-4"), claim("g-5"), *others]
    groups = run_at_once(waiting(Scene([CLASS, *host("n0", 1), *gang_of(2), *more]).view(), ""))
    assert [group.pods for group in groups] == [("default/g-0", "default/g-1"), ("default/g-4", "default/g-5")]


async def test_a_pod_beyond_the_size_is_told_of_the_devices_that_the_others_get(world: World) -> None:
    more: Objects = [make_claim("g-2"), make_member("g-2", "g-2")]
    service = world.service(*nodes(1, 2), *gang("g", 2), *more)
    assert await offered(service, world, "g-0", "g-1") == [["n1"], ["n1"]]
    found = diagnose(service.extender.view, world.api.pod("g-2"))
    assert found.summary == "claim g-2: 1 device requested, node n1 has 2 of class gpu: 2 are in use"
    assert [(remedy.short, remedy.pods) for remedy in found.remedies] == [("add a node like n1", 3)]
