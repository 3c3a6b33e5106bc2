"""A pod's claims prepared for the search: conditions that do not depend on a node are checked once.

Promises: `prepare` reports the first defect of the claims that makes every node fail, in the order of claims and
requests; the result is immutable and serves any number of nodes. Equal requests share a filter.

Rules: Kubernetes 1.36, structured/internal/incubating/allocator_incubating.go (validateDeviceRequest).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple
from weakref import ref

import msgspec
from cachetools import LRUCache

from dra_extender.allocation.constraints import Values
from dra_extender.allocation.plan import Failure
from dra_extender.api.features import FeatureGates
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    MAX_ALTERNATIVES,
    MAX_RESULTS,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    RequestedDevices,
    ResourceClaim,
)
from dra_extender.cel import Programs, remembered_bytes
from dra_extender.devices.content import Interner
from dra_extender.devices.models import REMEMBERED
from dra_extender.limits import TOLERATIONS_OF_REQUEST

REMEMBERED_BYTES: Final = 2**26
"""What unused filters may keep, with their compiled selectors."""

REQUEST: Final = 10
"""Units of work that making a request ready costs, or an alternative of it."""

CLAIM: Final = 5
"""Units of work that a claim costs on a node, without its requests."""
CONFIGURATIONS_PER_UNIT: Final = 2

MOST_FILTERS: Final = 2**13
"""Of one pod's claims, for which there is room: 32 claims with all alternatives that requests may have."""

FILTER_BYTES: Final = 2**13
"""What a filter counts for at least."""
CONDITION_BYTES: Final = 256
"""What a toleration or a requested capacity counts for. Making it ready costs a unit."""

_NO_CAPACITY: Final[Mapping[str, Quantity]] = {}


@dataclass(slots=True, weakref_slot=True, eq=False)
class DeviceFilter:
    """The conditions of one request on single devices; requests with equal conditions share it.

    `class_selectors` and `selectors` are expressions. Equal filters of one `Filters` are one object. Objects that may
    live longer remember answers by its `key`. `begun` has the selectors that are compiled so far, and `compiled` has
    them when all are compiled. `reads`: what each expression reads, and by None what all of them read together. So a
    turn of a call continues where the previous turn stopped. `signatures` is made from all reads. `answers`: the
    answers of the filter by signature.

    `programs` remembers compiled selectors.

    `room`: how many answers a device remembers at least, for claims with this filter and others. `size`: how many bytes
    it counts for: at least four filters are remembered, however large they are.
    """

    class_selectors: tuple[str, ...]
    selectors: tuple[str, ...]
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, Quantity]
    features: FeatureGates
    _owner: ref[Filters]
    programs: Programs
    key: Hashable = field(default_factory=object)
    compiled: Any = None
    begun: dict[Any, Any] = field(default_factory=dict)
    reads: dict[str | None, Any] = field(default_factory=dict)
    signatures: Any = None
    answers: dict[Any, Any] = field(default_factory=dict)
    room: int = REMEMBERED
    size: int = field(init=False)

    def __post_init__(self) -> None:
        kept = FILTER_BYTES + CONDITION_BYTES * (len(self.tolerations) + len(self.capacity))
        compiled = sum(map(remembered_bytes, (*self.class_selectors, *self.selectors)))
        self.size = min(kept + compiled, REMEMBERED_BYTES // 4)

    def keep(self) -> None:
        """Before its selectors are compiled. They are given up when too many filters have compiled selectors."""
        owner = self._owner()
        if owner is not None:
            owner.compiled[self] = self


class _CompiledFilters(LRUCache[DeviceFilter, DeviceFilter]):
    def popitem(self) -> tuple[DeviceFilter, DeviceFilter]:
        filter, _ = super().popitem()
        filter.compiled = None
        filter.begun = {}
        return filter, filter


class Filters:
    """One filter for equal requests: remembered for a while when no object holds it, and the same one for as long as
    one does.
    """

    def __init__(self, most: int = REMEMBERED_BYTES) -> None:
        self._recent: LRUCache[Hashable, DeviceFilter] = LRUCache(most, getsizeof=lambda filter: filter.size)
        self._used = Interner[DeviceFilter]()
        self.programs = Programs()
        self.compiled = _CompiledFilters(most, getsizeof=lambda filter: filter.size)

    def clear(self) -> None:
        """Forget all filters that no object holds, and all compiled selectors."""
        self._recent.clear()
        self.compiled.clear()
        self.programs = Programs()

    def of(self, device_class: DeviceClass, source: RequestedDevices, features: FeatureGates) -> DeviceFilter:
        """The filter of a request for devices of the class."""
        selectors = _expressions(device_class.spec.selectors), _expressions(source.selectors)
        capacity = source.capacity.requests if source.capacity is not None else _NO_CAPACITY
        exact = tuple(sorted([(name, amount.text, amount) for name, amount in capacity.items()]))
        content = *selectors, source.tolerations, exact, features
        found = self._recent.get(content)
        if found is None:
            amounts = {name: amount for name, _, amount in exact} or _NO_CAPACITY
            made = *selectors, source.tolerations, amounts, features, ref(self), self.programs
            found = self._recent[content] = self._used.of(content, DeviceFilter, *made)
        return found


class Ask:
    """One way to satisfy a request: the exact request itself or one of its alternatives.

    `name` is what results carry (`parent/alternative`), `label` what errors call it. `count` means nothing when `all`.
    `covered` are the indices of the claim's constraints that cover its devices; `derived`: expressions by attribute.
    """

    __slots__ = (
        "admin", "admin_access", "all", "class_name", "count", "covered", "derived", "filter", "label", "name",
        "parent", "tolerations",
    )  # fmt: skip

    def __init__(
        self,
        request: str,
        source: RequestedDevices,
        constraints: Sequence[DeviceConstraint],
        filter: DeviceFilter,
    ) -> None:
        alternative = source.name if isinstance(source, DeviceSubRequest) else ""
        self.parent = request
        self.label = alternative or request
        self.name = f"{request}/{alternative}" if alternative else request
        self.class_name = source.device_class_name
        self.all = source.allocation_mode == "All"
        self.count = source.count
        self.admin_access = source.admin_access if isinstance(source, ExactDeviceRequest) else None
        self.admin = self.admin_access is True
        self.tolerations = source.tolerations
        self.derived = {item.name: item.expression for item in source.derived_attributes}
        names = {self.parent, self.name}
        self.covered = tuple(
            index
            for index, constraint in enumerate(constraints)
            if not constraint.requests or not names.isdisjoint(constraint.requests)
        )
        self.filter = filter


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.cel.expression if selector.cel is not None else "" for selector in selectors)


