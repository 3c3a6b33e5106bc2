"""What is written to an object of a namespace names no object of another namespace, unless a setting allows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import dra_extender
from dra_extender.api.core import Pod
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.audit import Violation
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.redaction import redacted
from dra_extender.insight.why.text import DiagnosisEvent, event_of
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.config import EventNames, SchedulingConfig
from dra_extender.scheduling.reader import ADMINISTRATOR, Reader
from dra_extender.scheduling.turns import run_at_once
from dra_extender.service.audit import AllocationAudit
from tests.support.diagnosis.misfits import MISFITS, POD, Misfit
from tests.support.diagnosis.scene import Scene
from tests.support.diagnosis.strangers import SECRET, among_strangers
from tests.support.scheduling.nominating import ADVISE, ON, until_bound, wanting
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import Service, World


@pytest.mark.parametrize(
    ("keys", "listed"),
    [
        ([], ""),
        (["a/x"], "pod a/x"),
        (["a/x", "a/y"], "pods a/x, a/y"),
        (["b/x"], "1 pod of another namespace"),
        (["a/x", "b/x", "b/y"], "pod a/x and 2 pods of other namespaces"),
    ],
)
def test_a_reader_sees_the_names_of_a_namespace_and_the_number_of_others(keys: list[str], listed: str) -> None:
    assert Reader("a").listed("pod", keys) == listed


def test_an_administrator_sees_all_names() -> None:
    assert ADMINISTRATOR.listed("claim", ["a/x", "b/y"]) == "claims a/x, b/y"
    assert SchedulingConfig(event_names="all").reader("a") == ADMINISTRATOR


# --- diagnoses


def event_for(scene: Scene, reader: Reader) -> DiagnosisEvent | None:
    view = scene.view()
    pod = view.pods.named("default", POD)
    assert pod is not None
    return event_of(redacted(run_at_once(diagnosing(view, pod)), reader))


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_the_event_of_a_refused_pod_names_no_pod_of_another_namespace(misfit: Misfit) -> None:
    event = event_for(among_strangers(misfit), Reader("default"))
    assert event is None or SECRET not in event.note


def test_an_administrator_reads_who_has_the_devices() -> None:
    for reader, told in ((ADMINISTRATOR, SECRET), (Reader("default"), "another namespace")):
        events = (event_for(among_strangers(misfit), reader) for misfit in MISFITS)
        assert len(list(islice((each for each in events if each is not None and told in each.note), 6))) == 6


# --- scheduling


def moved(item: Any) -> Any:
    """The object in the other namespace."""
    meta = msgspec.structs.replace(item.metadata, namespace=SECRET)
    return msgspec.structs.replace(item, metadata=meta)


async def full(world: World, small: Objects, config: SchedulingConfig) -> Service:
    """Four pods of the other namespace have all devices."""
    world.add(*small)
    service = world.service(config=config)
    for number in range(4):
        name = f"{SECRET}-{number}"
        world.add(*(moved(item) for item in wanting(name)))
        found = world.api.objects[Pod, f"{SECRET}/{name}"]
        assert await service.bind(found, "n1" if number < 2 else "n2") == ""
        await world.settle(0.1)
    service.start()
    return service


def written(world: World, service: Service, namespace: str) -> list[tuple[str, str]]:
    """(reason, note) of each event in the namespace. Marks and conditions of pods are checked here."""
    for pod in world.api.all(Pod):
        for text in (*pod.metadata.annotations.values(), *(item.message for item in pod.status.conditions)):
            assert pod.metadata.namespace == SECRET or f"{SECRET}/" not in text, text
    client = service.client
    found = zip(client.events, client.event_namespaces, strict=True)
    return [event for event, where in found if where == namespace]


@pytest.mark.parametrize(
    ("config", "protected", "stopping", "reasons"),
    [
        (ON, (), 0.0, {"Preempting", "DevicesAllocated"}),
        (ON, (), 1_000.0, {"Preempting", "PreemptionStuck"}),
        (ON, range(4), 0.0, {"PreemptionForbidden"}),
        (ADVISE, (), 0.0, {"WouldPreempt"}),
    ],
    ids=["preempted", "stuck", "forbidden", "advice"],
)
@pytest.mark.parametrize("names", ["own", "all"])
async def test_a_preemptor_reads_names_of_other_namespaces_only_where_that_is_allowed(
    world: World,
    small: Objects,
    config: SchedulingConfig,
    protected: Sequence[int],
    stopping: float,
    reasons: set[str],
    names: EventNames,
) -> None:
    service = await full(world, small, msgspec.structs.replace(config, event_names=names))
    world.api.protected |= {f"{SECRET}-{number}" for number in protected}
    world.api.stopping |= {f"{SECRET}-{number}": stopping for number in range(4) if stopping}
    world.add(*wanting("p", 10))
    await until_bound(world, service, "p", 130.0 if stopping else 30.0)
    events = written(world, service, "default")
    assert reasons <= {reason for reason, _ in events}
    named = [note for reason, note in events if f"{SECRET}/" in note]
    assert (named == []) if names == "own" else named
    assert names == "all" or not any("default/" in note for _, note in written(world, service, SECRET))


async def test_a_claim_reads_no_name_of_a_rival_of_another_namespace(world: World, small: Objects) -> None:
    theirs, pod = moved(make_claim(f"{SECRET}-claim")), moved(make_pod("x", f"{SECRET}-claim"))
    world.add(*small, make_claim("c"), make_pod("p", "c"), theirs, pod)
    first, ours = world.service(lag=0.0), world.service(lag=1.0)
    assert await first.bind(pod, "n1") == ""
    assert await ours.bind(world.api.pod("p"), "n1") == failure.RIVAL
    notes = dict(written(world, ours, "default"))
    assert notes["DeviceConflict"].startswith("a device was allocated to 1 claim of another namespace at the same time")


def test_the_audit_tells_a_claim_no_name_of_another_namespace() -> None:
    told: dict[str, str] = {}

    def claim(key: str) -> ResourceClaim:
        namespace, name = key.split("/")
        return ResourceClaim(metadata=ObjectMeta(name=name, namespace=namespace))

    def report(about: ResourceClaim, text: str) -> None:
        told[about.metadata.key] = text

    twice = Violation("device", "d", ("default/c", "secret/x", "secret/y"), "held by all")
    run_at_once(AllocationAudit(lambda: [[twice]], claim, report, SchedulingConfig().reader).check())
    assert told == {
        "default/c": "d is also held by 2 claims of other namespaces",
        "secret/x": "d is also held by claim secret/y and 1 claim of another namespace",
        "secret/y": "d is also held by claim secret/x and 1 claim of another namespace",
    }


# --- all reasons

TESTED: Final = frozenset(
    ("Preempting", "PreemptionStuck", "PreemptionForbidden", "WouldPreempt", "Preempted", "DeviceConflict")
) | {"DeviceHeldTwice", "DevicesAllocated"}
"""What the tests above produce."""
ABOUT_ITSELF: Final = {
    "DevicesReleased": "why the allocation of the object was cleared",
    "DevicesHeld": "why the bind of the pod is not rolled back",
    "BindingConditionsPending": "the node of the pod",
}
"""Their notes are made from the object, its own claims, its node and constants."""


def test_every_reason_of_an_event_is_known_here() -> None:
    app = Path(dra_extender.__file__).parent
    calls = [re.findall(r"(?:record_event|_report)\(([^)]*)", path.read_text()) for path in app.rglob("*.py")]
    words = {found for call in chain.from_iterable(calls) for found in re.findall(r'"([A-Z]\w+)"', call)}
    assert words - {"Normal", "Warning", "Auditing", "Scheduling"} == TESTED | ABOUT_ITSELF.keys()
