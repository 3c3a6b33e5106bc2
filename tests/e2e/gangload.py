"""Gangs and single pods that come, run and go, while the leader is killed now and then: a load for the real cluster.

`play` promises: jobs come in their order, a number of waiting ones at a time; a job that runs completely goes after a
moment, with its claims; `Outcome` has what was never to be.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

import msgspec

from embedded_cluster import hardware
from tests.e2e.case import Case
from tests.e2e.extender import Extender
from tests.e2e.gangs import Marks, names
from tests.e2e.ground import Ground

DEVICES = 8
"""On each node."""
RUNNING_SECONDS = 2.0
WAITING = 12
"""Jobs that wait at the same time."""


class Job(msgspec.Struct):
    """A gang, or a single pod without a size. Each pod wants this number of devices of one node."""

    name: str
    size: int
    devices: int
    pods: Sequence[str] = ()
    bound: int = 0
    partial_since: float = 0.0
    complete_since: float = 0.0
    fits: bool = True
    """In the empty cluster."""


class Outcome(msgspec.Struct):
    """`partial`: the longest time for which a part of a gang was bound, in seconds. `killed`: how many leaders."""

    waiting: list[str] = []
    partial: float = 0.0
    killed: int = 0
    seconds: float = 0.0


def jobs(gangs: int, singles: int, nodes: int, seed: int) -> list[Job]:
    """In random order: gangs of 2 to 16 pods with 1, 2, 4 or 8 devices each, single pods, and a gang that never fits
    on this number of nodes.
    """
    rng = random.Random(seed)
    made = [Job("too-large", nodes + 1, DEVICES, fits=False)]
    while len(made) <= gangs:
        job = Job(f"gang-{len(made)}", rng.randint(2, 16), rng.choice((1, 1, 2, 4, 8)))
        if job.size <= nodes * (DEVICES // job.devices):
            made.append(job)
    made += [Job(f"single-{n}", 1, rng.randint(1, DEVICES)) for n in range(singles)]
    rng.shuffle(made)
    return made


def furnish(case: Case, nodes: int) -> None:
    """Nodes with devices, and a template for each number of devices."""
    for number in range(nodes):
        node = f"{case.name}-node-{number}"
        body = hardware.node(number)
        body["metadata"] = {"name": node, "labels": {"kubernetes.io/hostname": node}}
        capacity = body.pop("status")["capacity"]
        case.apply(body)
        status = {"capacity": capacity, "allocatable": capacity}
        case.ground.patch(f"/api/v1/nodes/{node}/status", {"status": status})
        case.publish(node, DEVICES)
    for count in range(1, DEVICES + 1):
        case.template(f"devices-{count}", case.request(count=count))


def play(case: Case, replicas: Killing, listed: Sequence[Job], marks: Marks, patience: float) -> Outcome:
    """Until all jobs that fit have run, or this many seconds have passed."""
    outcome, coming, present = Outcome(), iter(listed), list[Job]()
    started = time.monotonic()
    more = True
    while (more or any(job.fits for job in present)) and time.monotonic() < started + patience:
        if more and sum(not job.complete_since for job in present) < WAITING:
            job = next(coming, None)
            more = job is not None
            if job is not None:
                present.append(_created(case, job, marks))
        for job in present:
            _look(case, job, outcome)
        now = time.monotonic()
        for job in [job for job in present if job.complete_since and now > job.complete_since + RUNNING_SECONDS]:
            present.remove(job)
            for pod in job.pods:
                case.delete_pod(pod)
        replicas.turn()
        time.sleep(0.05)
    outcome.waiting = [f"{job.name}: {job.bound} of {job.size} pods" for job in present if not job.complete_since]
    outcome.killed, outcome.seconds = replicas.killed, time.monotonic() - started
    return outcome


def _created(case: Case, job: Job, marks: Marks) -> Job:
    job.pods = names(job.name, job.size)
    given = marks(case, job.name, job.size) if job.size > 1 else {}
    for pod in job.pods:
        case.pod(pod, template=f"devices-{job.devices}", **given)
    return job


def _look(case: Case, job: Job, outcome: Outcome) -> None:
    if job.complete_since:
        return
    now, job.bound = time.monotonic(), len(case.bound(job.pods))
    if job.bound == job.size:
        job.complete_since = now
    elif job.bound:
        job.partial_since = job.partial_since or now
    if job.partial_since:
        outcome.partial = max(outcome.partial, now - job.partial_since)


class Killing:
    """Kills the leader of two replicas now and then; `turn` it often. The calls go to the leader."""

    def __init__(self, ground: Ground, pair: tuple[Extender, Extender], every: float) -> None:
        self.killed = 0
        self._ground = ground
        self._leader, self._standby = pair
        self._every = every
        self._steps = self._play()

    def turn(self) -> None:
        next(self._steps)

    def _play(self) -> Iterator[None]:
        while True:
            until = time.monotonic() + self._every
            while time.monotonic() < until or not self._standby.is_standby:
                yield
            self._leader.kill()
            self.killed += 1
            while not self._standby.leading:
                yield
            self._ground.calls.target = self._standby.url
            self._leader.start(wait=False)
            self._leader, self._standby = self._standby, self._leader