class PreparedRequest(msgspec.Struct, frozen=True, eq=False):
    """A request of a claim: its alternatives in order, one for an exact request. `index` counts over all claims."""

    index: int
    claim: int
    name: str
    asks: tuple[Ask, ...]
    prioritized: bool


class PreparedClaim:
    """A claim with its requests and the classes they name."""

    def __init__(
        self, claim: ResourceClaim, requests: tuple[PreparedRequest, ...], classes: Mapping[str, DeviceClass]
    ) -> None:
        self.claim = claim
        self.label = f"{claim.metadata.namespace}/{claim.metadata.name}"
        self.requests = requests
        self.constraints = claim.spec.devices.constraints
        self.classes = classes


Ready = tuple[tuple[PreparedRequest, ...], Mapping[str, DeviceClass]]
"""The prepared parts of a claim, for all claims with an equal spec; they do not reference the claim."""


class PreparedClaims:
    """All claims of a pod in order; `requests`: of all claims. Devices must have the `values`. `units`: as `CLAIM`."""

    def __init__(self, claims: tuple[PreparedClaim, ...], features: FeatureGates, values: Values = ()) -> None:
        self.claims = claims
        self.values = values
        self.features = features
        self.requests = tuple(request for claim in claims for request in claim.requests)
        configurations = (len(each.claim.spec.devices.config) for each in claims)
        self.units = sum([CLAIM + number // CONFIGURATIONS_PER_UNIT for number in configurations])


class _Invalid(Exception):
    """What is wrong with a claim; the text is the fatal error."""


def prepare(
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    features: FeatureGates,
    filters: Filters | None = None,
    values: Values = (),
    *,
    begun: list[Ready] | None = None,
    spend: Callable[[int], object] = lambda units: None,
) -> PreparedClaims | Failure:
    """Check the claims and look up their classes. `classes` are by name; `filters` are shared with other claims. The
    devices have to have the `values`.

    `begun`: the leading claims, or equal ones, that an earlier turn has prepared; the others are appended to it.
    `spend` is called with the units of work before each claim is prepared, and may raise.
    """
    prepared = [] if begun is None else begun
    known = filters if filters is not None else Filters()
    index = sum(len(requests) for requests, _ in prepared)
    try:
        for claim in claims[len(prepared) :]:
            spend(CLAIM + sum(map(_units_to_prepare, claim.spec.devices.requests)))
            ready = _claim(claim, len(prepared), index, _Context(classes, features, known))
            index += len(ready[0])
            prepared.append(ready)
    except _Invalid as problem:
        return Failure(str(problem))
    ready_claims = (PreparedClaim(claim, *ready) for claim, ready in zip(claims, prepared, strict=True))
    found = PreparedClaims(tuple(ready_claims), features, values)
    if len(found.requests) * MAX_ALTERNATIVES > REMEMBERED // 2:
        used = {ask.filter for request in found.requests for ask in request.asks}
        for filter in used:  # twice as much as the claims need, so that forgotten answers are soon complete again
            filter.room = max(filter.room, 2 * min(len(used), MOST_FILTERS))
    return found


def _sources(request: DeviceRequest) -> Sequence[RequestedDevices]:
    return request.first_available or ((request.exactly,) if request.exactly is not None else ())


def _units_to_prepare(request: DeviceRequest) -> int:
    asks = ((each.tolerations, each.capacity.requests if each.capacity else ()) for each in _sources(request))
    return REQUEST * (1 + len(request.first_available)) + sum(map(len, chain.from_iterable(asks)))


class _Context(NamedTuple):
    """What requests are checked against."""

    classes: Mapping[str, DeviceClass]
    features: FeatureGates
    filters: Filters


def _claim(claim: ResourceClaim, number: int, first: int, context: _Context) -> Ready:
    label = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
    spec = claim.spec.devices
    used: dict[str, DeviceClass] = {}
    requests: list[PreparedRequest] = []
    least = 0
    for request in spec.requests:
        asks = _asks(label, request, spec.constraints, context)
        need = min(0 if ask.all else ask.count for ask in asks)
        known = context.features.is_1_37 and not any(ask.all for each in requests for ask in each.asks)
        if known and (problem := adding_problem(request.name, need, least)):
            raise _Invalid(f"{label}{problem}")
        least += need
        for ask in asks:
            used[ask.class_name] = context.classes[ask.class_name]
        requests.append(
            PreparedRequest(first + len(requests), number, request.name, asks, bool(request.first_available))
        )
    if not context.features.is_1_37 and (problem := limit_problem(least)):
        raise _Invalid(f"{label}{problem}")
    for position, constraint in enumerate(spec.constraints):
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            raise _Invalid(f"{label}, constraint #{position}: empty constraint (unsupported constraint type?)")
    return tuple(requests), used


def adding_problem(request: str, need: int, before: int) -> str:
    """As `limit_problem`, for one request, in the words of Kubernetes 1.37. `before`: devices of earlier requests."""
    if need + before <= MAX_RESULTS:
        return ""
    return (
        f", request {request}: adding {need} devices exceeds the claim limit of {MAX_RESULTS}, "
        f"with {before} already accounted for"
    )


def limit_problem(least: int) -> str:
    """What follows the claim's name in the error when `least` devices are too many for it."""
    problem = f": number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
    return problem if least > MAX_RESULTS else ""


def _asks(
    label: str, request: DeviceRequest, constraints: Sequence[DeviceConstraint], context: _Context
) -> tuple[Ask, ...]:
    where = f"{label}, request {request.name}"
    if request.first_available and not context.features.DRAPrioritizedList:
        raise _Invalid(f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled")
    sources = _sources(request)
    if not sources:
        raise _Invalid(f"{where}: has neither exactly nor firstAvailable (unsupported request type?)")
    if not context.features.DRAConsumableCapacity:
        for each in sources:
            if each.capacity is not None:
                name = f"subrequest {each.name}" if isinstance(each, DeviceSubRequest) else f"request {request.name}"
                why = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
                raise _Invalid(f"{label}, {name}: {why}")
    return tuple(_ask(label, request.name, source, constraints, context) for source in sources)


def _ask(
    label: str,
    request: str,
    source: RequestedDevices,
    constraints: Sequence[DeviceConstraint],
    context: _Context,
) -> Ask:
    """Errors of an alternative call it by its own name only, as upstream does."""
    where = f"{label}, request {source.name if isinstance(source, DeviceSubRequest) else request}"
    if source.derived_attributes and not context.features.DRADerivedAttributes:
        raise _Invalid(f"{where}: cannot handle request with derived attributes, the feature is disabled")
    if len(source.tolerations) > TOLERATIONS_OF_REQUEST:
        raise _Invalid(f"{where}: has more than {TOLERATIONS_OF_REQUEST} tolerations")
    for index, selector in enumerate(source.selectors):
        if selector.cel is None:
            raise _Invalid(f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)")
    asked = isinstance(source, ExactDeviceRequest) and source.admin_access is not None
    if asked and not context.features.DRAAdminAccess:
        raise _Invalid(f"{where}: admin access is requested, but the feature is disabled")
    if not source.device_class_name:
        raise _Invalid(f"{where}: missing device class name (unsupported request type?)")
    device_class = context.classes.get(source.device_class_name)
    if device_class is None:
        name = source.device_class_name
        missing = f'deviceclass.resource.k8s.io "{name}" not found'
        raise _Invalid(f"{where}: could not retrieve device class {name}: {missing}")
    if source.allocation_mode not in ("ExactCount", "All"):
        raise _Invalid(f"{where}: unsupported count mode {source.allocation_mode}")
    return Ask(request, source, constraints, context.filters.of(device_class, source, context.features))
