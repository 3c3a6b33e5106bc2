"""What is wrong in the cluster."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from dra_extender.http.insight.desk import Desk
from dra_extender.http.reports import Problems

MOST_PROBLEMS: Final = 1_000


def router(desk: Desk) -> APIRouter:
    """`/problems`."""
    made = APIRouter()

    @made.get("/problems")
    async def problems() -> Problems:
        """Objects that cannot be used, claims that conflict, missing permissions, and what to do about each."""
        found = await desk.answer(desk.insight.problems())
        return Problems(total=len(found), problems=list(found[:MOST_PROBLEMS]))

    return made
