"""Real worker processes: limits that stop them, and what a crash costs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from dra_extender.allocation.allocator import reply_to
from dra_extender.allocation.workerrequests import (
    CompileReply,
    CompileRequest,
    EvaluateReply,
    EvaluateRequest,
    Overrun,
    WorkerRequest,
)
from dra_extender.api.semver import VersionText
from dra_extender.cel import CelGates, DeviceView
from dra_extender.workers import WorkerLimits
from dra_extender.workers import pool as workerpool
from dra_extender.workers.pool import WorkerPool
from tests.support.cel.devices import view_of
from tests.support.patience import until

GATES = CelGates(list_attributes=True, stored=True)
LOOPS = "lists.range(200).all(x, lists.range(200).all(y, y >= 0))"


def device(**attributes: Any) -> DeviceView:
    return view_of("d", attributes, {"memory": "1500m", "k": "2Ki"}, True, GATES)


def evaluating(expression: str, **attributes: Any) -> EvaluateRequest:
    return EvaluateRequest(expression, GATES, device(**attributes))


EASY = evaluating("device.driver == 'd'")


@pytest.fixture
async def pools() -> AsyncIterator[list[WorkerPool]]:
    """Pools of a test, closed at its end."""
    made: list[WorkerPool] = []
    yield made
    for pool in made:
        await pool.close()


@pytest.fixture
def pool(pools: list[WorkerPool]) -> WorkerPool:
    pools.append(WorkerPool(WorkerLimits(seconds=1.0, patience=60.0, memory=256 * 2**20)))
    return pools[0]


def instead(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Processes run this instead of a worker."""

    def command(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", program, *arguments]

    monkeypatch.setattr(workerpool, "command", command)


def answering(expression: str) -> str:
    """A worker that answers with this Python expression."""
    return (
        "import sys, dra_extender.workers.__main__ as worker\n"
        f"worker.reply_to = lambda *_: {expression}\n"
        "worker.main(float(sys.argv[1]), *map(int, sys.argv[2:]))"
    )


QUESTIONS: list[WorkerRequest] = [
    CompileRequest("device.attributes['d'].model == 'a'", GATES),
    CompileRequest("device.nothing", GATES),
    EASY,
    evaluating("device.attributes['d'].n == 1 && device.attributes['d'].b", n=1, b=True),
    evaluating("device.attributes['d'].v.isLessThan(semver('2.0.0'))", v=VersionText("1.2.3")),
    evaluating("device.attributes['d'].l.exists(x, x == 'b') && device.attributes['d'].e == []", l=("a", "b"), e=()),
    evaluating("device.attributes['d'].s.all(x, x == true) && device.attributes['d'].i[1] == 2", s=(True,), i=(1, 2)),
    evaluating("device.capacity['d'].memory.isInteger()"),
    evaluating("device.capacity['d'].k.asInteger() == 2048 && device.allowMultipleAllocations"),
    evaluating("device.attributes['d'].missing"),
]


async def test_a_worker_says_what_this_process_would_say(pool: WorkerPool) -> None:
    assert [(await pool.answer(question)).reply for question in QUESTIONS] == [reply_to(each) for each in QUESTIONS]
    assert pool.starts == 1


@pytest.mark.slow
async def test_what_takes_too_much_cpu_time_is_stopped_and_the_next_question_answered(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(monkeypatch, answering("all(True for _ in iter(int, 1))"))
    assert (await pool.answer(EASY)).reply == Overrun("time", "needs more than 1 s")
    monkeypatch.undo()
    assert (await pool.answer(EASY)).reply == EvaluateReply(True)
    assert pool.starts == 2


async def test_a_worker_that_hangs_is_stopped_at_the_deadline(
    pools: list[WorkerPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(monkeypatch, "import time; time.sleep(1000)")
    pool = WorkerPool(WorkerLimits(seconds=0.05, patience=2.0))
    pools.append(pool)
    assert (await pool.answer(EASY)).reply == Overrun("time", "needs more than 0.05 s")


async def test_what_takes_too_much_memory_is_stopped(pools: list[WorkerPool], monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, answering("[bytearray(2**20) for _ in range(100_000)]"))
    pool = WorkerPool(WorkerLimits(seconds=20.0, memory=256 * 2**20))
    pools.append(pool)
    assert (await pool.answer(EASY)).reply == Overrun("memory", "needs more than 256 MiB of memory")
    monkeypatch.undo()
    assert (await pool.answer(EASY)).reply == EvaluateReply(True)


@pytest.mark.parametrize(
    "program",
    [
        "import os; os.abort()",
        "import sys; sys.exit(3)",
        "import os; os.write(1, b'\\0\\0\\0\\2{}')",
        "import os; os.write(1, b'\\xff\\xff\\xff\\xff')",
        "import os; os.write(1, b'\\0\\0\\0\\7garbage')",
        "import os; os.write(1, b'\\0\\0')",
    ],
    ids=["crash", "exit", "no answer", "endless frame", "garbage", "half a frame"],
)
async def test_a_worker_that_crashes_or_makes_no_sense_costs_its_question_only(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    instead(monkeypatch, program)
    answer = await pool.answer(EASY)
    assert answer.reply == Overrun("crash", "ends the process that works on it")
    assert pool.starts == 2
    assert answer.seconds >= 2.0  # both processes are charged
    monkeypatch.undo()
    assert (await pool.answer(EASY)).reply == EvaluateReply(True)


async def test_where_no_process_can_be_started_the_question_is_given_up(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workerpool, "command", lambda arguments: ["/nothing/is/here", *arguments])
    reply = await pool.answer(EASY)
    assert isinstance(reply.reply, Overrun)
    assert (reply.reply.limit, pool.starts) == ("start", 1)


async def test_a_worker_sees_nothing_of_the_environment_that_could_be_a_secret(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/secret")
    monkeypatch.setenv("DRA_EXTENDER_TOKEN", "secret")
    assert set(workerpool.environment()) <= {*workerpool.KEPT_VARIABLES, "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    assert "PATH" in workerpool.environment() or "PATH" not in os.environ
    assert (await pool.answer(EASY)).reply == EvaluateReply(True)


async def test_questions_at_the_same_time_have_processes_of_their_own(pool: WorkerPool) -> None:
    replies = await asyncio.gather(*(pool.answer(EASY) for _ in range(2)))
    assert [reply.reply for reply in replies] == [EvaluateReply(True)] * 2
    assert pool.starts == 2


async def test_a_worker_without_questions_ends(pools: list[WorkerPool]) -> None:
    pool = WorkerPool(WorkerLimits(idle_seconds=0.01))
    pools.append(pool)
    await pool.answer(EASY)
    await until(lambda: pool.idle == 0)
    assert (await pool.answer(EASY)).reply == EvaluateReply(True)
    assert pool.starts == 2


async def test_a_worker_that_ended_while_it_was_idle_is_replaced(pool: WorkerPool) -> None:
    await pool.answer(EASY)
    process, _ = pool._idle[-1]
    await process.end()
    assert (await pool.answer(EASY)).reply == EvaluateReply(True)
    assert pool.starts == 2


async def test_a_call_that_is_cancelled_ends_its_worker(pool: WorkerPool) -> None:
    await pool.answer(EASY)
    task = asyncio.create_task(pool.answer(evaluating(LOOPS)))
    await until(lambda: pool.idle == 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert pool.idle == 0


async def test_the_deepest_selector_compiles_in_a_worker(pool: WorkerPool) -> None:
    deep = "(" * 200 + "true" + ")" * 200
    reply = await pool.answer(CompileRequest(f"{deep} || {'!' * 200}false", GATES))
    assert isinstance(reply.reply, CompileReply)
