"""All routes below /insight."""

from __future__ import annotations

from fastapi import APIRouter

from dra_extender.http.insight import devices, pods, problems, whatif
from dra_extender.http.insight.desk import Desk, Insight
from dra_extender.http.readers import REFUSALS


def insight_router(insight: Insight) -> APIRouter:
    """The questions that people may ask of this service."""
    desk = Desk(insight)
    router = APIRouter(prefix="/insight", tags=["insight"], responses=REFUSALS)
    for questions in (pods, devices, problems, whatif):
        router.include_router(questions.router(desk))
    return router
