"""Who holds the devices of claims that cannot be read.

A claim that cannot be decoded must not be decided on, and may hold devices all the same: its last readable version is
older than its allocation, or there is none. `StandIns` promises: what could be salvaged of its allocation is in the
ledger, in the name of a claim that no pod can name; the last version that could be read keeps what it holds.
"""

from __future__ import annotations

from app.api.meta import ObjectMeta
from app.api.resource import AllocationResult, DeviceAllocationResult, ResourceClaim, ResourceClaimStatus
from app.api.salvage import Salvaged
from app.devices.ledger import Ledger

_MARK = " (unreadable)"
"""No name of an object has a space in it."""


class StandIns:
    """By `namespace/name` of the claims they stand for."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._claims: dict[str, ResourceClaim] = {}

    def put(self, key: str, salvaged: Salvaged) -> bool:
        """The claim holds this, and perhaps more. True when devices became free."""
        results = list(salvaged.results)
        before = self._claims.get(key)
        if not salvaged.whole and before is not None and before.allocation is not None:
            results += before.allocation.devices.results
        known = self._ledger.by_key(key)
        counted = known.allocation.devices.results if known is not None and known.allocation is not None else ()
        ids = {result.id for result in counted}
        left = tuple(result for result in results if result.id not in ids)
        if not left:
            return self.drop(key)
        namespace, _, name = key.rpartition("/")
        meta = ObjectMeta(name=name + _MARK, namespace=namespace, uid=(salvaged.uid or key) + _MARK)
        status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=left)))
        claim = self._claims[key] = ResourceClaim(metadata=meta, status=status)
        return self._ledger.observe(claim, watched=True)

    def drop(self, key: str) -> bool:
        """The claim can be read, or is gone. True when devices became free."""
        claim = self._claims.pop(key, None)
        return claim is not None and self._ledger.forget(claim.metadata.namespace, claim.metadata.name, "")


def is_stand_in(key: str) -> bool:
    """Whether nobody made a claim of this `namespace/name`."""
    return key.endswith(_MARK)
