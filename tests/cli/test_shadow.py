"""What `shadow` prints of the answer of the service."""

from __future__ import annotations

import json

import msgspec
import pytest

from dra_extender.cli.answers.service import answer_shadow
from dra_extender.cli.output import NO, YES, UnanswerableError
from dra_extender.cli.questions import ShadowOptions, Source
from dra_extender.insight.shadow import RULES, Outcome, RuleReport, ShadowExample, ShadowReport, Usage
from tests.cli.conftest import options
from tests.support.kube.scripted import ScriptedServer


def example(pod: str, ours: Outcome, seconds: float = 0.0) -> ShadowExample:
    theirs = Outcome("n2", ("g/n2/0", "g/n2/1"))
    return ShadowExample(f"team/{pod}", "default-scheduler", "2026-01-01T00:00:10Z", theirs, ours, seconds)


def report(*recorded: tuple[str, ShadowExample]) -> ShadowReport:
    rules = tuple(map(RuleReport, RULES))
    made = ShadowReport("2026-01-01T00:00:00Z", "pack", rules, now=Usage(3, 3, 1), packed=Usage(3, 2, 0))
    made.double_allocations = 1
    for rule, each in recorded:
        made.add(rule, each)
    return made


DIFFERING = report(
    ("other node", example("a", Outcome("n1", ("gpu/n1/3",)))),
    ("refused", example("b", Outcome(why="node taint"))),
    ("waited", example("c", Outcome("n2", ("gpu/n2/5",)), 12.0)),
)
TEXT = """\
PODS  RULE              MEANING
   0  same              the same node and devices
   0  other devices     the same node, other devices
   1  other node        another node; team/a: n2 g/n2/0, g/n2/1 -> n1 gpu/n1/3
   0  race              devices that became free, or that another pod got, within a second
   0  lost alternative  an earlier alternative of firstAvailable
   1  waited            the pod would have been placed 5 s earlier, or more; team/c: n2 g/n2/0, g/n2/1 -> n2 gpu/n2/5
   1  refused           the pod or its node would have been refused; team/b: n2 g/n2/0, g/n2/1 -> node taint
   0  not allocated     the pod was bound, and ended before its claims were allocated
   0  not decided       the decision exceeds the budget of a question, or 5,000 events wait
3 pods since 2026-01-01T00:00:00Z, policy pack.
Waited needlessly: 12 s in total, 12 s at most.
Used now: 3 devices on 3 nodes, 1 pod waiting.
As this service would have packed them: 3 devices on 2 nodes, 0 pods waiting.
Double allocations seen: 1. Events behind: 0.
"""


async def test_it_names_each_rule_with_its_newest_example_and_what_is_in_use(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.on("GET", "/insight/shadow", (200, msgspec.to_builtins(DIFFERING)))
    assert await answer_shadow(ShadowOptions(service=server.url)) == NO
    assert capsys.readouterr().out == TEXT


async def test_json_is_the_answer_of_the_service(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(msgspec.json.encode(report(("same", example("a", Outcome("n2"))))))
    server.on("GET", "/insight/shadow", (200, made))
    assert await answer_shadow(ShadowOptions(service=server.url, output="json")) == YES
    assert json.loads(capsys.readouterr().out) == made


async def test_without_a_record_it_says_which_mode_has_one(server: ScriptedServer) -> None:
    problem = "dra-extender: no record: start the service with --mode shadow"
    server.on("GET", "/insight/shadow", (503, {"detail": problem}))
    with pytest.raises(UnanswerableError, match="start the service with --mode shadow"):
        await answer_shadow(ShadowOptions(service=server.url))


async def test_a_service_in_the_cluster_is_asked_with_a_token(source: Source) -> None:
    with pytest.raises(UnanswerableError, match="your kubeconfig has no token"):
        await answer_shadow(options(ShadowOptions, source))
    with pytest.raises(UnanswerableError, match="omit --from"):
        await answer_shadow(ShadowOptions(from_file="snapshot.json.gz"))
