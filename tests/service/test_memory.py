"""The memory of a process that is ours alone."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import subprocess
import sys

import pytest

from dra_extender.service import process
from dra_extender.service.process import ProcessMemory
from tests.support.patience import until

HOLES = """
from dra_extender.service.process import trim
from tools.memory import resident
import os
full = [b"x" * 50_000 for _ in range(4_000)]
peak = resident(os.getpid())
del full[1::2], full[: -1]
trim()
print(peak - resident(os.getpid()) > 150_000_000)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library has no malloc_trim")
def test_what_was_let_go_is_given_back_although_something_behind_it_is_in_use() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("own", [True, False])
def test_what_is_new_is_looked_through_less_often_in_a_process_of_ours(own: bool) -> None:
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    try:
        ProcessMemory(own=own).freeze()
        assert gc.get_threshold()[0] == (process.YOUNG if own else before[0])
        assert (gc.callbacks == callbacks) is not own
    finally:
        gc.callbacks[:] = callbacks
        gc.set_threshold(*before)
        gc.unfreeze()


GROWING = """
import gc, sys
from dra_extender.service import process
process.PAUSE = float(sys.argv[1])
process.ProcessMemory(own=True).freeze()
before, growing = gc.get_freeze_count(), []
for number in range(200_000):
    growing.append([number])
print(gc.get_freeze_count() - before > 100_000)
"""


@pytest.mark.parametrize(("pause", "frozen"), [(0.0, True), (60.0, False)], ids=["long", "short"])
def test_what_a_long_collection_left_is_not_traversed_again(pause: float, frozen: bool) -> None:
    done = subprocess.run([sys.executable, "-c", GROWING, str(pause)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{frozen}\n"


CIRCLES = """
import gc
from dra_extender.service.process import ProcessMemory
ProcessMemory(own=True).freeze()
most, waiting = 0, []
for number in range(1_000_000):
    waiting.append(circle := [])
    circle.append(circle)
    if len(waiting) > 20_000:
        waiting.clear()
    if number % 1_000 == 0:
        most = max(most, len(gc.get_objects()))
print(most < 100_000)
"""


def test_circles_that_outlived_a_while_are_found_before_they_are_many() -> None:
    done = subprocess.run([sys.executable, "-c", CIRCLES], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


LEFT = """
import gc, sys, weakref
from dra_extender.service import process
from dra_extender.service.process import ProcessMemory
process.FEW = int(sys.argv[1])
class Engine: pass
memory = ProcessMemory(own=True)
memory.freeze()
engine = Engine()
engine.itself, left = engine, weakref.ref(engine)
memory.freeze()
del engine
memory.freeze()
frozen = left() is not None
memory.let_go()
print(frozen, left() is None)
"""


@pytest.mark.parametrize(("few", "freed"), [(0, True), (process.FEW, False)], ids=["much", "little"])
def test_what_engines_left_behind_is_freed_when_it_is_much(few: int, freed: bool) -> None:
    """Looking for it stops the event loop."""
    done = subprocess.run([sys.executable, "-c", LEFT, str(few)], capture_output=True, text=True, check=True)
    assert done.stdout == f"True {freed}\n"


@pytest.mark.parametrize("own", [True, False])
async def test_memory_is_given_back_again_and_again_in_a_process_of_ours(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[None] = []
    monkeypatch.setattr(process, "PERIOD", 0.0)
    monkeypatch.setattr(process, "trim", lambda: trimmed.append(None))
    job = asyncio.create_task(ProcessMemory(own=own).trim())
    if own:
        await until(lambda: len(trimmed) >= 2)
    else:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not trimmed
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
