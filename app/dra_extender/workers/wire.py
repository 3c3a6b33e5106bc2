"""Questions and answers as bytes: JSON, one frame each, behind its length.

Promises: what arrives is the same request, down to how an amount was written; only content that decides is sent (no
opaque parameters). What is known of selectors goes with a search, so that no worker evaluates them again. `decode`
functions raise `WireError` for anything that is not theirs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from dra_extender.allocation.plan import Failure
from dra_extender.allocation.requests import DeviceFilter, Filters, PreparedClaim, PreparedClaims, prepare
from dra_extender.allocation.selection import Suitability
from dra_extender.allocation.workerrequests import (
    CompileRequest,
    EvaluateRequest,
    SearchRequest,
    WorkerReply,
    WorkerRequest,
)
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.quantity import Format, Quantity
from dra_extender.api.resource import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    ResourceClaim,
    ResourceClaimSpec,
)
from dra_extender.cel import CelGates, DeviceView, PublishedDevice
from dra_extender.devices.compatibility import SetGroups
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.models import Consumption, DeviceList, DeviceModel, Traits
from dra_extender.devices.nodeselection import NodeSelection
from dra_extender.devices.pools import NodeView, Pool
from dra_extender.devices.usage import PoolHoldings, PoolID

T = TypeVar("T")

HEADER: Final = struct.Struct(">I")
MOST: Final = 64 * 2**20
"""Bytes of a frame."""


class WireError(ValueError):
    """Bytes that are not a message, or a message that is too long."""


class EvaluateWire(msgspec.Struct, frozen=True, tag="evaluate"):
    """An EvaluateRequest."""

    expression: str
    gates: CelGates
    device: PublishedDevice


class PoolWire(msgspec.Struct, frozen=True):
    """A pool of a node. `devices`: name, number of the model, number of the selection. `elsewhere` and `unserved` are
    hexadecimal.
    """

    id: PoolID
    devices: tuple[tuple[str, int, int], ...]
    counters: Mapping[str, Mapping[str, int]]
    consumers: tuple[tuple[str, Consumption], ...]
    groups: tuple[tuple[str, SetGroups], ...]
    elsewhere: str
    unserved: str
    unmatchable: Mapping[int, str]
    incomplete: bool
    invalid: str
    owned: tuple[str, ...]
    shared: Mapping[str, Mapping[str, int]]


class SearchWire(msgspec.Struct, frozen=True, tag="search"):
    """A SearchRequest. `suited[f][m]` is what the f-th filter says of the m-th model, None when that is not known."""

    node: str
    claims: tuple[ResourceClaim, ...]
    classes: Mapping[str, DeviceClass]
    features: FeatureGates
    models: tuple[Traits, ...]
    selections: tuple[Device, ...]
    pools: tuple[PoolWire, ...]
    suited: tuple[tuple[Suitability | None, ...], ...]


class TimedReply(msgspec.Struct, frozen=True):
    """A reply, and the seconds of CPU time that it took."""

    reply: WorkerReply
    seconds: float


# --- bytes ------------------------------------------------------------------------------------------------------------


def _written(value: Any) -> Any:
    if isinstance(value, Quantity):
        return (str(value.nano), value.format.value, value.scale, value.fast, value.text)
    raise NotImplementedError(type(value))


def _read(kind: type, value: Any) -> Any:
    if kind is Quantity:
        nano, form, scale, fast, text = value
        return Quantity(int(nano), Format(form), scale=scale, fast=fast, text=text)
    raise NotImplementedError(kind)


_encoder: Final = msgspec.json.Encoder(enc_hook=_written)
_requests: Final = msgspec.json.Decoder(CompileRequest | EvaluateWire | SearchWire, dec_hook=_read)
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


def encode_request(request: WorkerRequest) -> bytes:
    """Raises WireError."""
    return frame(_encoder.encode(_wired(request)))


def encode_reply(reply: TimedReply) -> bytes:
    """Raises WireError."""
    return frame(_encoder.encode(reply))


def decode_request(payload: bytes, filters: Filters | None = None) -> WorkerRequest:
    """`filters`: those of earlier requests, with their compiled selectors. Raises WireError."""
    found = _decoded(_requests, payload)
    if isinstance(found, CompileRequest):
        return found
    if isinstance(found, EvaluateWire):
        return EvaluateRequest(found.expression, found.gates, DeviceView.build(found.device, found.gates))
    return _search(found, filters)


def decode_reply(payload: bytes) -> TimedReply:
    """Raises WireError."""
    return _decoded(_replies, payload)


def _decoded(decoder: msgspec.json.Decoder[T], payload: bytes) -> T:
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as problem:
        raise WireError(str(problem)) from None


def _wired(request: WorkerRequest) -> CompileRequest | EvaluateWire | SearchWire:
    if isinstance(request, CompileRequest):
        return request
    if isinstance(request, EvaluateRequest):
        return EvaluateWire(request.expression, request.gates, request.view.published)
    return _wired_search(request)


# --- searches ---------------------------------------------------------------------------------------------------------


def _wired_search(request: SearchRequest) -> SearchWire:
    prepared, view = request.prepared, request.view
    models = list(dict.fromkeys(device.model for device in view.devices))
    selections = list(dict.fromkeys(device.selection for device in view.devices))
    numbers = {model: number for number, model in enumerate(models)}
    chosen = {selection: number for number, selection in enumerate(selections)}
    return SearchWire(
        node=view.node,
        claims=tuple(_claim(claim) for claim in prepared.claims),
        classes={name: _class(found) for claim in prepared.claims for name, found in claim.classes.items()},
        features=prepared.features,
        models=tuple(model.traits for model in models),
        selections=tuple(_selection(selection) for selection in selections),
        pools=tuple(_pool(pool, numbers, chosen, request.held.get(pool.id)) for pool in view.pools),
        suited=tuple(tuple(model.memo.get(filter) for model in models) for filter in _filters(prepared)),
    )


def _filters(prepared: PreparedClaims) -> Iterator[DeviceFilter]:
    """In an order that both sides know."""
    return iter(dict.fromkeys(ask.filter for request in prepared.requests for ask in request.asks))


def _claim(found: PreparedClaim) -> ResourceClaim:
    meta, devices = found.claim.metadata, found.claim.spec.devices
    content = DeviceClaim(requests=devices.requests, constraints=devices.constraints)
    return ResourceClaim(ObjectMeta(name=meta.name, namespace=meta.namespace), ResourceClaimSpec(content))


def _class(found: DeviceClass) -> DeviceClass:
    return DeviceClass(ObjectMeta(name=found.metadata.name), DeviceClassSpec(selectors=found.spec.selectors))


def _selection(found: NodeSelection) -> Device:
    return Device(
        "",
        node_name=found.node_name or None,
        all_nodes=found.all_nodes or None,
        node_selector=found.node_selector,
    )


def _pool(
    pool: Pool,
    numbers: Mapping[DeviceModel, int],
    chosen: Mapping[NodeSelection, int],
    held: PoolHoldings | None,
) -> PoolWire:
    return PoolWire(
        id=pool.id,
        devices=tuple(
            (name, numbers[model], chosen[selection])
            for name, model, selection in zip(pool.names, pool.models, pool.selections, strict=True)
        ),
        counters=pool.counters,
        consumers=pool.consumers,
        groups=pool.groups,
        elsewhere=f"{pool.elsewhere:x}",
        unserved=f"{pool.unserved:x}",
        unmatchable=pool.unmatchable,
        incomplete=pool.incomplete,
        invalid=pool.invalid,
        owned=tuple(held.owned) if held is not None else (),
        shared=held.shared if held is not None else {},
    )


def _search(found: SearchWire, filters: Filters | None) -> SearchRequest:
    prepared = prepare(found.claims, found.classes, found.features, filters)
    if isinstance(prepared, Failure):
        raise WireError(prepared.error)
    models = [DeviceModel(traits) for traits in found.models]
    for filter, row in zip(_filters(prepared), found.suited, strict=True):
        for model, suitability in zip(models, row, strict=True):
            if suitability is not None:
                model.remember(filter, suitability)
    selections = [NodeSelection(selection) for selection in found.selections]
    view = NodeView(found.node, (_unwired_pool(pool, models, selections) for pool in found.pools))
    held = {pool.id: PoolHoldings(pool.owned, pool.shared) for pool in found.pools if pool.owned or pool.shared}
    return SearchRequest(prepared, view, held, NodeHoldings(view, held))


def _unwired_pool(found: PoolWire, models: Sequence[DeviceModel], selections: Sequence[NodeSelection]) -> Pool:
    devices = tuple(Device(name) for name, _, _ in found.devices)
    return Pool(
        found.id,
        (DeviceList(devices, tuple(models[model] for _, model, _ in found.devices)),),
        tuple(selections[selection] for _, _, selection in found.devices),
        counters=found.counters,
        consumers=found.consumers,
        groups=found.groups,
        elsewhere=int(found.elsewhere, 16),
        unserved=int(found.unserved, 16),
        unmatchable=found.unmatchable,
        incomplete=found.incomplete,
        invalid=found.invalid,
    )
