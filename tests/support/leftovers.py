"""A test ends what it started: what is left over fails that test, not one that comes later.

Connections say goodbye for a while when they are closed, and cancelled tasks end at their next step: the loop of a test
waits for both. Left over are a task that was not cancelled, a connection that was not closed, and a thread. So is
what only the garbage collector finds (files, sockets, processes, coroutines that were never awaited): it is asked at
the end of each test, because warnings are errors, and have to be those of the test at hand.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from pytest_asyncio import is_async_test

from tests.support.patience import LONGEST, until

WAITING_FOR_A_PROCESS = "asyncio-waitpid"
"""How asyncio names its threads that wait for a process (Python 3.11). One ends a moment after it has reported the
exit status, so it is waited for; while the process lives the thread does, too, and is left over.
"""


TESTS_BETWEEN_FULL_COLLECTIONS = 200
"""What pytest lets go of between two tests is collected then; most of it needs no collector."""

OF_GRPC = "(_poll_wrapper)"
"""The thread of gRPC ends soon after its last server or channel is freed, which a collection may just have done."""

_tests = itertools.count()


@pytest.fixture(autouse=True)
def nothing_is_left_over() -> Iterator[None]:
    """For every test, around all its other fixtures.

    What exists before a test is not its leftover. Set aside, it is not looked at again after each test: a full
    collection of all that thousands of tests have loaded takes longer than most of them.
    """
    if next(_tests) % TESTS_BETWEEN_FULL_COLLECTIONS == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    before = set(threading.enumerate())
    yield
    gc.collect()
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        if thread.name.startswith(WAITING_FOR_A_PROCESS) or thread.name.endswith(OF_GRPC):
            thread.join(LONGEST)
    left = [thread.name for thread in new if thread.is_alive()]
    assert not left, f"threads are left over: {left}"


@pytest.fixture(autouse=True)
def loop_is_left_empty(request: pytest.FixtureRequest, nothing_is_left_over: None) -> None:
    """Only tests that have an event loop get one."""
    if is_async_test(request.node):
        request.getfixturevalue("empty_loop")


@pytest.fixture
async def empty_loop() -> AsyncIterator[None]:
    """The event loop of the test: at its end neither tasks nor connections are in it."""
    yield
    here = asyncio.current_task()

    def tasks() -> list[asyncio.Task[object]]:
        return [task for task in asyncio.all_tasks() if task is not here]

    await until(lambda: not any(task.cancelling() for task in tasks()), lambda: f"the end of {tasks()}")
    assert not tasks(), f"tasks are left over: {tasks()}"
    await goodbyes()
    assert not connections(), f"connections are left over: {connections()}"


async def goodbyes() -> None:
    """Until all connections of the running event loop that were closed are gone: with TLS the other side has a say."""
    await until(lambda: not any(one.is_closing() for one in connections()), lambda: f"the end of {connections()}")


def connections() -> list[asyncio.Transport]:
    """Those of the running event loop that are not closed yet. asyncio lists them nowhere in public."""
    known = getattr(asyncio.get_running_loop(), "_transports", {})
    return [transport for transport in known.values() if transport.get_extra_info("socket").fileno() != -1]
