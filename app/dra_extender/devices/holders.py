"""Who has which device, for people: claims by name, with the pods they are reserved for.

Promises: pure, and as current as the ledger. A claim that is decided and not stored yet counts as a holder in flight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.devices.readonly import ReadOnlyLedger
from dra_extender.devices.usage import DeviceUse
from dra_extender.devices.uses import NOTHING


class Holder(msgspec.Struct, frozen=True):
    """A claim (namespace/name, or its UID while nobody has created it) that has a device, or with `share` the share of
    that ID and the capacity it consumes. `pods` are the names of the consumers that the claim is reserved for.
    """

    claim: str
    pods: tuple[str, ...] = ()
    in_flight: bool = False
    """Decided by a bind under way; the API server does not have it yet."""
    share: str | None = None
    consumed: Mapping[str, Quantity] = NOTHING


def holders(ledger: ReadOnlyLedger, use: DeviceUse | None) -> Iterator[Holder]:
    """Who uses a device in this way (`ReadOnlyLedger.in_use`): owners, then shares. None stands for a free device."""
    if use is None:
        return
    for uid in sorted(use.owners):
        yield _holder(ledger, uid)
    for (uid, share), consumed in sorted(use.shares.items(), key=lambda item: item[0]):
        yield msgspec.structs.replace(_holder(ledger, uid), share=share, consumed=consumed)


def _holder(ledger: ReadOnlyLedger, uid: str) -> Holder:
    claim = ledger.by_uid(uid)
    if claim is None:  # one for extended resources that is about to be created
        return Holder(claim=uid, in_flight=True)
    pods = tuple(consumer.name for consumer in claim.status.reserved_for)
    return Holder(claim=claim.metadata.key, pods=pods, in_flight=claim.allocation is None)
