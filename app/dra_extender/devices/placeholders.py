"""Who holds the devices of claims that cannot be read.

A claim that cannot be decoded must not be decided on, and may hold devices all the same: its last readable version is
older than its allocation, or there is none. `Placeholders` promises: what could be partial of its allocation is in the
ledger, in the name of a claim that no pod can name; the last version that could be read keeps what it holds. Of a pool
of which it has a device that cannot be told nothing is offered; where not even the pool can be told, nothing of the
pools of the nodes it is on, now or once they are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dra_extender.api.meta import ObjectMeta
from dra_extender.api.partial import PartialAllocation
from dra_extender.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.uses import EVERY_DEVICE, PoolID

_MARK = " (unreadable)"
"""No name of an object has a space in it."""


class Placeholders:
    """By `namespace/name` of the claims they stand for. `pools_of`: the pools that are of one node alone."""

    def __init__(self, ledger: Ledger, pools_of: Callable[[str], Iterable[PoolID]]) -> None:
        self._ledger = ledger
        self._pools_of = pools_of
        self._claims: dict[str, ResourceClaim] = {}
        self._partial: dict[str, PartialAllocation] = {}

    @property
    def complete(self) -> int:
        """How many of them hold devices that are all known."""
        return sum(self._partial[key].complete for key in self._claims)

    @property
    def incomplete(self) -> int:
        """How many of them may hold devices that cannot be told."""
        return sum(not partial.complete for partial in self._partial.values())

    def put(self, key: str, partial: PartialAllocation) -> bool:
        """The claim holds this, and perhaps more. True when devices became free."""
        results = [*partial.results, *self._withheld(partial)]
        before = self._claims.get(key)
        if not partial.complete and before is not None and before.allocation is not None:
            results += before.allocation.devices.results
        known = self._ledger.by_key(key)
        counted = known.allocation.devices.results if known is not None and known.allocation is not None else ()
        ids = {result.id for result in counted}
        left = tuple({result.id: result for result in results if result.id not in ids}.values())
        self._partial[key] = partial
        if not left:
            return self._drop(key)
        namespace, _, name = key.rpartition("/")
        meta = ObjectMeta(name=name + _MARK, namespace=namespace, uid=(partial.uid or key) + _MARK)
        status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=left)))
        claim = self._claims[key] = ResourceClaim(metadata=meta, status=status)
        return self._ledger.observe(claim, watched=True)

    def drop(self, key: str) -> bool:
        """The claim can be read, or is gone. True when devices became free."""
        self._partial.pop(key, None)
        return self._drop(key)

    def published(self, node: str) -> None:
        """Something of the node's own has been published."""
        for key, partial in list(self._partial.items()):
            if node in partial.nodes:
                self.put(key, partial)

    def _withheld(self, partial: PartialAllocation) -> Iterator[DeviceRequestAllocationResult]:
        pools = dict.fromkeys([*partial.pools, *(pool for node in partial.nodes for pool in self._pools_of(node))])
        for driver, pool in pools:
            yield DeviceRequestAllocationResult("", driver, pool, EVERY_DEVICE)

    def _drop(self, key: str) -> bool:
        claim = self._claims.pop(key, None)
        return claim is not None and self._ledger.forget(claim.metadata.namespace, claim.metadata.name, "")


def is_placeholder(key: str) -> bool:
    """Whether nobody made a claim of this `namespace/name`."""
    return key.endswith(_MARK)
