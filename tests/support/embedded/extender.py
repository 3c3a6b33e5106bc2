"""An extender that answers as a test tells it, and keeps what it was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

Answer = Callable[[dict[str, Any]], Any]


class ScriptedExtender:
    """Answers each verb with what `answers[verb]` returns; a Response is sent as it is. `calls` keeps the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.raw: list[tuple[bytes, dict[str, str]]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "filter": lambda args: {"NodeNames": args["NodeNames"], "FailedNodes": {}, "Error": ""},
            "prioritize": lambda args: [{"Host": name, "Score": 0} for name in args["NodeNames"]],
            "bind": lambda args: {"Error": ""},
        }

    @property
    def counts(self) -> Counter[str]:
        return Counter(verb for verb, _ in self.calls)

    def of(self, verb: str, pod: str) -> int:
        """How often the verb was called for the pod of this name."""
        return sum(
            1
            for called, args in self.calls
            if called == verb and (args.get("PodName") or args["Pod"]["metadata"]["name"]) == pod
        )

    def refuse(self, text: str, where: str = "FailedAndUnresolvableNodes") -> None:
        """From now on no node is good."""
        self.answers["filter"] = lambda args: {"NodeNames": [], where: dict.fromkeys(args["NodeNames"], text)}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        verb = request.match_info["verb"]
        args = orjson.loads(body)
        self.calls.append((verb, args))
        self.raw.append((body, dict(request.headers)))
        answer = self.answers[verb](args)
        if isinstance(answer, Awaitable):
            answer = await answer
        return answer if isinstance(answer, web.Response) else web.json_response(answer)
