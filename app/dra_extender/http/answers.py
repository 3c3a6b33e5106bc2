"""Raw requests and answers: bodies bounded in size, answers with a length and nothing after it.

The verbs work on bytes and bypass the frameworks' models; this is the whole of what they need of ASGI.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.types import Receive, Scope, Send

_TYPE = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")


class BodyTooLargeError(Exception):
    """The body exceeds the limit; it was not read to its end, so the connection must be closed."""


class DisconnectedError(Exception):
    """The client left before its request was complete."""


class Answer(msgspec.Struct, frozen=True):
    """A status, a JSON body, and whether the connection ends with it."""

    body: bytes
    status: int = 200
    close: bool = False


def problem(status: int, detail: str, *, close: bool = False) -> Answer:
    """The JSON of an error for which the protocol has no field."""
    return Answer(msgspec.json.encode({"detail": detail}), status, close)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises BodyTooLargeError as soon as that is certain, DisconnectedError."""
    announced = _announced(scope)
    if announced > limit:
        raise BodyTooLargeError
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLargeError
        if not message.get("more_body", False):
            return b"".join((*parts, part)) if parts else part
        parts.append(part)


async def send_answer(send: Send, answer: Answer, extra: Mapping[bytes, bytes] | None = None) -> None:
    """Status, headers and body."""
    headers = [_TYPE, (b"content-length", str(len(answer.body)).encode())]
    if answer.close:
        headers.append(_CLOSE)
    headers.extend((extra or {}).items())
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
