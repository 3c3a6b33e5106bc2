"""The devices, counters and capacity in use: by stored claims, and by holds.

Promises
- The newest version of each claim wins, from the watch or from the reply to our own write. An older version never
  replaces a newer one, and a deleted claim never comes back (assume-cache semantics).
- A hold keeps its devices until the watch shows the written claim at its resourceVersion or newer, or until the hold is
  released. The devices never look free between hold and stored allocation.
- If a claim names a device in its stored allocation and in its hold, it uses the device once.
- The cost of an operation grows with the claim's devices. Only `violations` reads all claims.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice

from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import AllocationResult, DeviceID, ResourceClaim
from dra_extender.devices.audit import Auditor, Compare, PoolOf, Violation, node_of
from dra_extender.devices.pods import Deletions
from dra_extender.devices.usage import EVERY_DEVICE, DeviceUse, PoolHoldings, PoolID, UsageIndex, Uses, uses_of
from dra_extender.limits import CLAIMS_OF_OWNER

REMEMBERED_DELETIONS = 10_000
"""How many deleted claims are remembered, so that a late reply to one of our writes does not revive them."""


class HeldError(Exception):
    """The hold cannot be given. `claim` is namespace/name; `device` is set if another claim has it."""

    def __init__(self, claim: str, reason: str, device: DeviceID | None = None) -> None:
        super().__init__(f"claim {claim}: {reason}")
        self.claim = claim
        self.device = device


@dataclass(eq=False, slots=True)
class Hold:
    """Devices promised to a claim whose write is not known to be stored yet. Only the ledger changes it."""

    claim_uid: str
    allocation: AllocationResult
    owner: str
    """UID of the pod the decision was made for."""
    written_version: int | None = None
    """resourceVersion of our write once it was accepted."""


@dataclass(eq=False, slots=True)
class _Record:
    """The known state of one claim, and two bounds of the age of its allocation.

    `bare`: the newest known resourceVersion without the present allocation. The allocation is younger than this
    version. `since`: the resourceVersion at which the watch began to show its latest allocation, without a missed
    version from then on; 0 if it showed none. The allocation is not younger than this version.
    """

    claim: ResourceClaim | None = None
    hold: Hold | None = None
    seen: int = 0
    shown: Uses | None = None
    """What the watch showed last; None: no allocation."""
    stored: Uses = field(default_factory=dict)
    uses: Uses = field(default_factory=dict)
    bare: int = 0
    since: int = 0

    @property
    def node(self) -> str:
        return node_of(self.claim.allocation) if self.claim is not None else ""

    @property
    def written(self) -> int:
        """A resourceVersion that has the present allocation already. The allocation may be older, but not younger.
        While the watch is behind a reply, the allocation may have been replaced in between.
        """
        if self.claim is None or self.claim.allocation is None:
            return 0
        return self.since if self.seen >= self.claim.metadata.version else self.claim.metadata.version


def identity(claim: ResourceClaim) -> str:
    """The key of a claim: its UID, or namespace/name if the claim never was in an API server."""
    return claim.metadata.uid or claim.metadata.key


def _stored(records: Mapping[str, _Record], uid: str) -> tuple[ResourceClaim, Uses] | None:
    record = records.get(uid)
    return (record.claim, record.stored) if record and record.claim is not None else None


class Ledger:
    """`pool_of` has what devices offer and consume; `changed` is called with each pool whose use changes."""

    def __init__(
        self, features: FeatureGates, pool_of: PoolOf, changed: Callable[[PoolID], None] = lambda pool: None
    ) -> None:
        self._shares = features.DRAConsumableCapacity
        self._records: dict[str, _Record] = {}
        self._by_name: dict[str, str] = {}
        self._by_owner: dict[tuple[str, str], dict[str, None]] = {}
        self._deleted = Deletions(REMEMBERED_DELETIONS)
        self.newest = 0
        """The highest resourceVersion that a watch or a reply has shown of any claim."""
        self._usage = UsageIndex(changed)
        self._auditor = Auditor(self._usage, pool_of, partial(_stored, self._records))
        self.parts_of_violations = self._auditor.violations
        """As `violations`, in parts; the state may change in between."""

    def observe(self, claim: ResourceClaim, *, watched: bool, after_gap: bool = False) -> bool:
        """A version of the claim, from the watch or from the reply to our write. True when devices became free, or when
        a conflict with another claim may be over. `after_gap`: the watch may have missed versions before this one.
        """
        uid, version = identity(claim), claim.metadata.version
        self.newest = max(version, self.newest)
        if self._is_history(uid, version, watched):
            return False
        freed = self._replace_namesake(claim, uid, watched)
        if freed is None:
            return False
        record = self._records.setdefault(uid, _Record())
        uses = uses_of(claim.allocation, shares=self._shares)
        before, age = record.stored, (record.written, record.bare)
        if watched and not 0 < version <= record.seen:
            self._show(record, claim, uses, after_gap)
        if record.claim is None or not 0 < version < record.claim.metadata.version:
            self._store(record, uid, claim, uses)
        elif claim.allocation is None or uses != record.stored:
            record.bare = max(record.bare, version)
        if watched and self._landed(record):
            record.hold = None
        freed = self._charge(uid, record) or freed
        aged = (record.written, record.bare) != age
        if aged or record.stored != before:
            self._usage.touch({**before, **record.stored})
        return freed or (aged and self._is_contested(uid, record))

    @staticmethod
    def _show(record: _Record, claim: ResourceClaim, uses: Uses, after_gap: bool) -> None:
        """The watch shows a version that it has not shown before."""
        before, record.seen = record.seen, claim.metadata.version
        if claim.allocation is None:
            record.since, record.shown = 0, None
        elif record.shown is None or record.shown != uses or after_gap:
            record.since, record.shown = record.seen, uses
            if before and not after_gap:  # no version was missed, so this version has added the allocation
                record.bare = max(record.bare, record.seen - 1)

    def _is_history(self, uid: str, version: int, watched: bool) -> bool:
        """Whether the claim is known to be deleted. Only the watch can show it again, with a newer version."""
        if uid not in self._deleted:
            return False
        if not watched or self.was_deleted(uid, version):
            return True
        self._deleted.discard(uid)
        return False

    def was_deleted(self, uid: str, version: int) -> bool:
        """Whether the claim is known to be deleted at this version or a later one."""
        return 0 < version <= (self._deleted.get(uid) or 0)

    def _replace_namesake(self, claim: ResourceClaim, uid: str, watched: bool) -> bool | None:
        """Forget an older claim of the same name (deleted and created again). None: the known one is newer."""
        known = self._by_name.get(claim.metadata.key)
        if known is None or known == uid:
            return False
        newest = self._records[known].claim
        version = claim.metadata.version
        if newest is not None and (0 < version < newest.metadata.version or (version == 0 and not watched)):
            return None
        return self.forget(claim.metadata.key, known)

    def _store(self, record: _Record, uid: str, claim: ResourceClaim, uses: Uses) -> None:
        before = record.claim
        if claim.allocation is None:
            record.bare = max(record.bare, claim.metadata.version)
        elif before is not None and (before.allocation is None or uses != record.stored):
            record.bare = max(record.bare, before.metadata.version)
        record.claim, record.stored = claim, uses
        owner = claim.metadata.controller
        if before is None:
            self._by_name[claim.metadata.key] = uid
        elif before.metadata.controller != owner:
            self._drop_owner(before, uid)
        if owner is not None:
            self._by_owner.setdefault((claim.metadata.namespace, owner.uid), {})[uid] = None

    def forget(self, key: str, uid: str = "") -> bool:
        """The claim (namespace/name) is gone from the API server. True when devices became free."""
        uid = uid or self._by_name.get(key, key)
        record = self._records.get(uid)
        if record is None or record.claim is None:
            self._deleted.put(uid, self._deleted.get(uid) or 0)
            return False
        self._deleted.put(uid, record.claim.metadata.version)
        if self._by_name.get(key) == uid:
            del self._by_name[key]
        self._drop_owner(record.claim, uid)
        self._usage.touch(record.stored)
        record.claim, record.stored = None, {}
        if record.hold is not None and record.hold.written_version is not None:
            record.hold = None
        return self._charge(uid, record)

    def _drop_owner(self, claim: ResourceClaim, uid: str) -> None:
        owner = claim.metadata.controller
        key = claim.metadata.namespace, owner.uid if owner is not None else ""
        if owned := self._by_owner.get(key):
            owned.pop(uid, None)
            if not owned:
                del self._by_owner[key]

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """The newest known version."""
        return self.by_key(f"{namespace}/{name}" if namespace else name)

    def by_key(self, key: str) -> ResourceClaim | None:
        """As `get`, by `namespace/name`."""
        uid = self._by_name.get(key)
        return self._records[uid].claim if uid is not None else None

    def by_uid(self, uid: str) -> ResourceClaim | None:
        record = self._records.get(uid)
        return record.claim if record else None

    def claims(self) -> Iterable[ResourceClaim]:
        """All stored claims, in the order in which they became known."""
        return (record.claim for record in list(self._records.values()) if record.claim is not None)

    def owned_by(self, namespace: str, uid: str) -> Sequence[ResourceClaim]:
        """The claims of the namespace whose controller has this UID: the first `CLAIMS_OF_OWNER`."""
        listed = islice(self._by_owner.get((namespace, uid), ()), CLAIMS_OF_OWNER)
        return tuple(claim for each in listed if (claim := self.by_uid(each)) is not None)

    def watched_version(self, claim_uid: str) -> int:
        """The highest resourceVersion that came through the watch; 0 = none, or the claim is deleted."""
        record = self._records.get(claim_uid)
        return record.seen if record and record.claim is not None else 0

    def hold(self, claim: ResourceClaim, allocation: AllocationResult, *, owner: str) -> Hold:
        """Promise the devices to the claim from now on. Raises HeldError, and changes nothing, if they are in use."""
        uid, key = identity(claim), claim.metadata.key
        record = self._records.get(uid)
        if record is not None and record.hold is not None:
            raise HeldError(key, "is in the process of being allocated")
        if record is not None and record.claim is not None and record.claim.allocation is not None:
            raise HeldError(key, "is allocated already")
        wanted = uses_of(allocation, shares=self._shares)
        for device, share in wanted:
            self._refuse_taken(key, device, share)
        record = self._records.setdefault(uid, _Record())
        record.hold = Hold(uid, allocation, owner)
        self._charge(uid, record)
        return record.hold

    def _refuse_taken(self, claim: str, device: DeviceID, share: str | None) -> None:
        """Whether shares leave room for another share is the allocator's decision, made just before."""
        every = self._usage.device((*device[:2], EVERY_DEVICE))
        use = self._usage.device(device) if every is None else every
        if use is None:
            return
        if users := use.owners or {uid for uid, _ in (use.shares if share is None else ())}:
            raise HeldError(claim, f"device {'/'.join(device)} is in use by claim {min(users)}", device)
        if share is not None and share in use.share_ids:
            raise HeldError(claim, f"share {share} of device {'/'.join(device)} exists already", device)

    def held(self, claim_uid: str) -> Hold | None:
        record = self._records.get(claim_uid)
        return record.hold if record else None

    def is_decided(self, claim_uid: str) -> bool:
        """True when the claim has devices, or is about to get some."""
        record = self._records.get(claim_uid)
        return record is not None and (record.hold is not None or bool(record.claim and record.claim.allocation))

    def holds(self) -> Sequence[Hold]:
        return tuple(record.hold for record in self._records.values() if record.hold is not None)

    def confirm(self, hold: Hold, written: ResourceClaim) -> None:
        """Our write was accepted. The hold stays until the watch shows this version or a newer one, or the deletion."""
        hold.written_version = written.metadata.version
        self.observe(written, watched=False)
        record = self._records.get(hold.claim_uid)
        if record is None or record.hold is not hold:
            return
        if record.claim is None or self._landed(record):
            record.hold = None
            self._charge(hold.claim_uid, record)

    @staticmethod
    def _landed(record: _Record) -> bool:
        written = record.hold.written_version if record.hold is not None else None
        return written is not None and record.seen >= written

    def release(self, hold: Hold) -> bool:
        """Undo the promise; what is stored stays. True when something became free."""
        record = self._records.get(hold.claim_uid)
        if record is None or record.hold is not hold:
            return False
        record.hold = None
        return self._charge(hold.claim_uid, record)

    def uses(self, claim_uid: str) -> Uses:
        """What the claim uses, stored or held."""
        record = self._records.get(claim_uid)
        return record.uses if record is not None else {}

    def _charge(self, uid: str, record: _Record) -> bool:
        """Bring the index in line with the record. True when devices became free."""
        uses: Uses = record.stored
        if record.hold is not None:
            promised = uses_of(record.hold.allocation, shares=self._shares)
            uses = {**promised, **record.stored} if promised != record.stored else record.stored
        before, record.uses = record.uses, uses
        if record.claim is None and record.hold is None:
            self._records.pop(uid, None)
        elif record.claim is not None:
            self._records.setdefault(uid, record)
        return self._usage.replace(uid, before, uses)

    def in_use(self, pool: PoolID) -> Mapping[str, DeviceUse]:
        """The devices of the pool that are in use, by name, with their users. A live view: do not keep it."""
        entry = self._usage.pool(pool)
        return entry.devices if entry else {}

    def holdings(self, pool: PoolID) -> PoolHoldings | None:
        """What is held in the pool; None when nothing is. The same object until that changes."""
        entry = self._usage.pool(pool)
        if entry is None:
            return None
        if entry.holdings is None:
            entry.holdings = PoolHoldings(
                {name for name, use in entry.devices.items() if use.owners},
                {name: use.consumed for name, use in entry.devices.items() if use.shares},
            )
        return entry.holdings

    def revision(self, pool: PoolID) -> int:
        """Changes exactly when the use of a device in the pool does; 0 = nothing is in use."""
        entry = self._usage.pool(pool)
        return entry.revision if entry else 0

    def rivals(self, claim: ResourceClaim, compare: Compare = lambda work: True) -> tuple[ResourceClaim, ...]:
        """Other stored claims that conflict with this one and may have been allocated before it. `compare`: see there.

        They own or share a device that this claim owns, own a device that it shares, or overdraw a capacity or counter
        together with it. A claim that is known to be allocated later is not a rival: its writer sees this claim.
        """
        found = sorted(set(self._rivals(claim, compare)))
        return tuple(rival for uid in found if (rival := self.by_uid(uid)) is not None)

    def has_rivals(self, claim: ResourceClaim, compare: Compare) -> bool:
        """True when `rivals` finds any: it ends with the first."""
        return next(self._rivals(claim, compare), None) is not None

    def _rivals(self, claim: ResourceClaim, compare: Compare) -> Iterator[str]:
        record = self._records.get(identity(claim)) or _Record()
        written = record.written

        def may_be_earlier(uid: str) -> bool:
            return not 0 < written <= self._records[uid].bare

        return self._auditor.rivals(identity(claim), record.stored, record.node, may_be_earlier, compare)

    def doubts_key(self, claim: ResourceClaim) -> Hashable:
        """Changes whenever `rivals` or `is_unverifiable` of the claim may. Linear in the claim's devices."""
        results = claim.allocation.devices.results if claim.allocation is not None else ()
        return identity(claim), self._auditor.state_of({result.id[:2] for result in results})

    def _is_contested(self, uid: str, record: _Record) -> bool:
        """True when other stored claims conflict with this one, older or not."""
        return any(True for _ in self._auditor.rivals(uid, record.stored, record.node, lambda other: True))

    def is_unverifiable(self, claim: ResourceClaim) -> bool:
        """True when `rivals` cannot find all conflicts of the claim: a device of it is not published, or consumes
        counters of an incomplete pool, and other claims use this pool; or an undecodable claim may have the device.
        """
        record = self._records.get(identity(claim))
        return record is not None and self._auditor.is_unverifiable(identity(claim), record.stored, record.node)

    def contested(self, hold: Hold) -> bool:
        """True when a stored claim has a held device: another allocator, which does not know the hold, was faster."""
        uses = uses_of(hold.allocation, shares=self._shares)
        return any(True for _ in self._auditor.rivals(hold.claim_uid, uses, node_of(hold.allocation), lambda uid: True))

    def owned_twice(self, claim: ResourceClaim) -> Iterator[Violation]:
        """The `violations` about devices that the stored claim owns, and others too."""
        record = self._records.get(identity(claim))
        return self._auditor.owned_twice(record.stored if record is not None else {})

    def violations(self) -> tuple[Violation, ...]:
        """Devices in two stored claims, capacity or counters overdrawn, sorted. Admin access takes no part."""
        return tuple(sorted(set(chain.from_iterable(self.parts_of_violations()))))
