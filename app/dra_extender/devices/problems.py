"""What is wrong with an object of the cluster, and what to do: found before a pod is refused for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dra_extender.api.meta import ObjectKey


class Problem(msgspec.Struct, frozen=True, order=True):
    """`what` is wrong with the object; `advice` says what to do."""

    object: ObjectKey
    what: str
    advice: str


_UNREADABLE: Final[Mapping[str, str]] = {
    "ResourceSlice": "its devices are left out: the driver that publishes it has to correct or delete it",
    "DeviceClass": "claims that name it are refused: correct or delete it",
    "ResourceClaim": "pods that need it wait, and it keeps the devices that can be read of it: correct or delete it",
    "DeviceTaintRule": "its taints do not apply: correct or delete it",
    "Node": "pods with claims are not placed there: correct it",
    "Pod": "what could be read of it last still counts: correct or delete it",
}


def unreadable(key: ObjectKey, why: str) -> Problem:
    """An object that cannot be read, of one of the kinds that are watched."""
    return Problem(key, f"cannot be read: {why}", _UNREADABLE[key.kind])
