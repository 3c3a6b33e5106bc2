"""Making the claim for a pod's extended resources.

Promises: at most one such claim per pod, whatever replies are lost, because its name follows from the pod's UID.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, OutcomeUnknownError
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.bind.actions import Actions
from dra_extender.scheduling.bind.claimwrite import ClaimWrite
from dra_extender.scheduling.bind.failure import BindFailure
from dra_extender.scheduling.bind.retry import Unanswered, answered, attempts
from dra_extender.scheduling.extended import claim_body, claim_name
from dra_extender.scheduling.outcomes import UNANSWERED_WRITES

log = structlog.get_logger(__name__)

IN_THE_WAY = "another claim has the name of the pod's claim for extended resources"


async def create(act: Actions, pod: Pod, write: ClaimWrite, go_on: Callable[[], None]) -> None:
    """Create the claim and let `write` go on with it. Raises BindFailure."""
    body = claim_body(pod, write.claim)
    async for _ in attempts(act.view.config):
        go_on()
        try:
            write.adopt(await act.ports.create_claim(pod.metadata.namespace, body))
            return
        except ConflictError:
            pass
        except OutcomeUnknownError:
            act.observer.count(UNANSWERED_WRITES, "claim_creation")
        except Unanswered:
            continue
        except ApiError as error:
            raise _refused(pod, error) from None
        try:
            existing = await answered(
                lambda: act.ports.read_claim(pod.metadata.namespace, claim_name(pod)), act.view.config, go_on
            )
        except ApiError as error:
            raise _refused(pod, error) from None
        if existing is not None:
            _require_ours(pod, existing, write)
            write.adopt(existing)
            return


def _refused(pod: Pod, error: ApiError) -> BindFailure:
    log.warning("a claim for extended resources was refused", pod=pod.metadata.key, error=repr(error))
    return BindFailure("the API server refused the claim for extended resources")


def _require_ours(pod: Pod, existing: ResourceClaim, write: ClaimWrite) -> None:
    """Whether the claim is the one we wanted to create, from a lost reply."""
    owner = existing.metadata.controller
    fresh = existing.allocation is None and not existing.metadata.deletion_timestamp
    same = existing.spec.devices.requests == write.claim.spec.devices.requests
    if owner is None or owner.uid != pod.metadata.uid or not fresh or not same:
        raise BindFailure(IN_THE_WAY, "conflict")
