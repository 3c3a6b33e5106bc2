"""What if: suppositions that are posted, and who would fit then."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, HTTPException, Request, Response

from dra_extender.http.answers import BodyTooLargeError, DisconnectedError, read_body
from dra_extender.http.insight.desk import Desk, answering, encoded
from dra_extender.http.insight.suppositions import Body, Twice, reading
from dra_extender.http.schemas import schema_of
from dra_extender.insight.whatif.asking import asking
from dra_extender.insight.whatif.changes import Missing, Unusable
from dra_extender.insight.whatif.report import WhatIf
from dra_extender.scheduling.slices import Slices
from dra_extender.scheduling.view import View

MOST_BYTES: Final = 512 * 2**10
"""Of a request."""
_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": schema_of(Body)}}}
}


def router(desk: Desk) -> APIRouter:
    """`/whatif`."""
    made = APIRouter()

    @made.post(
        "/whatif",
        response_class=Response,
        responses=answering(WhatIf, "who would fit, and who would not"),
        openapi_extra=_BODY,
    )
    async def whatif(request: Request) -> Response:
        """Who would fit, and who would not any more, if nodes, slices or classes were added, nodes drained, or pods
        gone? Nothing is changed: whoever may get this path may post.
        """
        view = desk.view
        try:
            body = await read_body(request.scope, request.receive, MOST_BYTES)
            return encoded(await desk.answer_at_length(_answer(view, body)))
        except BodyTooLargeError:
            detail = f"the request is larger than {MOST_BYTES} bytes: suppose fewer objects at once"
            raise HTTPException(413, detail, {"Connection": "close"}) from None
        except Missing as mistake:
            raise HTTPException(404, mistake.sentence) from None
        except Twice as mistake:
            raise HTTPException(409, mistake.sentence) from None
        except Unusable as mistake:
            raise HTTPException(400, mistake.sentence) from None
        except DisconnectedError:
            return Response(status_code=400)

    return made


def _answer(view: View, body: bytes) -> Slices[WhatIf]:
    """Raises Unusable."""
    question = yield from reading(view, body)
    return (yield from asking(view, question.changes, question.asked))
