"""Requests and responses as bytes, and the schemas of responses.

The verbs bypass the models of the frameworks; `read_body` and `send_response` are all they need of ASGI. Promises: a
body is bounded in size; a response has its length and nothing after it; errors are `{"detail": text}`, as FastAPI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import Response
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

_TYPE = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")


class BodyTooLargeError(Exception):
    """The body exceeds the limit. The rest of it is unread, so the connection must be closed."""


class DisconnectedError(Exception):
    """The client left before its request was complete."""


class RawResponse(msgspec.Struct, frozen=True):
    """Status and JSON body. `close`: the connection ends with it."""

    body: bytes
    status: int = 200
    close: bool = False


class ErrorBody(BaseModel):
    """The body of an error."""

    detail: str = Field(description="what is wrong")


def error_response(status: int, detail: str, *, close: bool = False) -> RawResponse:
    return RawResponse(msgspec.json.encode({"detail": detail}), status, close)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, in bytes. Raises BodyTooLargeError as soon as the size is certain, and DisconnectedError."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if length.isdigit() and int(length) > limit:
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


async def send_response(send: Send, response: RawResponse, extra: Mapping[bytes, bytes] | None = None) -> None:
    """Send status, headers (`extra` too) and body."""
    headers = [_TYPE, (b"content-length", str(len(response.body)).encode())]
    if response.close:
        headers.append(_CLOSE)
    headers.extend((extra or {}).items())
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def encoded(answer: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def json_content(kind: type[msgspec.Struct], description: str) -> dict[str, Any]:
    """The OpenAPI description of a response that is this struct."""
    return {"description": description, "content": {"application/json": {"schema": schema_of(kind)}}}


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema without references, so it can stand anywhere in a document. No struct may contain itself."""
    (root,), parts = msgspec.json.schema_components((struct,), ref_template="{name}")
    found: dict[str, Any] = _resolved(root, parts)
    return found


def _resolved(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_resolved(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    others = {key: _resolved(value, parts) for key, value in schema.items() if key != "$ref"}
    return {**_resolved(parts[schema["$ref"]], parts), **others} if "$ref" in schema else others
