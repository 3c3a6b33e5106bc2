"""The ledger under any order of watch events, replies and deletions, compared with a count from scratch."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.ledger import HeldError, Hold, Ledger
from dra_extender.devices.usage import uses_of
from tests.support.examples import examples

NAMES = ("a", "b", "c")
OWNERS = ("", "pod-1", "pod-2")
RESULTS = st.lists(
    st.tuples(st.sampled_from(("d0", "d1", "d2")), st.sampled_from((None, "s", "t"))), max_size=3, unique=True
)


def allocation_of(results: list[tuple[str, str | None]], claim: str) -> dict[str, Any]:
    entries = []
    for device, share in results:
        entry: dict[str, Any] = {"request": "r", "driver": "gpu", "pool": "n", "device": device}
        if share:
            entry |= {"shareID": f"{claim}-{share}", "consumedCapacity": {"memory": "1"}}
        entries.append(entry)
    return {"devices": {"results": entries}}


class LedgerMachine(RuleBasedStateMachine):
    """`server` is the truth, `stream` the watch events not delivered yet; replies to our writes come at any time."""

    in_flight = Bundle("in_flight")
    replies = Bundle("replies")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(FeatureGates(), lambda pool: None)
        self.version = 0
        self.server: dict[str, ResourceClaim] = {}
        self.stream: list[tuple[bool, ResourceClaim]] = []
        self.ours: dict[str, ResourceClaim] = {}

    def write(self, name: str, uid: str, allocation: dict[str, Any] | None, owner: str = "") -> ResourceClaim:
        self.version += 1
        metadata: dict[str, Any] = {
            "name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(self.version)
        }  # fmt: skip
        if owner:
            metadata["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": owner, "controller": True}]
        status = {"allocation": allocation} if allocation is not None else {}
        claim = convert(ResourceClaim, {"metadata": metadata, "status": status})
        self.server[name] = claim
        self.stream.append((True, claim))
        return claim

    @rule(name=st.sampled_from(NAMES))
    def somebody_creates(self, name: str) -> None:
        if name not in self.server:
            self.write(name, f"uid-{name}-{self.version + 1}", None)

    @rule(name=st.sampled_from(NAMES), results=st.none() | RESULTS, owner=st.sampled_from(OWNERS))
    def somebody_writes(self, name: str, results: list[tuple[str, str | None]] | None, owner: str) -> None:
        if name in self.server:
            uid = self.server[name].metadata.uid
            self.write(name, uid, None if results is None else allocation_of(results, uid), owner)
            self.ours.pop(uid, None)

    @rule(name=st.sampled_from(NAMES))
    def somebody_deletes(self, name: str) -> None:
        if name in self.server:
            claim = self.server.pop(name)
            self.ours.pop(claim.metadata.uid, None)
            self.stream.append((False, claim))

    @precondition(lambda self: self.stream)
    @rule()
    def the_watch_delivers(self) -> None:
        present, claim = self.stream.pop(0)
        if present:
            self.ledger.observe(claim, watched=True)
        else:
            self.ledger.forget(claim.metadata.key, claim.metadata.uid)

    @rule(target=in_flight, name=st.sampled_from(NAMES), results=RESULTS)
    def we_hold(self, name: str, results: list[tuple[str, str | None]]) -> tuple[Hold, str] | None:
        claim = self.ledger.get("ns", name)
        if claim is None:
            return None
        allocation = convert(AllocationResult, allocation_of(results, claim.metadata.uid))
        before = self.in_use()
        try:
            return self.ledger.hold(claim, allocation, owner="pod"), name
        except HeldError:
            assert self.in_use() == before
            return None

    @rule(target=replies, started=consumes(in_flight))
    def our_write_arrives(self, started: tuple[Hold, str] | None) -> tuple[Hold, ResourceClaim | None] | None:
        if started is None:
            return None
        hold, name = started
        stored = self.server.get(name)
        known = self.ledger.by_uid(hold.claim_uid)
        if stored is None or known is None or stored.metadata.version != known.metadata.version:
            return hold, None
        self.version += 1
        written = convert(
            ResourceClaim,
            {
                "metadata": {**to_builtins(stored.metadata), "resourceVersion": str(self.version)},
                "status": {"allocation": to_builtins(hold.allocation)},
            },
        )
        self.server[name] = written
        self.stream.append((True, written))
        self.ours[hold.claim_uid] = written
        return hold, written

    @rule(reply=consumes(replies))
    def the_reply_comes(self, reply: tuple[Hold, ResourceClaim | None] | None) -> None:
        if reply is None:
            return
        hold, written = reply
        if written is None:
            self.ledger.release(hold)
        else:
            self.ledger.confirm(hold, written)

    def in_use(self) -> dict[str, tuple[set[str], set[tuple[str, str]]]]:
        found = self.ledger.in_use(("gpu", "n"))
        return {name: (set(use.owners), set(use.shares)) for name, use in found.items()}

    @invariant()
    def the_index_equals_a_count_from_scratch(self) -> None:
        expected: dict[str, tuple[set[str], set[tuple[str, str]]]] = {}
        allocations = [(claim.metadata.uid, claim.allocation) for claim in self.ledger.claims()]
        allocations += [(hold.claim_uid, hold.allocation) for hold in self.ledger.holds()]
        for uid, allocation in allocations:
            for device, share in uses_of(allocation, shares=True):
                owners, shares = expected.setdefault(device[2], (set(), set()))
                if share is None:
                    owners.add(uid)
                else:
                    shares.add((uid, share))
        assert self.in_use() == expected
        for use in self.ledger.in_use(("gpu", "n")).values():
            assert use.share_ids == Counter(share for _, share in use.shares)
            consumed = Counter[str]()
            for amounts in use.shares.values():
                consumed.update({name: amount.nano for name, amount in amounts.items()})
            assert use.consumed == consumed

    @invariant()
    def owners_are_those_of_the_known_versions(self) -> None:
        owned: dict[str, set[str]] = {owner: set() for owner in OWNERS}
        for claim in self.ledger.claims():
            if claim.metadata.controller is not None:
                owned[claim.metadata.controller.uid].add(claim.metadata.uid)
        assert {owner: {claim.metadata.uid for claim in self.ledger.owned_by("ns", owner)} for owner in OWNERS} == owned

    @invariant()
    def what_we_wrote_is_never_shown_as_free(self) -> None:
        in_use = self.in_use()
        for uid, written in self.ours.items():
            for device, share in uses_of(written.allocation, shares=True):
                owners, shares = in_use.get(device[2], (set(), set()))
                assert uid in owners if share is None else (uid, share) in shares

    @invariant()
    def the_ledger_is_the_server_once_all_events_are_in(self) -> None:
        if not self.stream:
            for name in NAMES:
                known, stored = self.ledger.get("ns", name), self.server.get(name)
                assert (known and known.metadata.uid) == (stored and stored.metadata.uid)
                if known is not None and stored is not None:
                    assert known.metadata.version == stored.metadata.version
                    assert self.ledger.watched_version(known.metadata.uid) == stored.metadata.version


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=examples(60), stateful_step_count=40)
