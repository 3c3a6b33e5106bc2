"""Who holds the devices of claims that cannot be read.

A claim that cannot be decoded must not be decided on, and may hold devices all the same: its last readable version is
older than its allocation, or there is none. `StandIns` promises: what could be salvaged of its allocation is in the
ledger, in the name of a claim that no pod can name; the last version that could be read keeps what it holds. Of a pool
of which it has a device that cannot be told nothing is offered; where not even the pool can be told, nothing of the
pools of the nodes it is on, now or once they are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from dra_extender.api.salvage import Salvaged
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.uses import EVERY_DEVICE, PoolID

_MARK = " (unreadable)"
"""No name of an object has a space in it."""


class StandIns:
    """By `namespace/name` of the claims they stand for. `pools_of`: the pools that are of one node alone."""

    def __init__(self, ledger: Ledger, pools_of: Callable[[str], Iterable[PoolID]]) -> None:
        self._ledger = ledger
        self._pools_of = pools_of
        self._claims: dict[str, ResourceClaim] = {}
        self._salvaged: dict[str, Salvaged] = {}

    @property
    def told(self) -> int:
        """How many of them hold devices that are all known."""
        return sum(self._salvaged[key].whole for key in self._claims)

    @property
    def untold(self) -> int:
        """How many of them may hold devices that cannot be told."""
        return sum(not salvaged.whole for salvaged in self._salvaged.values())

    def put(self, key: str, salvaged: Salvaged) -> bool:
        """The claim holds this, and perhaps more. True when devices became free."""
        results = [*salvaged.results, *self._withheld(salvaged)]
        before = self._claims.get(key)
        if not salvaged.whole and before is not None and before.allocation is not None:
            results += before.allocation.devices.results
        known = self._ledger.by_key(key)
        counted = known.allocation.devices.results if known is not None and known.allocation is not None else ()
        ids = {result.id for result in counted}
        left = tuple({result.id: result for result in results if result.id not in ids}.values())
        self._salvaged[key] = salvaged
        if not left:
            return self._drop(key)
        namespace, _, name = key.rpartition("/")
        meta = ObjectMeta(name=name + _MARK, namespace=namespace, uid=(salvaged.uid or key) + _MARK)
        status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=left)))
        claim = self._claims[key] = ResourceClaim(metadata=meta, status=status)
        return self._ledger.observe(claim, watched=True)

    def drop(self, key: str) -> bool:
        """The claim can be read, or is gone. True when devices became free."""
        self._salvaged.pop(key, None)
        return self._drop(key)

    def published(self, node: str) -> None:
        """Something of the node's own has been published."""
        for key, salvaged in list(self._salvaged.items()):
            if node in salvaged.nodes:
                self.put(key, salvaged)

    def _withheld(self, salvaged: Salvaged) -> Iterator[DeviceRequestAllocationResult]:
        pools = dict.fromkeys([*salvaged.pools, *(pool for node in salvaged.nodes for pool in self._pools_of(node))])
        for driver, pool in pools:
            yield DeviceRequestAllocationResult("", driver, pool, EVERY_DEVICE)

    def _drop(self, key: str) -> bool:
        claim = self._claims.pop(key, None)
        return claim is not None and self._ledger.forget(claim.metadata.namespace, claim.metadata.name, "")


def is_stand_in(key: str) -> bool:
    """Whether nobody made a claim of this `namespace/name`."""
    return key.endswith(_MARK)
