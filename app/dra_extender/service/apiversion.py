"""Which API server there is and which versions of the resource API it serves, from the first contact to an upgrade.

Promises: an API server that is away or serves nothing usable yet is asked until it answers; a version it withdraws is
noticed when following the cluster fails because of it, within seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from dra_extender.api.errors import ApiError
from dra_extender.kube.backoff import Backoff
from dra_extender.kube.client import KubeClient
from dra_extender.kube.discovery import Served, discover

log = structlog.get_logger(__name__)

PERIOD = 5.0


async def until_served(client: KubeClient) -> Served:
    """Ask until the API server answers with a version that can be used. A problem is logged when it changes."""
    backoff = Backoff(0.5, 10.0)
    reported = ""
    while True:
        try:
            served = await discover(client)
        except ApiError as problem:
            pause = backoff.next()
            if reported != problem.message:
                reported = problem.message
                log.warning(
                    "API server not usable yet, will retry",
                    api_server=client.server,
                    problem=problem.message,
                    retry_in=round(pause, 1),
                )
            await asyncio.sleep(pause)
        else:
            log.info(
                "API server found",
                api_server=client.server,
                kubernetes=served.server_version,
                resource_api=served.version,
                taint_rules=served.taint_rules or "not served",
            )
            return served


async def until_withdrawn(client: KubeClient, served: Served, suspected: Callable[[], bool]) -> None:
    """Until the server has other versions than these, after an upgrade for example. It is asked only while it is
    `suspected`.
    """
    while True:
        await asyncio.sleep(PERIOD)
        if not suspected():
            continue
        try:
            now = await discover(client)
        except ApiError as problem:
            log.warning("cannot follow, and cannot ask which versions are served", problem=problem.message)
            continue
        if (now.version, now.taint_rules) != (served.version, served.taint_rules):
            log.warning(
                "the API server has withdrawn a version: starting again with what it serves now",
                was=served.version,
                now=now.version,
                taint_rules_were=served.taint_rules or "not served",
                taint_rules_now=now.taint_rules or "not served",
            )
            return
