"""What runs in a worker process: one question after the other from standard input, answers to standard output.

Promises: it never takes more memory than it may, nor more CPU time for a question: the system ends it then. It has no
network, no credentials and no state; it ends when its input does. A question that it cannot read ends it as well.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from math import ceil
from typing import BinaryIO, Final

from dra_extender.allocation.answering import answer
from dra_extender.allocation.questions import Answer, Overrun
from dra_extender.unexpected import Place, tolerate
from dra_extender.workers.wire import HEADER, Reply, decode_question, encode_reply, length

MEMORY: Final = "memory"


def main(seconds: float, memory: int, frames: int, step_budget: int) -> None:
    """Answer until the input ends. `seconds` of CPU time per question, `memory` in bytes."""
    sys.setrecursionlimit(frames)
    tolerate(_tell)
    questions, replies = _streams()
    _limit_memory(memory)
    while header := questions.read(HEADER.size):
        payload = questions.read(length(header))
        _limit_time(seconds)
        started = time.process_time()
        found = _answered(payload, memory, step_budget)
        replies.write(encode_reply(Reply(found, time.process_time() - started)))
        replies.flush()
        gc.collect()


def _answered(payload: bytes, memory: int, step_budget: int) -> Answer:
    try:
        return answer(decode_question(payload), step_budget)
    except MemoryError:
        return Overrun(MEMORY, f"needs more than {memory // 2**20} MiB of memory")


def _streams() -> tuple[BinaryIO, BinaryIO]:
    """Input and output. What anybody prints goes to the log."""
    questions, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return questions, replies


def _tell(place: Place, problem: Exception, about: dict[str, object]) -> None:
    print(f"worker: unexpected error in {place}: {problem!r}", file=sys.stderr, flush=True)  # noqa: T201 - the log


if sys.platform == "win32":

    def _limit_memory(memory: int) -> None:
        """There is no such limit."""

    def _limit_time(seconds: float) -> None:
        """The parent's deadline is the only one."""

else:
    import resource

    def _limit_memory(memory: int) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    def _limit_time(seconds: float) -> None:
        """From now on so much more CPU time."""
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(time.process_time() + seconds), hard))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
