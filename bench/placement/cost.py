"""What placement costs: filter and prioritize of one pod on 5,000 nodes with 8 GPUs each, by policy.

Every node has other GPUs in use and other CPU left, so that no two need look alike. Warm: a pod like one that was
asked about before; after one change: a pod was bound since; new shape: no pod has asked for that yet; weights renewed:
enough pods have come that the weights of shapes change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

import msgspec

from bench.placement.trace import Job, Machine
from bench.placement.world import World
from bench.timing import Call, Timing, alternating
from dra_extender.api.core import Pod
from dra_extender.api.extender import ExtenderArgs
from dra_extender.placement.policies import POLICIES, PlacementStrategy, PolicyName

NODES: Final = 5_000
MOST_TIMES: Final = 2.0
"""How many times as long a warm question may take as with first-fit."""
SHAPES: Final = 100
RUNS: Final = 15
SETTLING: Final = 20
"""Questions after which what is spread over several of them has come to an end."""
CASES: Final = ("warm", "after one change", "new shape", "weights renewed")


class NeedWeights(msgspec.Struct, frozen=True):
    """`evaluations`: comparisons of states in the last run."""

    policy: str
    case: str
    time: Timing
    evaluations: int


class Cluster:
    """5,000 nodes under a policy, all of them in use."""

    def __init__(self, policy: PolicyName) -> None:
        self._random = Random(7)
        self._numbers = count()
        machines = [Machine(f"node-{number}", 96_000 + number, 768 * 1024, 8, "G2") for number in range(NODES)]
        self.world = World(machines, PlacementStrategy(policy=policy), self._random)
        for node in range(NODES):
            self._occupy(node)
        self._jobs = [Job(1_000 + 500 * n, 4_096, 1, (100, 250, 500, 1000)[n % 4], ()) for n in range(SHAPES)]
        self._come(400)

    def _occupy(self, node: int) -> None:
        job = Job(self._random.randrange(1_000, 9_000, 100), 8_192, 1, self._random.choice((200, 500, 800, 1000)), ())
        self.world.bind(self.world.arrive(job), node)

    def pod(self) -> Pod:
        """One that was not asked about yet, of a shape that was."""
        return self.world.arrive(self._jobs[0])

    def change(self) -> Pod:
        self._occupy(self._random.randrange(NODES))
        return self.pod()

    def new_shape(self) -> Pod:
        return self.world.arrive(Job(2_000 + next(self._numbers), 4_096, 1, 250, ()))

    def renew(self) -> Pod:
        self._come(400)
        return self.pod()

    def _come(self, pods: int) -> None:
        """So many pods come and go: then weights are renewed."""
        for _ in range(pods):
            job = self._random.choice(self._jobs)
            self.world.learner.learn(*self.world.example(job, f"seen-{next(self._numbers)}"))

    async def ask(self, pod: Pod, names: tuple[str, ...]) -> Sequence[object]:
        """What kube-scheduler asks for a pod."""
        found = await self.world.extender.filter(ExtenderArgs(pod, names))
        return await self.world.extender.prioritize(ExtenderArgs(pod, tuple(found.NodeNames)))


class Asking:
    """One policy is asked about one pod after the other."""

    def __init__(self, policy: PolicyName, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = Cluster(policy)
        self._loop = loop
        self._names = tuple(self.cluster.world.names)
        self._asked: list[Pod] = []

    def begin(self, case: str) -> None:
        """The next pod of this case comes, and the last one goes."""
        prepare: dict[str, Callable[[], Pod]] = {
            "warm": self.cluster.pod, "after one change": self.cluster.change, "new shape": self.cluster.new_shape,
            "weights renewed": self.cluster.renew,
        }  # fmt: skip
        if self._asked:
            self.cluster.world.leave(self._asked.pop())
        self._asked.append(prepare[case]())

    def ask(self) -> None:
        self._loop.run_until_complete(self.cluster.ask(self._asked[-1], self._names))


def run() -> dict[str, Any]:
    """All policies take turns in each case."""
    loop = asyncio.new_event_loop()
    asking = {policy: Asking(policy, loop) for policy in POLICIES}
    found: list[NeedWeights] = []
    for case in CASES:
        for one in asking.values():
            one.begin(case)
            for _ in range(SETTLING):
                one.ask()
        before = {policy: one.cluster.world.evaluations for policy, one in asking.items()}
        calls: dict[str, tuple[Call, Call]] = {
            policy: (partial(one.begin, case), one.ask) for policy, one in asking.items()
        }
        times = alternating(calls, runs=RUNS)
        for policy, one in asking.items():
            evaluations = one.cluster.world.evaluations - before[policy]
            found.append(NeedWeights(policy, case, times[policy], evaluations // RUNS))
    loop.close()
    return {"placement": [msgspec.to_builtins(row) for row in found]}


def missed(result: dict[str, Any]) -> list[str]:
    """Policies whose warm question takes too long."""
    warm = {row["policy"]: row["time"]["median"] for row in result["placement"] if row["case"] == "warm"}
    return [
        f"placement: warm {policy} {time:.2f} ms, target {MOST_TIMES:g} times first-fit ({warm['first-fit']:.2f} ms)"
        for policy, time in warm.items()
        if time > MOST_TIMES * warm["first-fit"]
    ]


def markdown(result: dict[str, Any]) -> str:
    lines = [
        f"Milliseconds for filter and prioritize of one pod on {NODES:,} nodes with 8 GPUs each, all different.",
        "Evaluations: node states compared for one pod. A new shape, and new weights, are evaluated for all nodes,",
        "some 30 ms per pod; later pods are warm.",
        "",
        "| case | policy | median | × first-fit | p95 | evaluations |",
        "|---|---|---:|---:|---:|---:|",
    ]
    first = {row["case"]: row["time"]["median"] for row in result["placement"] if row["policy"] == "first-fit"}
    for row in result["placement"]:
        time = row["time"]
        lines.append(
            f"| {row['case']} | {row['policy']} | {time['median']:.2f} | {time['median'] / first[row['case']]:.2f} "
            f"| {time['p95']:.2f} | {row['evaluations']} |"
        )
    return "\n".join(lines)
