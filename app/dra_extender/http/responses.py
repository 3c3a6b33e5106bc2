"""Bodies of requests, responses as JSON, and the schemas of responses.

The verbs bypass the models of the frameworks; `read_body` and `json_response` are all they need. Promises: a body is
bounded in size; errors are `{"detail": text}`, as FastAPI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import Request, Response
from pydantic import BaseModel, Field

from dra_extender.api.decoding import encode

CLOSE: Final = {"Connection": "close"}
"""The connection ends with a response that has this header."""


class BodyTooLargeError(Exception):
    """The body exceeds the limit. The rest of it is unread, so the connection must be closed."""


class ErrorBody(BaseModel):
    """The body of an error."""

    detail: str = Field(description="what is wrong")


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(content), status, headers, "application/json")


def error_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_response({"detail": detail}, status, headers)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, in bytes. Raises BodyTooLargeError as soon as the size is certain, and ClientDisconnect."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise BodyTooLargeError
    parts: list[bytes] = []
    left = limit
    async for part in request.stream():
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise BodyTooLargeError
    return b"".join(parts)


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
