"""Objects that exist and cannot be decoded.

`UndecodableObjects` promises: each is reported as a problem. An undecodable claim may hold devices: its last decodable
version stays in the ledger, and the devices that can be read of its allocation are added as a placeholder allocation,
whose claim has a name that no pod can use. If a device of a pool cannot be identified, no device of that pool is
offered. If the pool cannot be identified, no device is offered of the own pools of the allocation's nodes, also of
those that are published later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from dra_extender.api.events import Undecodable
from dra_extender.api.meta import ObjectKey, ObjectMeta
from dra_extender.api.partial import PartialAllocation
from dra_extender.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.usage import EVERY_DEVICE, PoolID
from dra_extender.devices.validity import ObjectProblem

_MARK: Final = " (unreadable)"
"""No name of an object has a space in it."""

_ADVICE: Final[Mapping[str, str]] = {
    "ResourceSlice": "its devices are left out: the driver that publishes it has to correct or delete it",
    "DeviceClass": "claims that name it are refused: correct or delete it",
    "ResourceClaim": "pods that need it wait, and it keeps the devices that can be read of it: correct or delete it",
    "DeviceTaintRule": "its taints do not apply: correct or delete it",
    "Node": "pods with claims are not placed there: correct it",
    "Pod": "its last readable version still counts: correct or delete it",
    "PodDisruptionBudget": "its last readable version still counts: correct or delete it",
}


class UndecodableObjects(dict[ObjectKey, Undecodable]):
    """The last event of each object. `pools_of`: the pools with slices of the node's own."""

    def __init__(self, ledger: Ledger, pools_of: Callable[[str], Iterable[PoolID]]) -> None:
        super().__init__()
        self._ledger = ledger
        self._pools_of = pools_of
        self._placeholders: dict[ObjectKey, ResourceClaim] = {}

    @property
    def complete(self) -> int:
        """The number of claims whose devices are all known."""
        return sum(partial.complete for key, partial in self._partials() if key in self._placeholders)

    @property
    def incomplete(self) -> int:
        """The number of claims that may hold devices that cannot be identified."""
        return sum(not partial.complete for _, partial in self._partials())

    @property
    def problems(self) -> Iterator[ObjectProblem]:
        return (
            ObjectProblem(key, f"cannot be read: {event.problem}{_withheld(event.partial)}", _ADVICE[key.kind])
            for key, event in self.items()
        )

    def put(self, event: Undecodable) -> bool:
        """True when devices became free."""
        self[event.key] = event
        return self._hold(event.key, event.partial) if event.partial is not None else False

    def drop(self, key: ObjectKey) -> tuple[bool, bool]:
        """The object can be decoded, or is gone. Returns whether it was undecodable, and whether it freed devices."""
        return self.pop(key, None) is not None, self._release(key)

    def published(self, node: str) -> None:
        """The node has published a slice."""
        for key, partial in list(self._partials()):
            if node in partial.nodes:
                self._hold(key, partial)

    def _partials(self) -> Iterator[tuple[ObjectKey, PartialAllocation]]:
        return ((key, event.partial) for key, event in self.items() if event.partial is not None)

    def _hold(self, key: ObjectKey, partial: PartialAllocation) -> bool:
        """Put a placeholder in the ledger for the devices that the last readable version does not have."""
        pools = dict.fromkeys([*partial.pools, *chain.from_iterable(map(self._pools_of, partial.nodes))])
        results = [*partial.results, *(DeviceRequestAllocationResult("", *pool, EVERY_DEVICE) for pool in pools)]
        if not partial.complete:
            results += _results(self._placeholders.get(key))
        readable = {result.id for result in _results(self._ledger.by_key(key.name))}
        left = tuple({result.id: result for result in results if result.id not in readable}.values())
        if not left:
            return self._release(key)
        namespace, _, name = key.name.rpartition("/")
        meta = ObjectMeta(name=name + _MARK, namespace=namespace, uid=(partial.uid or key.name) + _MARK)
        status = ResourceClaimStatus(allocation=AllocationResult(devices=DeviceAllocationResult(results=left)))
        claim = self._placeholders[key] = ResourceClaim(metadata=meta, status=status)
        return self._ledger.observe(claim, watched=True)

    def _release(self, key: ObjectKey) -> bool:
        claim = self._placeholders.pop(key, None)
        return claim is not None and self._ledger.forget(claim.metadata.key)


def is_placeholder(key: str) -> bool:
    """True when `namespace/name` is that of a placeholder."""
    return key.endswith(_MARK)


def _results(claim: ResourceClaim | None) -> tuple[DeviceRequestAllocationResult, ...]:
    return claim.allocation.devices.results if claim is not None and claim.allocation is not None else ()


def _withheld(partial: PartialAllocation | None) -> str:
    """The part of a problem about devices that cannot be identified."""
    if partial is None or partial.complete:
        return ""
    pools = (f"pool {'/'.join(pool)}" for pool in partial.pools)
    withheld = ", ".join(chain(pools, (f"the pools of node {name}" for name in partial.nodes)))
    if withheld:
        return f"; some of its devices cannot be identified, so nothing is offered of {withheld}"
    return "; its allocation cannot be read, so its devices may be allocated a second time"
