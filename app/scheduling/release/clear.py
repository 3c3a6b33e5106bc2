"""Taking an allocation back that nobody uses.

Promises: an allocation is cleared only at the version it was judged by, so a reservation made meanwhile wins, and never
under a pod that is bound: that is asked of the API server, because the watch of pods may be behind. While the write is
on its way no bind of ours relies on the claim.
"""

from __future__ import annotations

import structlog

from app.api.errors import ApiError, NotFoundError
from app.api.resource import FINALIZER, ResourceClaim
from app.scheduling.outcomes import CLEARED
from app.scheduling.state import State

log = structlog.get_logger(__name__)


async def clear(state: State, claim: ResourceClaim, cause: str, note: str) -> bool:
    """Clear allocation, reservations and device states. `cause` is the label to count, `note` is for people."""
    uid = claim.metadata.uid
    if uid in state.clearing:
        return False
    state.clearing.add(uid)
    try:
        if await _runs_somewhere(state, claim):
            return False
        state.learn(await state.ports.deallocate(claim))
    except NotFoundError:
        state.gone(claim)
        return True
    except ApiError as error:
        # Whatever happened, the watch will show it; the caller judges again.
        state.observer.count(CLEARED, "failed")
        log.info("an unused allocation was not cleared", claim=claim.metadata.key, error=repr(error))
        return False
    finally:
        state.clearing.discard(uid)
        state.wakeups.improved()
    state.observer.count(CLEARED, cause)
    state.ports.record_event(claim, "Normal", "DevicesReleased", note)
    return True


async def _runs_somewhere(state: State, claim: ResourceClaim) -> bool:
    """Whether one of the claim's pods is bound, as stored now. Raises ApiError."""
    for consumer in claim.status.reserved_for:
        pod = await state.ports.read_pod(claim.metadata.namespace, consumer.name)
        if pod is not None and pod.metadata.uid == consumer.uid:
            state.pods.learn(pod)
            if pod.spec.node_name:
                return True
    return False


async def discard(state: State, claim: ResourceClaim) -> bool:
    """Remove a claim that we made for extended resources and that is not allocated. False: something is left to do."""
    uid = claim.metadata.uid
    if uid in state.clearing or claim.allocation is not None:
        return False
    state.clearing.add(uid)
    try:
        if FINALIZER in claim.metadata.finalizers:
            claim = await state.ports.remove_finalizer(claim)
            state.learn(claim)
        await state.ports.delete_claim(claim)
    except NotFoundError:
        pass
    except ApiError as error:
        state.observer.count(CLEARED, "failed")
        log.info("a claim for extended resources was not removed", claim=claim.metadata.key, error=repr(error))
        return False
    finally:
        state.clearing.discard(uid)
        state.wakeups.improved()
    state.gone(claim)
    state.observer.count(CLEARED, "leftover")
    return True
