"""Waits until a service is ready."""

from __future__ import annotations

import asyncio

from dra_extender.service.service import Service
from tests.support.patience import LONGEST


async def until_ready(service: Service, seconds: float = LONGEST) -> None:
    """Wait until calls of the verbs are answered. Raises TimeoutError, which says why they are not."""
    try:
        async with asyncio.timeout(seconds):
            while service.replica.unready():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"not ready after {seconds:g} s: {service.replica.unready()}") from None
