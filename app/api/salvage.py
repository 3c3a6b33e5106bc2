"""What an allocated claim holds, read from a claim that cannot be decoded.

Promises: every device that can be read is reported. A result of which only the device can be read counts as the whole
device: too much rather than too little. Never raises.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from app.api.decoding import DecodeError, decode
from app.api.outline import Outline, OutlineError, identity
from app.api.resource import DeviceRequestAllocationResult


class Salvaged(msgspec.Struct, frozen=True):
    """`results` of the allocation as far as they can be read; `whole` is true when these are all there are."""

    uid: str = ""
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    whole: bool = True


def salvage(data: bytes | msgspec.Raw) -> Salvaged:
    """The devices that the claim in `data` holds."""
    outline = Outline(data)
    results: list[DeviceRequestAllocationResult] = []
    whole = True
    try:
        for at in _results(outline):
            result = _result(outline, at)
            if result is None:
                whole = False
            else:
                results.append(result)
    except OutlineError:
        whole = False
    return Salvaged(identity(data).get("uid", ""), tuple(results), whole)


def _results(outline: Outline) -> Iterator[int]:
    """Where the results begin. Raises OutlineError."""
    at = 0
    for name in ("status", "allocation", "devices", "results"):
        found = next((start for key, start in outline.members(at) if key == name), None)
        if found is None or outline.data.startswith(b"null", found):
            return iter(())
        at = found
    return outline.elements(at)


def _result(outline: Outline, at: int) -> DeviceRequestAllocationResult | None:
    """One result; None when its device cannot be read. Raises OutlineError."""
    try:
        return decode(DeviceRequestAllocationResult, outline.value(at))
    except DecodeError:
        pass
    texts: dict[str, str] = {}
    for key, start in outline.members(at):
        texts[key] = outline.text(start)
    driver, pool, device = (texts.get(field, "") for field in ("driver", "pool", "device"))
    if not (driver and pool and device):
        return None
    return DeviceRequestAllocationResult(texts.get("request", ""), driver, pool, device)
