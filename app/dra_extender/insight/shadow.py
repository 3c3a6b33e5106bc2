"""The report of shadow mode: what other schedulers did, and what this service would have done.

Promises: each recorded pod counts for exactly one rule, and has an outcome of its scheduler and one of this service.
The report has at most `EXAMPLES` examples of a rule, with at most `DEVICES` devices each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.plaintext import counted
from dra_extender.scheduling.turns import PORTION, Turns
from dra_extender.scheduling.view import View

RULES: Final = {
    "same": "the same node and devices",
    "other devices": "the same node, other devices",
    "other node": "another node",
    "race": "devices that became free, or that another pod got, within a second",
    "lost alternative": "an earlier alternative of firstAvailable",
    "waited": "the pod would have been placed 5 s earlier, or more",
    "refused": "the pod or its node would have been refused",
    "not allocated": "the pod was bound, and ended before its claims were allocated",
    "not decided": "the decision exceeds the budget of a question, or 5,000 events wait",
}
EXAMPLES: Final = 5
DEVICES: Final = 8


class Outcome(msgspec.Struct, frozen=True):
    """`devices`: driver/pool/device. `why`: without a node, the rule of the diagnosis that refuses the pod."""

    node: str = ""
    devices: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return f"{self.node} {', '.join(self.devices)}" if self.node else self.why or "nowhere"


class ShadowExample(msgspec.Struct, frozen=True):
    """A pod (namespace/name), bound at this time. `seconds`: how much earlier this service would have placed it."""

    pod: str
    scheduler: str
    at: str
    theirs: Outcome
    ours: Outcome
    seconds: float


class RuleReport(msgspec.Struct):
    """`why`: of refused pods, how many by the rule of the diagnosis. `examples`: the newest last."""

    rule: str
    pods: int = 0
    why: dict[str, int] = {}
    examples: list[ShadowExample] = []


class Usage(msgspec.Struct, frozen=True):
    """Devices in use, nodes with pods that use devices, and pods that wait for devices."""

    devices: int = 0
    nodes: int = 0
    waiting: int = 0


class ShadowReport(msgspec.Struct):
    """The record `since` this time: a restart, or another leader, begins a new one. `waited_seconds`: of all pods that
    waited needlessly. `packed`: if this service had placed all pods since then by its `policy`. `double_allocations`:
    conflicts that the audit has seen since the start of the process. `behind`: events that are not recorded yet.
    """

    since: str
    policy: str
    rules: tuple[RuleReport, ...]
    pods: int = 0
    waited_seconds: float = 0.0
    longest_wait: float = 0.0
    now: Usage = Usage()
    packed: Usage = Usage()
    double_allocations: int = 0
    behind: int = 0

    @classmethod
    def empty(cls, policy: str) -> ShadowReport:
        return cls("", policy, tuple(map(RuleReport, RULES)))

    def add(self, rule: str, example: ShadowExample) -> None:
        self.pods += 1
        self.waited_seconds += example.seconds
        self.longest_wait = max(self.longest_wait, example.seconds)
        of_rule, why = next(each for each in self.rules if each.rule == rule), example.ours.why
        of_rule.pods += 1
        of_rule.examples = [*of_rule.examples, example][-EXAMPLES:]
        if why:
            of_rule.why[why] = of_rule.why.get(why, 0) + 1

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """For people: pods, rule, and its meaning with the newest example."""
        for found in self.rules:
            examples = (f"; {e.pod}: {e.theirs} -> {e.ours}" for e in found.examples[-1:] if found.rule != "same")
            yield str(found.pods), found.rule, "".join((RULES[found.rule], *examples))

    def lines(self) -> Iterator[str]:
        """For people: what the rows do not have."""
        yield f"{counted(self.pods, 'pod')} since {self.since}, policy {self.policy}."
        yield f"Waited needlessly: {self.waited_seconds:.0f} s in total, {self.longest_wait:.0f} s at most."
        for what, used in (("Used now", self.now), ("As this service would have packed them", self.packed)):
            nodes, waiting = counted(used.nodes, "node"), counted(used.waiting, "pod")
            yield f"{what}: {counted(used.devices, 'device')} on {nodes}, {waiting} waiting."
        yield f"Double allocations seen: {self.double_allocations}. Events behind: {self.behind}."


def usage(view: View) -> Turns[Usage]:
    """If pods or claims change between turns, it mixes both states."""
    devices, nodes, waiting = set[str](), set[str](), 0
    for number, each in enumerate((*view.ledger.claims(), *view.pods), start=1):
        if isinstance(each, ResourceClaim):
            devices.update(devices_of((each.allocation,)))
        elif not each.finished and view.uses_devices(each):
            nodes.add(each.spec.node_name)
            waiting += waits(each)
        if number % PORTION == 0:
            yield
    return Usage(len(devices), len(nodes - {""}), waiting)


def waits(pod: Pod) -> bool:
    return not (pod.spec.node_name or pod.finished or pod.spec.scheduling_gates)


def devices_of(allocations: Iterable[AllocationResult | None]) -> tuple[str, ...]:
    """Without admin access (driver/pool/device)."""
    results = (result for each in allocations if each is not None for result in each.devices.results)
    return tuple(sorted({"/".join(result.id) for result in results if not result.admin_access}))
