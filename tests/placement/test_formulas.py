"""Costs against the formulas as they are written down, computed the plain way."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from dra_extender.api.resource import ResourceClaim
from tests.support.placement.gpunodes import GpuNodes, gpus

MODELS = ("A", "B")
CORE, GIB = 1000, 2**30

Shape = tuple[int, int, int, int, str]
"""Cores, GiB, GPUs, milli of each, model."""
Machine = tuple[float, float, list[int], str]
"""Cores, GiB, milli left of each GPU, model."""


def usable(machine: Machine, shape: Shape) -> float:
    """U of docs/placement.md, in GPUs."""
    cpu, memory, left, model = machine
    cores, gib, count, milli, demanded = shape
    eligible = [free for free in left if free >= milli]
    if (demanded and demanded != model) or cpu < cores or memory < gib or len(eligible) < count:
        return 0.0
    copies = sum(free // milli for free in eligible) / count
    fed = min(copies, cpu / cores, memory / gib)
    return sum(eligible) / 1000 * (0.5 + 0.5 * fed / copies)


def best_cost(machines: list[Machine], number: int, shape: Shape, seen: dict[Shape, int]) -> float:
    """The least loss over all ways to put a pod of this shape on the machine."""
    total = sum(seen.values())
    free = sum(sum(machine[2]) for machine in machines) / 1000
    weights = {}
    for kind, count in seen.items():
        offered = sum(usable(machine, kind) for machine in machines)
        weights[kind] = count / total * (min(20.0, free / offered) if offered else 20.0)
    cpu, memory, left, model = machines[number]
    cores, gib, count, milli, _ = shape
    before = sum(weight * usable(machines[number], kind) for kind, weight in weights.items())
    costs = []
    for taken in combinations(range(len(left)), count):
        rest = [free - milli * (index in taken) for index, free in enumerate(left)]
        if min(rest) >= 0:
            after = (cpu - cores, memory - gib, rest, model)
            costs.append(before - sum(weight * usable(after, kind) for kind, weight in weights.items()))
    return min(costs)


def claim_of(shape: Shape) -> ResourceClaim:
    return gpus(shape[2], milli=shape[3], model=shape[4])


@pytest.mark.parametrize("seed", range(6))
def test_fragmentation_chooses_the_node_with_the_least_loss(seed: int) -> None:
    random = Random(seed)
    made = GpuNodes("fragmentation")
    machines: list[Machine] = []
    for number in range(6):
        cpu, memory, model = random.choice((16, 32, 96)), random.choice((64, 256)), random.choice(MODELS)
        taken = [random.choice((0, 0, 200, 500, 810, 1000)) for _ in range(random.choice((2, 4)))]
        made.add(f"n{number}", len(taken), cpu=cpu, memory=memory, model=model)
        made.occupy(f"n{number}", *taken)
        machines.append((cpu, memory, [1000 - milli for milli in taken], model))
    shapes: list[Shape] = [
        (random.choice((1, 4, 8)), random.choice((1, 16)), 1, random.choice((100, 200, 460, 500)), "") for _ in range(3)
    ]
    shapes += [(8, 16, 1, 1000, random.choice(("", *MODELS))), (16, 32, 2, 1000, "")]
    seen: dict[Shape, int] = {}
    for number in range(20):
        shape = random.choice(shapes)
        seen[shape] = seen.get(shape, 0) + 1
        pod = made.pod(f"seen-{number}", cpu=shape[0], memory=shape[1])
        made.learner.learn(pod, [claim_of(shape)])
    for shape in shapes:
        pod = made.pod("p", cpu=shape[0], memory=shape[1])
        hosts = [number for number, machine in enumerate(machines) if usable(machine, shape)]
        chosen = made.placement.choose(pod, [claim_of(shape)], [f"n{number}" for number in hosts])
        if not hosts:
            assert chosen == ""
            continue
        costs = {f"n{number}": best_cost(machines, number, shape, seen) for number in hosts}
        assert costs[chosen] == pytest.approx(min(costs.values()), abs=1e-6)
