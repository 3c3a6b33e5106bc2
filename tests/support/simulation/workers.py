"""Workers in virtual time: the same answers, in this process, after a while that a test chooses. Requests and replies
are encoded and decoded as for a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dra_extender.allocation.allocator import reply_to
from dra_extender.allocation.workerrequests import Overrun, RequestKind, TimedReply, WorkerRequest, kind_of
from dra_extender.workers.wire import HEADER, decode_reply, decode_request, encode_reply, encode_request

NEVER = -1.0


class VirtualWorkers:
    """Fulfils `scheduling.ports.Workers`. `seconds(question)`: how long the answer takes; more than `most` is too
    long. `asked` are the kinds of all questions, in order.
    """

    def __init__(
        self, seconds: Callable[[WorkerRequest], float] = lambda _: 0.1, *, capacity: int = 2, most: float = 2.0
    ) -> None:
        self.capacity = capacity
        self.asked: list[RequestKind] = []
        self.most_at_once = 0
        self._seconds = seconds
        self._most = most
        self._at_once = 0

    @classmethod
    def none(cls) -> VirtualWorkers:
        """No process can be started."""
        return cls(lambda _: NEVER)

    async def answer(self, question: WorkerRequest) -> TimedReply:
        self.asked.append(kind_of(question))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            seconds = self._seconds(question)
            if seconds == NEVER:
                return TimedReply(Overrun("start", "no worker process starts"), 0.0)
            await asyncio.sleep(min(seconds, self._most))
            if seconds > self._most:
                return TimedReply(Overrun("time", f"needs more than {self._most:g} s"), self._most)
            sent = decode_request((await encode_request(question))[0])
            reply = encode_reply(TimedReply(reply_to(sent, 100_000), seconds))
            return decode_reply(reply[HEADER.size :])
        finally:
            self._at_once -= 1
