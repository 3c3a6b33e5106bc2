"""What a bind writes to the pod's status for kubelet: the claim for extended resources, and the amounts that devices
take of the node.

Promises: a write requires the version of the pod that it was made for. So it never reaches a pod that another replica
has bound. After a conflict the pod is read, and the patch is made again. A pod that is bound without a claim for
extended resources no longer names the claim of an earlier bind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.scheduling.bind.context import BindContext, LivePod
from dra_extender.scheduling.bind.failure import REPLACED, STATUS_CHANGED, BindFailure, CheckActive, answered
from dra_extender.scheduling.claims import claim_names
from dra_extender.scheduling.feasibility import NodeAllocation
from dra_extender.scheduling.nodeallocatable import patch_of

log = structlog.get_logger(__name__)


def reported(pod: Pod) -> object:
    """What the status says of the pod's devices; equal when it says the same."""
    status = pod.status
    return claim_names(pod), status.extended_resource_claim_status, status.node_allocatable_resource_claim_statuses


def status_patch(pod: Pod, decision: NodeAllocation, claims: Collection[str], extended: str) -> dict[str, Any]:
    """The patch of the status for this decision; empty when the pod says it already. `claims`: the names of all claims
    of the pod. `extended`: the name of that for extended resources, empty without one.
    """
    status, known = patch_of(pod, decision.statuses), pod.status.extended_resource_claim_status
    if decision.requests is not None:
        return status | decision.requests.status(extended)
    if known is not None and known.resource_claim_name not in claims:
        return status | {"extendedResourceClaimStatus": None}  # an earlier bind to another node has left it
    return status


async def write(
    context: BindContext,
    live: LivePod,
    pod: Pod,
    status_of: Callable[[Pod], Mapping[str, Any]],
    check_active: CheckActive,
) -> Pod:
    """Write the status, and return the pod as stored. `status_of`: the patch for a version of the pod, empty when there
    is nothing to write. Raises BindFailure.
    """
    config, found = context.view.config, pod
    for _ in range(config.write_attempts):
        status = status_of(found)
        if not status:
            return found
        check_active()
        patch = partial(context.ports.patch_pod_status, found, status, version=found.metadata.resource_version)
        try:
            stored = await answered(patch, config, check_active)
        except ConflictError:
            newer = await live.read(check_active)
            if newer is None or newer.spec.node_name:
                raise BindFailure(REPLACED, "cancelled") from None
            found = newer
        except NotFoundError:
            raise BindFailure(REPLACED, "cancelled") from None
        except ApiError as error:
            log.warning("the status of a pod was refused", pod=pod.metadata.key, error=repr(error))
            raise BindFailure("the API server refused the pod's status") from None
        else:
            context.event_handler.replied(stored)
            return stored
    raise BindFailure(STATUS_CHANGED, "conflict")
