"""Pods that are to be expected: a workload that is known before it comes.

Promises: pure. Each kind of pods counts as so many that were seen, as soon as the device classes it asks for are known.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dra_extender.api.resource import ResourceClaim
from dra_extender.placement.load import Load


class ExpectedPod(msgspec.Struct, frozen=True):
    """`count` pods that ask for this load and these claims."""

    count: int
    load: Load
    claims: tuple[ResourceClaim, ...]


class Expected(msgspec.Struct, frozen=True):
    """`only`: the pods that come are not counted beside these."""

    pods: tuple[ExpectedPod, ...] = ()
    only: bool = False


NOBODY: Final = Expected()
