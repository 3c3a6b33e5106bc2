"""What claims ask for, by content: claims that ask for the same share what was found out for one of them.

Promises: a content is made once per version of a claim, remembered for as long as that lives, and charged by its size:
a pod with many large claims takes as many turns as they need, and no more in later calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from weakref import ref

from dra_extender.allocation.lane import FREE, Lane
from dra_extender.api.resource import ResourceClaim, ResourceClaimSpec
from dra_extender.devices.content import encode, shortened

BYTES_PER_UNIT: Final = 256

_known: dict[int, tuple[ref[ResourceClaimSpec], bytes]] = {}
"""By identity: to compare specs costs what their contents cost."""


def contents(claims: Iterable[ResourceClaim], lane: Lane = FREE) -> tuple[bytes, ...]:
    """The content of each claim. Raises what the lane does."""
    return tuple(_content(claim.spec, lane) for claim in claims)


def _content(spec: ResourceClaimSpec, lane: Lane) -> bytes:
    number = id(spec)
    known = _known.get(number)
    if known is not None and known[0]() is spec:
        return known[1]
    lane.spend(0)
    encoded = encode(spec)
    found = shortened(encoded)
    _known[number] = ref(spec, lambda _: _known.pop(number, None)), found
    lane.spend(len(encoded) // BYTES_PER_UNIT)
    return found
