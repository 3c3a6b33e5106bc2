"""What the service must be allowed to do, and the check at the start that it is.

Promises: with the permissions of `needed` every part of the service that the settings switch on works; a missing one
is logged once, when it is found missing, not when the first pod needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import structlog

from dra_extender.api.errors import ApiError
from dra_extender.kube.access import (
    Permission,
    missing_permissions,
    permissions_for_binding,
    permissions_for_extended_resources,
    permissions_for_lease,
    permissions_for_nominating,
    permissions_for_preemption,
    permissions_for_readers,
    permissions_for_reading,
    permissions_for_waking,
)
from dra_extender.kube.client import KubeClient
from dra_extender.kube.discovery import Served
from dra_extender.service.settings import Settings

log = structlog.get_logger(__name__)

PERIOD = 5.0


def needed(settings: Settings, served: Served) -> tuple[Permission, ...]:
    """All that the service uses with these settings, on a server with these versions."""
    permissions = permissions_for_reading(served, budgets=settings.preemption != "off")
    if not settings.advise_only:
        permissions += permissions_for_binding() + permissions_for_waking(settings.namespace)
        if settings.features.DRAExtendedResource:
            permissions += permissions_for_extended_resources()
        if settings.preemption == "on":
            permissions += permissions_for_preemption()
        if settings.nominate != "never":
            permissions += permissions_for_nominating()
    if settings.leader_election:
        permissions += permissions_for_lease(settings.namespace, settings.lease_name)
    if settings.insight_authorization:
        permissions += permissions_for_readers()
    return permissions


async def missing_until_granted(
    client: KubeClient, permissions: Sequence[Permission]
) -> AsyncGenerator[tuple[str, ...], None]:
    """What is missing, one sentence each: asked again and again until nothing is. Ends early, and says so in the log,
    when the server cannot be asked before it has named anything that is missing.
    """
    known: tuple[str, ...] = ()
    while True:
        try:
            found = tuple(await missing_permissions(client, permissions))
        except ApiError as problem:
            log.warning("permissions not checked", problem=problem.message)
            if not known:
                return
            await asyncio.sleep(PERIOD)
            continue
        for missing in found:
            if missing not in known:
                log.error("permission missing", permission=missing)
        known = found
        yield found
        if not found:
            return
        await asyncio.sleep(PERIOD)
