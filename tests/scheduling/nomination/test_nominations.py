"""Whose devices are kept from whom, and what a pod says of its own nomination."""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.api.core import Pod
from dra_extender.api.resource import AllocationResult
from dra_extender.scheduling.nomination.nominations import MARK, Mark, Nomination, Nominations, mark_of
from tests.support.simulation.objects import make_claim, make_pod


def nomination(name: str, priority: int) -> Nomination:
    plans = ((make_claim(f"claim-{name}"), AllocationResult()),)
    return Nomination(pod=make_pod(name, priority=priority), node="n1", victims=("v",), plans=plans, until=1.0)


def kept_from(nominations: Nominations, name: str, priority: int) -> list[str]:
    return [claim.metadata.name for claim, _ in nominations.kept_from(make_pod(name, priority=priority))]


@pytest.mark.parametrize(
    ("asks", "priority", "kept"),
    [
        ("other", 5, ["claim-p"]),
        ("other", 10, ["claim-p"]),
        ("other", 11, []),
        ("p", 10, []),
    ],
    ids=["lower", "equal", "higher", "itself"],
)
def test_devices_are_kept_from_all_others_but_those_of_higher_priority(
    asks: str, priority: int, kept: list[str]
) -> None:
    nominations = Nominations()
    nominations.put(nomination("p", 10))
    assert kept_from(nominations, asks, priority) == kept


def test_nothing_is_kept_any_more_when_a_nomination_ends() -> None:
    nominations = Nominations()
    nominations.put(nomination("p", 10))
    nominations.put(nomination("q", 10))
    nominations.drop("uid-p")
    assert (len(nominations), kept_from(nominations, "other", 0)) == (1, ["claim-q"])
    nominations.clear()
    assert kept_from(nominations, "other", 0) == []


def marked(text: str) -> Pod:
    pod = make_pod("p")
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations={MARK: text}))


def test_a_mark_is_read_as_it_was_written() -> None:
    mark = Mark("n1", ("a", "b"), "2026-01-01T00:00:00Z")
    assert mark_of(marked(msgspec.json.encode(mark).decode())) == mark


@pytest.mark.parametrize("text", ["", "{", "[]", '{"node": 1}', '{"node": "n1"}', "\ud800"])
def test_what_somebody_else_has_written_there_is_no_mark(text: str) -> None:
    assert mark_of(marked(text)) is None


def test_a_pod_without_the_annotation_has_no_mark() -> None:
    assert mark_of(make_pod("p")) is None
