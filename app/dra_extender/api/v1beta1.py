"""resource.k8s.io/v1beta1, rewritten to the layout of v1 before it is decoded (v1beta2 has the layout of v1).

Devices carry their fields under `basic`, requests carry those of an exact request directly. Everything else, opaque
parameters included, is copied as it is. Status is the same in all versions: writes need no conversion.

Rules: pkg/apis/resource/v1beta1/conversion.go, Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from dra_extender.api.decoding import UNDECODABLE, decode, decode_error
from dra_extender.api.resource import ExactDeviceRequest, ResourceClaim, ResourceSlice

Members = dict[str, Any]
"""Names and values of a JSON object; the values are msgspec.Raw, or were rewritten."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_EXACT: Final = frozenset(ExactDeviceRequest.__struct_encode_fields__)
_EMPTY: Final = frozenset((b"null", b'""', b"0", b"[]", b"{}"))


def decode_slice(data: bytes | msgspec.Raw) -> ResourceSlice:
    """Raises DecodeError."""
    return decode(ResourceSlice, _rewritten(ResourceSlice, data, _slice_spec))


def decode_claim(data: bytes | msgspec.Raw) -> ResourceClaim:
    """Raises DecodeError."""
    return decode(ResourceClaim, _rewritten(ResourceClaim, data, _claim_spec))


def _rewritten(kind: type, data: bytes | msgspec.Raw, spec: Callable[[Members], None]) -> bytes:
    try:
        members = _members.decode(data)
        _rewrite(members, "spec", _members, spec)
        return msgspec.json.encode(members)
    except UNDECODABLE as problem:
        raise decode_error(kind, data, problem) from None


def _rewrite(members: Members, name: str, decoder: msgspec.json.Decoder[Any], rewrite: Callable[[Any], None]) -> None:
    """Rewrite one value in place, if there is one."""
    if bytes(members.get(name, b"null")) != b"null":
        members[name] = decoder.decode(members[name])
        rewrite(members[name])


def _slice_spec(spec: Members) -> None:
    for name in ("nodeName", "allNodes"):
        if bytes(spec.get(name, b"")) in (b'""', b"false"):
            del spec[name]
    _rewrite(spec, "devices", _elements, _devices)


def _devices(devices: list[Members]) -> None:
    for device in devices:
        _rewrite(device, "basic", _members, partial(_lift, device))
        device.pop("basic", None)


def _lift(device: Members, basic: Members) -> None:
    device.update({**basic, **device})


def _claim_spec(spec: Members) -> None:
    _rewrite(spec, "devices", _members, lambda devices: _rewrite(devices, "requests", _elements, _requests))


def _requests(requests: list[Members]) -> None:
    for request in requests:
        flat = {name: request.pop(name) for name in _EXACT & request.keys()}
        exact = {name: value for name, value in flat.items() if bytes(value) not in _EMPTY}
        if exact:
            request["exactly"] = exact
