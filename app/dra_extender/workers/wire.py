"""Questions and answers as bytes: one frame each, behind its length. A worker reads pickles, and only its parent writes
to it; the parent reads JSON, because a worker may have gone wrong.

Promises: what arrives is the same request, down to how an amount was written; only content that decides is sent (no
opaque parameters). What is known of selectors goes with a search, so that no worker evaluates them again. Encoding a
request takes one turn of the event loop per claim and filter of a search. `decode` functions raise `WireError` for
anything that is not theirs.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Final

import msgspec

from dra_extender.allocation.constraints import Values
from dra_extender.allocation.plan import Failure
from dra_extender.allocation.requests import DeviceFilter, Filters, PreparedClaim, PreparedClaims, prepare
from dra_extender.allocation.selection import Suitability
from dra_extender.allocation.workerrequests import (
    CompileRequest,
    EvaluateRequest,
    SearchRequest,
    TimedReply,
    WorkerRequest,
)
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import DeviceClaim, DeviceClass, DeviceClassSpec, ResourceClaim, ResourceClaimSpec
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.pools import NodeView
from dra_extender.devices.usage import PoolHoldings, PoolID

HEADER: Final = struct.Struct(">I")
MOST: Final = 64 * 2**20
"""Bytes of a frame."""
DEVICES_OF_PART: Final = 256
"""How many devices are encoded in one turn."""


class WireError(ValueError):
    """Bytes that are not a message, or a message that is too long."""


class SearchWire(msgspec.Struct, frozen=True, eq=False):
    """A SearchRequest. `filters`: how many different ones it has."""

    claims: tuple[ResourceClaim, ...]
    classes: Mapping[str, DeviceClass]
    features: FeatureGates
    values: Values
    view: NodeView
    held: Mapping[PoolID, PoolHoldings]
    filters: int


_UNREADABLE: Final = (pickle.UnpicklingError, EOFError, ImportError, AttributeError, LookupError, TypeError, ValueError)
"""What unpickling raises for bytes that are not a pickle of this version."""

_replies: Final = msgspec.json.Decoder(TimedReply)


def frame(payload: bytes) -> bytes:
    """The bytes with their length. Raises WireError."""
    if len(payload) > MOST:
        raise WireError(f"{len(payload)} bytes are more than {MOST}")
    return HEADER.pack(len(payload)) + payload


def length(header: bytes) -> int:
    """How many bytes follow. Raises WireError."""
    (found,) = HEADER.unpack(header)
    if found > MOST:
        raise WireError(f"{found} bytes are more than {MOST}")
    return int(found)


async def encode_request(request: WorkerRequest) -> tuple[bytes, float]:
    """Pickles that share their objects, made in turns, and the CPU seconds that they took. They end soon after `MOST`
    bytes, which `frame` refuses.
    """
    stream, seconds = BytesIO(), 0.0
    pickler = pickle.Pickler(stream)
    parts = _parts(request) if isinstance(request, SearchRequest) else iter((request,))
    while stream.tell() <= MOST:
        started = time.thread_time()
        part = next(parts, None)
        if part is None:
            break
        pickler.dump(part)
        seconds += time.thread_time() - started
        await asyncio.sleep(0)
    return stream.getvalue(), seconds


def encode_reply(reply: TimedReply) -> bytes:
    """Raises WireError."""
    return frame(msgspec.json.encode(reply))


def decode_request(payload: bytes, filters: Filters | None = None) -> WorkerRequest:
    """`filters`: those of earlier requests, with their compiled selectors. Raises WireError."""
    stream = BytesIO(payload)
    unpickler = pickle.Unpickler(stream)
    try:
        found = unpickler.load()
        while isinstance(found, tuple | ResourceClaim):  # devices and claims of the search that follows
            found = unpickler.load()
        suited = [unpickler.load() for _ in range(found.filters)] if isinstance(found, SearchWire) else []
    except _UNREADABLE as problem:
        raise WireError(str(problem)) from None
    if isinstance(found, CompileRequest | EvaluateRequest):
        return found
    if not isinstance(found, SearchWire):
        raise WireError(f"a {type(found).__name__} is no request")
    return _search(found, suited, filters)


def decode_reply(payload: bytes) -> TimedReply:
    """Raises WireError."""
    try:
        return _replies.decode(payload)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as problem:
        raise WireError(str(problem)) from None


def _parts(request: SearchRequest) -> Iterator[object]:
    """Tuples of devices, the claims, the search, and what each of its filters says of the models: None where it is not
    known.
    """
    prepared, view = request.prepared, request.view
    for first in range(0, len(view.devices), DEVICES_OF_PART):
        yield tuple(view.devices[first : first + DEVICES_OF_PART])
    claims = tuple(_claim(claim) for claim in prepared.claims)
    yield from claims
    filters = _filters(prepared)
    classes = {name: found.spec.selectors for claim in prepared.claims for name, found in claim.classes.items()}
    yield SearchWire(
        claims=claims,
        classes={name: DeviceClass(ObjectMeta(name=name), DeviceClassSpec(found)) for name, found in classes.items()},
        features=prepared.features,
        values=prepared.values,
        view=view,
        held=request.held,
        filters=len(filters),
    )
    models = _models(view)
    for filter in filters:
        yield [model.memo.get(filter.key) for model in models]


def _filters(prepared: PreparedClaims) -> Sequence[DeviceFilter]:
    """All different filters, in the order of the requests."""
    return list(dict.fromkeys(ask.filter for request in prepared.requests for ask in request.asks))


def _models(view: NodeView) -> Sequence[DeviceModel]:
    return list(dict.fromkeys(device.model for device in view.devices))


def _claim(found: PreparedClaim) -> ResourceClaim:
    meta, devices = found.claim.metadata, found.claim.spec.devices
    content = DeviceClaim(requests=devices.requests, constraints=devices.constraints)
    return ResourceClaim(ObjectMeta(name=meta.name, namespace=meta.namespace), ResourceClaimSpec(content))


def _search(found: SearchWire, known: Sequence[Sequence[Suitability | None]], filters: Filters | None) -> SearchRequest:
    prepared = prepare(found.claims, found.classes, found.features, filters, found.values)
    if isinstance(prepared, Failure):
        raise WireError(prepared.error)
    models = _models(found.view)
    for filter, suited in zip(_filters(prepared), known, strict=True):
        for model, suitability in zip(models, suited, strict=True):
            if suitability is not None:
                model.remember(filter.key, suitability)
    return SearchRequest(prepared, found.view, found.held)
