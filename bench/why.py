"""How long `why` takes on 5,000 nodes of 8 devices, and how long its longest step is: processor time. Then how long
500 pods that are refused at once wait for their events, in one namespace and in several: time by the clock.

The subjects of the first table are the same whose calls the tests count. Exit status 1 when a target is missed.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Final, NamedTuple

from bench.machine import described
from dra_extender.api.core import ObjectReference, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.kube.events import Event, EventRecorder
from dra_extender.scheduling.view import View
from dra_extender.service.diagnoses import Diagnoses
from tests.support.diagnosis.expensive import LARGE, SMALL, A, Shape, nodes, request
from tests.support.diagnosis.stage import POD, served
from tests.support.simulation.objects import KubernetesObject, make_claim

WHOLE: Final = 300.0
"""Milliseconds for a pod that is refused on 5,000 nodes of 8 devices, by one rule."""
STEP: Final = 50.0
"""Milliseconds that the event loop may stand still."""
ORDINARY: Final = ("too_many", "misspelt")
ROUNDS: Final = 3
REFUSED: Final = 500
"""Pods that are refused at once."""
NAMESPACES: Final = (1, 5, 20)
IN_TIME: Final = 10.0
"""Seconds within which each of them has its event."""


class Figure(NamedTuple):
    """Milliseconds."""

    whole: float
    step: float


def measured(view: View) -> Figure:
    pod = view.pods.named("default", POD)
    assert pod is not None
    steps, whole, longest = diagnosing(view, pod), 0.0, 0.0
    while True:
        started = time.process_time()
        ended = next(steps, steps) is steps
        taken = 1000 * (time.process_time() - started)
        whole, longest = whole + taken, max(longest, taken)
        if ended:
            return Figure(whole, longest)


def figure(shape: Shape) -> Figure:
    """Of several rounds the median; as in the service, what is there does not concern the garbage collector."""
    view = served(shape())
    gc.collect()
    gc.freeze()
    found = [measured(view) for _ in range(ROUNDS)]
    gc.unfreeze()
    return Figure(median(item.whole for item in found), median(item.step for item in found))


class _Client:
    """Accepts every event at once, and counts those on pods."""

    def __init__(self) -> None:
        self.pods = 0
        self.all_written = asyncio.Event()

    async def create(self, _path: str, body: bytes, *, timeout: float) -> bytes:
        del timeout
        self.pods += b'"kind":"Pod"' in body
        if self.pods == REFUSED:
            self.all_written.set()
        return b"{}"


def _refused(namespaces: int) -> Iterator[KubernetesObject]:
    """Pods that differ in their names only, in turns of these namespaces, and the nodes."""
    yield from nodes(5_000)
    for index in range(REFUSED):
        name, namespace = f"p{index}", f"team-{index % namespaces}"
        yield make_claim(name, requests=[request("r", f'{A}.model == "H10O"')], namespace=namespace, pod=name)
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        spec = {"schedulerName": "dra-scheduler", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}
        yield convert(Pod, {"metadata": meta, "spec": spec, "status": status})


async def events_written(namespaces: int) -> float:
    """Seconds until the last of the pods has its event."""
    view, client = served(_refused(namespaces)), _Client()
    recorder = EventRecorder(client, "bench")  # type: ignore[arg-type]
    pods = {pod.metadata.uid: 1 for pod in view.pods}

    def report(about: Pod | ResourceClaim, reason: str, note: str) -> None:
        meta, kind = about.metadata, type(about).__name__
        regarding = ObjectReference(kind, meta.name, meta.namespace, meta.uid, "v1")
        recorder.record(Event(regarding, reason, "Scheduling", note, "Warning"))

    diagnoses = Diagnoses(view, lambda: pods, report)
    started = time.monotonic()
    jobs = [asyncio.create_task(diagnoses.run()), asyncio.create_task(recorder.run())]
    await client.all_written.wait()
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    return time.monotonic() - started


def main() -> int:
    missed: list[str] = []
    print("| pod | all of it (ms) | longest step (ms) |\n|---|---|---|")
    for shape in (*LARGE, *SMALL):
        found, name = figure(shape), shape.__name__
        print(
            f"| {(shape.__doc__ or name.replace('_', ' ')).strip()} | {found.whole:.0f} | {found.step:.1f} |",
            flush=True,
        )
        if found.step > STEP or (name in ORDINARY and found.whole > WHOLE):
            missed.append(name)
    print("\n| 500 pods refused at once | seconds until the last has its event |\n|---|---|")
    for namespaces in NAMESPACES:
        waited = asyncio.run(events_written(namespaces))
        print(
            f"| in {namespaces} namespaces | {waited:.1f} |"
            if namespaces > 1
            else f"| in one namespace | {waited:.1f} |",
            flush=True,
        )
        if waited > IN_TIME:
            missed.append(f"events in {namespaces} namespaces")
    print(f"\nMeasured on {described()}, processor time.")
    print(f"Targets missed: {', '.join(missed)}" if missed else "All targets met.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
