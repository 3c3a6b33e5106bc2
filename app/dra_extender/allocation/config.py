"""The configuration that goes with an allocation.

Promises: class configuration in the order in which classes are met, each entry naming the requests it is for; claim
configuration once per entry with the claim's own list of requests, left out when none of them is part of the answer
(upstream repeats it for every request, which can exceed the API's limit).

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go, with that defect corrected.
"""

from __future__ import annotations

from collections.abc import Sequence

from dra_extender.allocation.requests import Ask, PreparedClaim
from dra_extender.api.resource import DeviceAllocationConfiguration


def configuration(claim: PreparedClaim, chosen: Sequence[Ask]) -> tuple[DeviceAllocationConfiguration, ...]:
    """All entries for a claim; `chosen` is the ask of each of its requests, in order."""
    return (*_of_classes(claim, chosen), *_of_claim(claim, chosen))


def _of_classes(claim: PreparedClaim, chosen: Sequence[Ask]) -> list[DeviceAllocationConfiguration]:
    names: dict[str, list[str]] = {}
    for ask in chosen:
        names.setdefault(ask.class_name, []).append(ask.name)
    return [
        DeviceAllocationConfiguration("FromClass", tuple(requests), entry.opaque)
        for name, requests in names.items()
        for entry in claim.classes[name].spec.config
    ]


def _of_claim(claim: PreparedClaim, chosen: Sequence[Ask]) -> list[DeviceAllocationConfiguration]:
    present = {name for ask in chosen for name in (ask.parent, ask.name)}
    return [
        DeviceAllocationConfiguration("FromClaim", entry.requests, entry.opaque)
        for entry in claim.claim.spec.devices.config
        if not entry.requests or not present.isdisjoint(entry.requests)
    ]
