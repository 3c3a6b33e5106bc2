"""What claims ask for, by content: claims that ask for the same share what was found out for one of them.

Promises: a content is made once per version of a claim, remembered for as long as that lives, and charged by its size:
a pod with many large claims takes as many turns as they need, and no more in later calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from weakref import ref

from dra_extender.allocation.budget import UNLIMITED, WorkBudget
from dra_extender.api.resource import ResourceClaim, ResourceClaimSpec
from dra_extender.devices.content import encode, shortened

BYTES_PER_UNIT: Final = 256

_known: dict[int, tuple[ref[ResourceClaimSpec], bytes]] = {}
"""By identity: to compare specs costs what their contents cost."""


def contents(claims: Iterable[ResourceClaim], budget: WorkBudget = UNLIMITED) -> tuple[bytes, ...]:
    """The content of each claim. Raises what the budget does."""
    return tuple(_content(claim.spec, budget) for claim in claims)


def _content(spec: ResourceClaimSpec, budget: WorkBudget) -> bytes:
    number = id(spec)
    known = _known.get(number)
    if known is not None and known[0]() is spec:
        return known[1]
    budget.spend(0)
    encoded = encode(spec)
    found = shortened(encoded)
    _known[number] = ref(spec, lambda _: _known.pop(number, None)), found
    budget.spend(len(encoded) // BYTES_PER_UNIT)
    return found
