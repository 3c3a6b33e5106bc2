"""What runs in a worker process: one request after the other from standard input, answers to standard output.

Promises: it never takes more memory than it may, nor more CPU time for a request: the system ends it then. It has no
network, no credentials and no state; it ends when its input does. A request that it cannot read ends it as well.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import time
from math import ceil
from typing import Final

from dra_extender.allocation.allocator import reply_to
from dra_extender.allocation.requests import Filters
from dra_extender.allocation.workerrequests import Overrun, TimedReply, WorkerReply
from dra_extender.cel import Programs
from dra_extender.limits import FRAMES
from dra_extender.unexpected import ErrorPlace, tolerate
from dra_extender.workers.wire import HEADER, decode_request, encode_reply, length

MEMORY: Final = "memory"


def main(seconds: float, memory: int, step_budget: int) -> None:
    """Reply until the input ends. `seconds` of CPU time per request, `memory` in bytes."""
    sys.setrecursionlimit(FRAMES)  # for deep selectors
    tolerate(_tell)
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints goes to the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    programs, filters = Programs(), Filters()
    while header := requests.read(HEADER.size):
        payload = requests.read(length(header))
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(time.process_time() + seconds), hard))
        started = time.process_time()
        found = _answered(payload, memory, step_budget, programs, filters)
        replies.write(encode_reply(TimedReply(found, time.process_time() - started)))
        replies.flush()
        gc.collect()


def _answered(payload: bytes, memory: int, step_budget: int, programs: Programs, filters: Filters) -> WorkerReply:
    try:
        return reply_to(decode_request(payload, filters), step_budget, programs)
    except MemoryError:
        return Overrun(MEMORY, f"needs more than {memory // 2**20} MiB of memory")


def _tell(place: ErrorPlace, problem: Exception, about: dict[str, object]) -> None:
    print(f"worker: unexpected error in {place}: {problem!r}", file=sys.stderr, flush=True)  # noqa: T201 - the log


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
