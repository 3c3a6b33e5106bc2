"""How long `why` takes on 5,000 nodes of 8 devices, and how long its longest step is: processor time.

The subjects are the same whose calls the tests count. Exit status 1 when a target is missed.
"""

from __future__ import annotations

import gc
import sys
import time
from statistics import median
from typing import Final, NamedTuple

from bench.machine import described
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.scheduling.view import View
from tests.support.diagnosis.expensive import LARGE, SMALL, Shape
from tests.support.diagnosis.stage import POD, served

WHOLE: Final = 300.0
"""Milliseconds for a pod that is refused on 5,000 nodes of 8 devices, by one rule."""
STEP: Final = 50.0
"""Milliseconds that the event loop may stand still."""
ORDINARY: Final = ("too_many", "misspelt")
ROUNDS: Final = 3


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
    print(f"\nMeasured on {described()}, processor time.")
    print(f"Targets missed: {', '.join(missed)}" if missed else "All targets met.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
