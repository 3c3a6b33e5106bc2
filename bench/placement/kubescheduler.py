"""A small model of what kube-scheduler does around the extender: which nodes have CPU and memory, and its own scores.

It is a model, not kube-scheduler: NodeResourcesFit and LeastAllocated, BalancedAllocation, the share of nodes looked at
by default, and a random choice among the best.

Rules: Kubernetes 1.36, plugins/noderesources/{fit,least_allocated,balanced_allocation}.go and schedule_one.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from bench.placement.trace import Job, Machine

_LEAST = 100


class Scheduler:
    """Nodes by position, with what is left of their CPU (millicores) and memory (MiB)."""

    def __init__(self, machines: Sequence[Machine], random: Random) -> None:
        self._random = random
        self._whole = [(machine.cpu, machine.memory) for machine in machines]
        self._cpu = [machine.cpu for machine in machines]
        self._memory = [machine.memory for machine in machines]
        self._next = 0

    def place(self, node: int, job: Job) -> None:
        self._cpu[node] -= job.cpu
        self._memory[node] -= job.memory

    def remove(self, node: int, job: Job) -> None:
        self._cpu[node] += job.cpu
        self._memory[node] += job.memory

    def fitting(self, job: Job) -> list[int]:
        """The nodes with enough CPU and memory."""
        cpu, memory = job.cpu, job.memory
        pairs = zip(self._cpu, self._memory, strict=True)
        return [node for node, (left, free) in enumerate(pairs) if left >= cpu and free >= memory]

    def sampled(self, fits: Sequence[int]) -> list[int]:
        """As many of the nodes that fit as kube-scheduler looks for by default, going on where it stopped."""
        nodes = len(self._whole)
        wanted = nodes if nodes < _LEAST else max(_LEAST, nodes * max(5, 50 - nodes // 125) // 100)
        turn = [node for node in fits if node >= self._next] + [node for node in fits if node < self._next]
        found = turn[:wanted]
        if len(found) == wanted:
            self._next = (found[-1] + 1) % nodes
        return found

    def favourite(self, job: Job, fits: Sequence[int]) -> int:
        """One of those with the best score of its own."""
        scores = [self._score(node, job) for node in fits]
        best = max(scores)
        return self._random.choice([node for node, score in zip(fits, scores, strict=True) if score == best])

    def _score(self, node: int, job: Job) -> int:
        whole_cpu, whole_memory = self._whole[node]
        cpu, memory = self._cpu[node] - job.cpu, self._memory[node] - job.memory
        least = (cpu * 100 // whole_cpu + memory * 100 // whole_memory) // 2
        balanced = int((1 - abs(cpu / whole_cpu - memory / whole_memory) / 2) * 100)
        return least + balanced
