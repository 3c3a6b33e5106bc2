"""Signatures: comparable values of everything that a decision reads of claims, devices and pools.

Promises
- A signature is made for the reads of some selectors and constraints. Devices with equal attribute signatures get the
  same answers from these selectors and constraints. All their traits are equal, except for ordinary attributes that
  nothing reads. So a serial number does not make every device different.
- Pools whose devices have equal signatures share one `PoolSignature`. Pools that no node sees have no signature.
- The signature of a claim is made once per version of the claim, charged by its size, and kept as long as the version.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from dra_extender.allocation.budget import UNLIMITED, WorkBudget, ask_all
from dra_extender.allocation.requests import DeviceFilter
from dra_extender.allocation.selectors import compiled
from dra_extender.allocation.workerrequests import CompileReply
from dra_extender.api.resource import DeviceAttribute, ResourceClaim, ResourceClaimSpec
from dra_extender.cel import ReadSet
from dra_extender.devices.content import WeakIdentityDict, encode, shortened
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.nodes import SeenPool
from dra_extender.devices.pools import Pool

BYTES_PER_UNIT: Final = 256

AttributeReads = frozenset[tuple[str, str]] | None
"""(domain, id) of the attributes that are read, ("*", domain) where only the domain's existence is; None: all."""

DOMAIN: Final = "*"

FEW_VALUES: Final = 256
SHARING: Final = 4
"""An attribute has few values if on average at least this number of devices have the same value."""


