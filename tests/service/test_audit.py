"""Each violation is reported once, on every claim involved."""

from __future__ import annotations

import pytest

from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.audit import Violation
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.turns import run_at_once
from dra_extender.service.audit import NAMED, REPORTED, AllocationAudit

TWICE = Violation("device", "gpu.example.com/n1/gpu-0", ("a/one", "b/two"), "held by both")


class World:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.reports: list[tuple[str, str]] = []
        self.audit = AllocationAudit(
            lambda: [self.violations],
            self.claim,
            lambda claim, text: self.reports.append(self.line(claim, text)),
            SchedulingConfig(event_names="all").reader,
        )

    def claim(self, key: str) -> ResourceClaim | None:
        namespace, name = key.split("/")
        return None if name == "gone" else ResourceClaim(metadata=ObjectMeta(name=name, namespace=namespace))

    def line(self, claim: ResourceClaim, text: str) -> tuple[str, str]:
        return claim.metadata.key, text


@pytest.fixture
def world() -> World:
    return World()


def test_every_claim_involved_gets_a_report_about_the_others_once(world: World) -> None:
    world.violations = [TWICE]
    run_at_once(world.audit.check())
    run_at_once(world.audit.check())
    assert world.reports == [
        ("a/one", "gpu.example.com/n1/gpu-0 is also held by claim b/two"),
        ("b/two", "gpu.example.com/n1/gpu-0 is also held by claim a/one"),
    ]
    assert world.audit.current == (TWICE,)


def test_a_violation_that_comes_back_is_reported_again(world: World) -> None:
    for violations in ([TWICE], [], [TWICE]):
        world.violations = violations
        run_at_once(world.audit.check())
    assert len(world.reports) == 4


def test_a_claim_that_is_gone_meanwhile_is_left_out(world: World) -> None:
    world.violations = [Violation("device", "d/p/x", ("a/gone", "a/one"), "")]
    run_at_once(world.audit.check())
    assert [name for name, _ in world.reports] == ["a/one"]


def test_other_tasks_run_after_each_part_of_a_check(world: World) -> None:
    world.violations = [TWICE]
    turns = world.audit.check()
    next(turns)
    assert world.reports == [], "the check has not ended"
    run_at_once(turns)
    assert len(world.reports) == 2


def test_what_is_noticed_is_reported_once_and_over_after_the_next_check(world: World) -> None:
    world.audit.notice([TWICE], lambda claim: False)
    world.audit.notice([TWICE], lambda claim: False)
    assert (world.audit.current, world.audit.reported, len(world.reports)) == ((TWICE,), 1, 2)
    world.violations = [TWICE]
    run_at_once(world.audit.check())
    assert (world.audit.current, world.audit.reported) == ((TWICE,), 1)
    world.violations = []
    run_at_once(world.audit.check())
    assert world.audit.current == ()


def test_what_is_noticed_during_a_check_is_not_over_when_the_check_ends(world: World) -> None:
    """The check may have looked at this device before."""
    world.violations = []
    check = world.audit.check()
    next(check)
    world.audit.notice([TWICE], lambda claim: False)
    run_at_once(check)
    assert world.audit.current == (TWICE,)


def test_what_involves_a_running_bind_is_left_to_the_next_check(world: World) -> None:
    world.audit.notice([TWICE], lambda claim: claim.metadata.name == "two")
    assert world.reports == []


def test_a_violation_of_many_claims_names_the_first_ones(world: World) -> None:
    """Reporting to every claim all the others took a second for a thousand claims."""
    names = tuple(f"a/{number:04}" for number in range(2_000))
    world.violations = [Violation("capacity", "net/p/nic", names, "")]
    run_at_once(world.audit.check())
    assert [name for name, _ in world.reports] == list(names[:REPORTED])
    expected = f"net/p/nic is also held by claims {', '.join(names[1 : NAMED + 1])}, and 1989 more"
    assert world.reports[0][1] == expected
    assert all(text.count("a/") == NAMED and text.endswith("and 1989 more") for _, text in world.reports)