class ClaimSignatures:
    """The signatures of claims: equal for claims with equal specs. By identity of the spec: comparing specs costs what
    signatures cost.
    """

    def __init__(self) -> None:
        self._known: WeakIdentityDict[ResourceClaimSpec, bytes] = WeakIdentityDict()

    def of(self, claims: Iterable[ResourceClaim], budget: WorkBudget = UNLIMITED) -> tuple[bytes, ...]:
        """The signature of each claim. Raises what the budget does."""
        return tuple([self._signature(claim.spec, budget) for claim in claims])

    def _signature(self, spec: ResourceClaimSpec, budget: WorkBudget) -> bytes:
        known = self._known.get(id(spec))
        if known is not None:
            return known.value
        budget.spend(0)
        encoded = encode(spec)
        found = self._known.put(spec, shortened(encoded))
        budget.spend(len(encoded) // BYTES_PER_UNIT)
        return found


def reads_of(
    filters: Iterable[DeviceFilter], attributes: Iterable[str], budget: WorkBudget = UNLIMITED
) -> AttributeReads:
    """What the selectors of filters and the constraints on these attributes (full names) read. Raises TurnSpent, and
    Deferred after all requests to workers were deferred.
    """
    found = {(name.partition("/")[0], name.partition("/")[2]) for name in attributes}
    return _together([frozenset(found), *ask_all(lambda filter: _filter_reads(filter, budget), filters)])


def _together(parts: Sequence[AttributeReads]) -> AttributeReads:
    known = [reads for reads in parts if reads is not None]
    return frozenset().union(*known) if len(known) == len(parts) else None


def _filter_reads(filter: DeviceFilter, budget: WorkBudget) -> AttributeReads:
    """What all its selectors read. Kept by the filter: each turn of a call asks again, about thousands of selectors."""
    if None not in filter.reads:
        selectors = *filter.class_selectors, *filter.selectors
        together = _together(ask_all(lambda text: _selector_reads(text, filter, budget), selectors))
        if not all(text in filter.reads for text in selectors):
            return together
        filter.reads[None] = together
    found: AttributeReads = filter.reads[None]
    return found


def _selector_reads(expression: str, filter: DeviceFilter, budget: WorkBudget) -> AttributeReads:
    """An expression that does not compile reads nothing: it fails on every device. Kept by the filter, unless a worker
    was stopped at a limit.
    """
    if expression not in filter.reads:
        selector = compiled(expression, filter, budget)
        if isinstance(selector, CompileReply) and not selector.final:
            return frozenset()
        filter.reads[expression] = _read(selector.reads)
    found: AttributeReads = filter.reads[expression]
    return found


def _read(reads: ReadSet) -> AttributeReads:
    if reads.everything:
        return None
    entries = {(domain, identifier) for kind, domain, identifier in reads.entries if kind == "attributes"}
    return frozenset(entries | {(DOMAIN, domain) for kind, domain in reads.domains if kind == "attributes"})


class AttributeSignatures:
    """Signatures of devices for these reads. As it is asked about every device of a cluster, the names under which a
    driver can publish an attribute are found once.
    """

    __slots__ = ("_domains", "_names", "_reads")

    def __init__(self, reads: frozenset[tuple[str, str]]) -> None:
        self._reads = reads
        self._names: dict[str, tuple[str, ...]] = {}
        self._domains = sorted(domain for kind, domain in reads if kind == DOMAIN)

    def of(self, model: DeviceModel) -> Hashable:
        driver, attributes = model.traits.driver, model.traits.attributes
        names = self._names.get(driver)
        if names is None:
            # With its domain. Names of the driver need none.
            full = {f"{domain}/{identifier}" for domain, identifier in self._reads if domain != DOMAIN}
            short = {identifier for domain, identifier in self._reads if domain == driver}
            names = self._names[driver] = tuple(sorted(full | short))
        key: tuple[Hashable, ...] = (model.rest, *[(name, attributes[name]) for name in names if name in attributes])
        if self._domains:
            present = {name.partition("/")[0] if "/" in name else driver for name in attributes}
            key = (*key, *(domain for domain in self._domains if domain in present))
        return key


@dataclass(slots=True, weakref_slot=True, eq=False)
class PoolSignature:
    """What claims read of a pool, whatever is allocated in it: one model for each device, which stands for all with the
    same attribute signature, with the locality of the device, in order.

    A locality says what node selection does to a device: 1 it is for other nodes, 2 that is unknown, 4 its node
    selector cannot be expressed in an allocation.
    """

    devices: tuple[tuple[DeviceModel, int], ...]
    counted: bool
    incomplete: bool
    invalid: bool


class PoolSignatures:
    """The signatures of pools for these reads. Equal signatures are one object for as long as some object holds it.
    `base`: signatures for these and further reads. Pools with one signature there are looked at once.
    """

    def __init__(self, reads: AttributeReads, base: PoolSignatures | None = None) -> None:
        self.reads, self._base = reads, base
        self._by_base: WeakIdentityDict[PoolSignature, PoolSignature] = WeakIdentityDict()
        self._attributes = AttributeSignatures(reads) if reads is not None else None
        self._representatives: WeakValueDictionary[Hashable, DeviceModel] = WeakValueDictionary()
        self._signatures: WeakValueDictionary[Hashable, PoolSignature] = WeakValueDictionary()
        self._by_content: WeakValueDictionary[Hashable, PoolSignature] = WeakValueDictionary()
        self.known: WeakIdentityDict[SeenPool, PoolSignature] = WeakIdentityDict()
        """The signatures made so far; ask `of` for the others."""

    def widen(self, reads: frozenset[tuple[str, str]]) -> None:
        """Make further signatures for these reads. The pools in `known` have no device that publishes another one."""
        self._attributes = AttributeSignatures(reads)

    def of(self, seen: SeenPool, pool: Pool, budget: WorkBudget = UNLIMITED) -> PoolSignature:
        """The signature of what a node sees; `pool` is what `seen` shows. Raises TurnSpent and Deferred."""
        made = self.known.get(id(seen))
        if made is not None:
            return made.value
        if self._base is None:
            budget.spend(1 + 2 * len(pool.models))
            flags = bool(pool.counters), pool.incomplete, bool(pool.invalid)
            return self.known.put(seen, self._of(pool.models, _localities(pool), flags))
        finer = self._base.of(seen, pool, budget)
        known = self._by_base.get(id(finer))
        budget.spend(1 if known is not None else 1 + 2 * len(finer.devices))
        return self.known.put(
            seen, known.value if known is not None else self._by_base.put(finer, self._coarser(finer))
        )

    def _coarser(self, finer: PoolSignature) -> PoolSignature:
        """The signature of pools that have this one in `base`."""
        models, localities = [tuple(each) for each in zip(*finer.devices, strict=True)] or ((), ())
        return self._of(models, localities, (finer.counted, finer.incomplete, finer.invalid))

    def _of(
        self, models: tuple[DeviceModel, ...], localities: tuple[int, ...], flags: tuple[bool, bool, bool]
    ) -> PoolSignature:
        known = self._by_content.get((models, localities, flags))
        if known is None:
            attributes = self._attributes
            devices = models if attributes is None else tuple(map(attributes.of, models))
            known = self._signatures.get((devices, localities, flags))
            if known is None:
                reduced = models if attributes is None else map(self._representatives.setdefault, devices, models)
                listed = tuple(zip(reduced, localities or (0,) * len(models), strict=True))
                known = self._signatures[devices, localities, flags] = PoolSignature(listed, *flags)
            self._by_content[models, localities, flags] = known
        return known


def of_few_values(
    pools: Sequence[tuple[SeenPool, Pool]], known: PoolSignatures | None
) -> Generator[None, None, PoolSignatures]:
    """The signatures of these pools for all attributes with few values, one pool at a step. `known`: from an earlier
    call.
    """
    if known is not None and all(id(seen) in known.known for seen, _ in pools):
        return known
    values: dict[tuple[str, str], set[DeviceAttribute]] = {}
    few = min(FEW_VALUES, sum(len(pool.models) for _, pool in pools) // SHARING)
    for _, pool in pools:
        yield
        for traits in (model.traits for model in pool.models):
            for name, value in traits.attributes.items():
                domain, _, identifier = name.rpartition("/")
                found = values.setdefault((domain or traits.driver, identifier), set())
                if len(found) <= few:
                    found.add(value)
    reads = frozenset(read for read, found in values.items() if len(found) <= few)
    signatures = known if known is not None and known.reads == reads else PoolSignatures(reads)
    for seen, pool in pools:
        yield
        signatures.of(seen, pool)
    return signatures


def _localities(pool: Pool) -> tuple[int, ...]:
    """The locality of each device; empty when all are 0."""
    many_terms = any(selection.has_many_terms for selection in set(pool.selections))
    if not many_terms and not pool.elsewhere and not pool.unmatchable and not pool.skips:
        return ()
    return tuple(
        (pool.elsewhere >> index & 1)
        | (index in pool.unmatchable) << 1
        | selection.has_many_terms << 2
        | (pool.unserved >> index & 1) << 3
        for index, selection in enumerate(pool.selections)
    )
