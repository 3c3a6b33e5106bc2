"""Rivals of one claim after it was written, and the audit of everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import CounterSet, Device, DeviceCapacity, DeviceID, ResourceClaim, ResourceClaimStatus
from dra_extender.devices.audit import PER_SHARE, PORTION, Auditor
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.models import DeviceLists
from dra_extender.devices.publishedpool import PublishedPool, TaintRules
from dra_extender.devices.usage import DeviceUse, UsageIndex, Uses, uses_of
from tests.support.devices.objects import make_allocation, make_claim


class Catalogue(PublishedPool):
    """Devices p0..p2 take 4, 4 and 8 of 8 slices of set `gpu`; m offers 10 of memory in shares."""

    def __init__(self) -> None:
        super().__init__(("gpu", "n"), FeatureGates(), DeviceLists(), TaintRules())
        devices: list[dict[str, Any]] = [{"name": "m", "capacity": {"memory": {"value": "10"}}}]
        for name, slices in (("p0", "4"), ("p1", "4"), ("p2", "8")):
            counters = [{"counterSet": "gpu", "counters": {"slices": {"value": slices}}}]
            devices += [{"name": name, "consumesCounters": counters}]
        self._devices, self.whole = {device["name"]: convert(Device, device) for device in devices}, True

    def device(self, name: str, node: str | None = None) -> Device | None:
        return self._devices.get(name)

    def least(self, name: str) -> Mapping[str, DeviceCapacity]:
        return self._devices[name].capacity if name in self._devices else {}

    def counter_sets(self, node: str | None = None) -> Iterator[CounterSet]:
        return iter((convert(CounterSet, {"name": "gpu", "counters": {"slices": {"value": "8"}}}),))

    def is_whole(self, node: str | None = None) -> bool:
        return self.whole

    def node_per_generation(self) -> Iterable[str]:
        return ("",)


def share(device: str, share_id: str, memory: str) -> dict[str, Any]:
    driver, pool, name = device.split("/")
    return {
        "request": "r", "driver": driver, "pool": pool, "device": name,
        "shareID": share_id, "consumedCapacity": {"memory": memory},
    }  # fmt: skip


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.fixture
def ledger(catalogue: Catalogue) -> Ledger:
    return Ledger(FeatureGates(), lambda pool: catalogue)


CONFLICTS = {
    "the same device twice": (["gpu/n/x"], ["gpu/n/x"], "device"),
    "a share of an owned device": (["gpu/n/m"], [share("gpu/n/m", "s", "1")], "mode"),
    "owning a shared device": ([share("gpu/n/m", "s", "1")], ["gpu/n/m"], "mode"),
    "more memory than there is": ([share("gpu/n/m", "s", "6")], [share("gpu/n/m", "t", "5")], "capacity"),
    "more slices than there are": (["gpu/n/p0"], ["gpu/n/p2"], "counter"),
}

HARMLESS = {
    "different devices": (["gpu/n/x"], ["gpu/n/y"]),
    "the same name in another pool": (["gpu/n/x"], ["gpu/o/x"]),
    "the same name of another driver": (["gpu/n/x"], ["nic/n/x"]),
    "memory that suffices": ([share("gpu/n/m", "s", "5")], [share("gpu/n/m", "t", "5")]),
    "slices that suffice": (["gpu/n/p0"], ["gpu/n/p1"]),
}


@pytest.mark.parametrize(("first", "second", "kind"), CONFLICTS.values(), ids=CONFLICTS)
class TestConflict:
    def test_the_later_writer_sees_the_earlier(
        self, ledger: Ledger, first: list[Any], second: list[Any], kind: str
    ) -> None:
        ledger.observe(make_claim("first", 5, first), watched=True)
        ledger.observe(make_claim("second", 6, second), watched=True)
        second_claim = ledger.by_uid("uid-second")
        assert second_claim is not None
        assert [rival.metadata.name for rival in ledger.rivals(second_claim)] == ["first"]

    def test_the_earlier_writer_does_not_give_way_to_one_known_to_be_later(
        self, ledger: Ledger, first: list[Any], second: list[Any], kind: str
    ) -> None:
        ledger.observe(make_claim("second", 1), watched=True)
        ledger.observe(make_claim("first", 5, first), watched=True)
        ledger.observe(make_claim("second", 6, labels={"still": "free"}), watched=True)
        ledger.observe(make_claim("second", 7, second), watched=True)
        first_claim = ledger.by_uid("uid-first")
        assert first_claim is not None
        assert ledger.rivals(first_claim) == ()

    def test_the_audit_names_both(self, ledger: Ledger, first: list[Any], second: list[Any], kind: str) -> None:
        ledger.observe(make_claim("first", 5, first), watched=True)
        ledger.observe(make_claim("second", 6, second), watched=True)
        (violation,) = ledger.violations()
        assert violation.kind == kind
        assert violation.claims == ("default/first", "default/second")

    def test_it_ends_when_one_of_them_lets_go(
        self, ledger: Ledger, first: list[Any], second: list[Any], kind: str
    ) -> None:
        ledger.observe(make_claim("first", 5, first), watched=True)
        ledger.observe(make_claim("second", 6, second), watched=True)
        ledger.observe(make_claim("first", 7), watched=True)
        second_claim = ledger.by_uid("uid-second")
        assert second_claim is not None
        assert ledger.rivals(second_claim) == ()
        assert ledger.violations() == ()


@pytest.mark.parametrize(("first", "second"), HARMLESS.values(), ids=HARMLESS)
def test_what_does_not_collide_is_no_conflict(ledger: Ledger, first: list[Any], second: list[Any]) -> None:
    ledger.observe(make_claim("first", 5, first), watched=True)
    ledger.observe(make_claim("second", 6, second), watched=True)
    assert [ledger.rivals(claim) for claim in ledger.claims()] == [(), ()]
    assert ledger.violations() == ()


def test_a_reservation_does_not_make_the_earlier_claim_look_later(ledger: Ledger) -> None:
    ledger.observe(make_claim("first", 5, ["gpu/n/x"]), watched=True)
    ledger.observe(make_claim("second", 6, ["gpu/n/x"]), watched=True)
    ledger.observe(make_claim("first", 8, ["gpu/n/x"], labels={"reserved": "again"}), watched=True)
    second = ledger.by_uid("uid-second")
    assert second is not None
    assert [rival.metadata.name for rival in ledger.rivals(second)] == ["first"]


def test_a_claim_whose_moment_of_allocation_is_unknown_counts_as_earlier(ledger: Ledger) -> None:
    """After a broken watch the list shows only the newest version, allocated at some time before it."""
    ledger.observe(make_claim("other", 2), watched=True)
    ledger.observe(make_claim("ours", 6, ["gpu/n/x"]), watched=False)
    ledger.observe(make_claim("other", 9, ["gpu/n/x"]), watched=True, after_gap=True)
    ours = ledger.by_uid("uid-ours")
    assert ours is not None
    assert [rival.metadata.name for rival in ledger.rivals(ours)] == ["other"]


def test_holds_are_neither_rivals_nor_violations(ledger: Ledger) -> None:
    held = make_claim("held", 1)
    ledger.observe(held, watched=True)
    ledger.hold(held, make_allocation("gpu/n/x"), owner="pod")
    ledger.observe(make_claim("ours", 6, ["gpu/n/x"]), watched=True)
    ours = ledger.by_uid("uid-ours")
    assert ours is not None
    assert ledger.rivals(ours) == ()
    assert ledger.violations() == ()


def test_an_unallocated_or_unknown_claim_has_no_rivals(ledger: Ledger) -> None:
    free = make_claim("free", 1)
    ledger.observe(free, watched=True)
    assert ledger.rivals(free) == ()
    assert ledger.rivals(make_claim("unknown", 1, ["gpu/n/x"])) == ()


@pytest.mark.parametrize(
    ("ours", "others", "whole", "expected"),
    [
        pytest.param("gpu/n/p0", "gpu/n/p1", True, False, id="everything is published"),
        pytest.param("gpu/n/x", "gpu/n/p1", True, True, id="a device is not published"),
        pytest.param("gpu/n/x", "gpu/o/p1", True, False, id="a device is not published and nobody else uses the pool"),
        pytest.param("gpu/n/p0", "gpu/n/x", False, True, id="a device consumes counters and the pool is not whole"),
        pytest.param("gpu/n/m", "gpu/n/x", False, False, id="a device consumes none and the pool is not whole"),
    ],
)
def test_an_allocation_is_verified_by_published_limits_only(
    catalogue: Catalogue, ledger: Ledger, ours: str, others: str, whole: bool, expected: bool
) -> None:
    catalogue.whole = whole
    claim = make_claim("a", 5, [ours])
    ledger.observe(claim, watched=True)
    assert not ledger.is_unverifiable(claim)
    ledger.observe(make_claim("b", 6, [others]), watched=True)
    assert ledger.is_unverifiable(claim) is expected


def test_the_audit_of_everything_looks_into_no_claim_that_has_its_devices_alone(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on the event loop every second or so, and clusters have tens of thousands of such devices."""
    monkeypatch.setattr(catalogue, "counter_sets", lambda node: iter(()))
    usage = UsageIndex(lambda pool: None)
    for number in range(10):
        usage.replace(f"uid-{number}", {}, {(("gpu", "n", f"x{number}"), None): {}})
    asked: list[str] = []

    def stored(uid: str) -> tuple[ResourceClaim, Uses] | None:
        asked.append(uid)
        return None

    assert list(Auditor(usage, lambda pool: catalogue, stored).violations()) == []
    assert asked == []


def test_the_shares_of_a_device_are_summed_once_however_many_nodes_they_are_on(catalogue: Catalogue) -> None:
    def looked_into(shares: int) -> int:
        usage, claims = UsageIndex(lambda pool: None), dict[str, tuple[ResourceClaim, Uses]]()
        for number in range(shares):
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}]}
            results = [share("gpu/n/m", f"s{number}", "1")]
            body = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
            status = convert(ResourceClaimStatus, {"allocation": body})
            claim = msgspec.structs.replace(make_claim(f"c{number}", 5), status=status)
            uses = uses_of(claim.allocation, shares=True)
            usage.replace(claim.metadata.uid, {}, uses)
            claims[claim.metadata.uid] = claim, uses
        asked: list[str] = []

        def stored(uid: str) -> tuple[ResourceClaim, Uses] | None:
            asked.append(uid)
            return claims[uid]

        (found,) = Auditor(usage, lambda pool: catalogue, stored).violations()
        assert [violation.detail for violation in found] == [f"capacity memory: {shares} consumed of 10"]
        return len(asked)

    assert looked_into(40) <= 2 * looked_into(20)


def test_claims_are_not_looked_into_where_no_counter_is_overdrawn(catalogue: Catalogue) -> None:
    usage = UsageIndex(lambda pool: None)
    mine: Uses = {(("gpu", "n", "p0"), None): {}}
    usage.replace("mine", {}, mine)
    usage.replace("other", {}, {(("gpu", "n", "p1"), None): {}})
    asked: list[str] = []

    def stored(uid: str) -> tuple[ResourceClaim, Uses] | None:
        asked.append(uid)
        return None

    auditor = Auditor(usage, lambda pool: catalogue, stored)
    assert list(auditor.rivals("mine", mine, "", lambda uid: True)) == []
    assert "other" not in asked


def test_the_devices_in_use_in_a_pool_are_summed_once_per_change_however_many_claims_are_looked_at(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod may name 256 allocated claims, and looks at each."""
    usage, claims = UsageIndex(lambda pool: None), dict[str, tuple[ResourceClaim, Uses]]()

    def use(device: str, version: int) -> None:
        claim = make_claim(device, version, [f"gpu/n/{device}"])
        usage.replace(claim.metadata.uid, {}, uses_of(claim.allocation, shares=True))
        claims[claim.metadata.uid] = claim, uses_of(claim.allocation, shares=True)

    asked: list[str] = []
    device = catalogue.device

    def counted(name: str, node: str | None = None) -> Device | None:
        asked.append(name)
        return device(name, node)

    monkeypatch.setattr(catalogue, "device", counted)
    auditor = Auditor(usage, lambda pool: catalogue, claims.get)

    def look() -> tuple[int, list[str]]:
        """How often the other device is asked about, and the rivals."""
        asked.clear()
        rivals = [sorted(auditor.rivals("uid-p0", claims["uid-p0"][1], "", lambda uid: True)) for _ in range(20)]
        assert all(found == rivals[0] for found in rivals)
        return asked.count("p1"), rivals[0]

    use("p0", 5)
    use("p1", 6)
    assert look() == (1, [])
    assert look() == (0, [])
    catalogue._forget()
    assert look() == (1, []), "the slices have changed"
    use("p2", 7)
    assert look()[1] == ["uid-p1", "uid-p2"]


class Sharers:
    """Claims that each have `shares` shares of device m, with `memory` each. Counts what is looked into."""

    def __init__(self, claims: int, shares: int = 4, memory: str = "10m") -> None:
        self.asked: list[str] = []
        """UIDs of the claims that were looked into."""
        self.devices = 0
        """How often the users of a device were asked for."""
        self.usage = UsageIndex(lambda pool: None)
        self._claims: dict[str, tuple[ResourceClaim, Uses]] = {}
        for number in range(claims):
            results = [share("gpu/n/m", f"s{number}-{part}", memory) for part in range(shares)]
            claim = make_claim(f"c{number}", 5, results)
            uses = uses_of(claim.allocation, shares=True)
            self.usage.replace(claim.metadata.uid, {}, uses)
            self._claims[claim.metadata.uid] = claim, uses

    def stored(self, uid: str) -> tuple[ResourceClaim, Uses] | None:
        self.asked.append(uid)
        return self._claims.get(uid)

    def looking(self, catalogue: Catalogue, look: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Look at the first claim."""
        device = self.usage.device

        def counted(id: DeviceID) -> DeviceUse | None:
            self.devices += 1
            return device(id)

        monkeypatch.setattr(self.usage, "device", counted)
        auditor, uses = Auditor(self.usage, lambda pool: catalogue, self.stored), self._claims["uid-c0"][1]
        if look == "rivals":
            list(auditor.rivals("uid-c0", uses, "", lambda uid: True))
        else:
            auditor.is_unverifiable("uid-c0", uses, "")


LOOKS = ["rivals", "unverifiable"]


@pytest.mark.parametrize("look", LOOKS)
def test_the_sharers_of_a_device_with_room_are_not_looked_into(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    sharers = Sharers(claims=20)
    sharers.looking(catalogue, look, monkeypatch)
    assert sharers.asked == []


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("memory", ["10m", "9"], ids=["room", "overdrawn"])
def test_a_device_is_looked_at_once_however_many_shares_of_it_a_claim_has(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, look: str, memory: str
) -> None:
    few, many = Sharers(1, shares=2, memory=memory), Sharers(1, shares=32, memory=memory)
    few.looking(catalogue, look, monkeypatch)
    many.looking(catalogue, look, monkeypatch)
    assert many.devices == few.devices


def test_doubt_ends_at_the_first_other_user_of_a_device_that_is_not_published(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "device", lambda name, node: None)
    sharers = Sharers(claims=20)
    sharers.looking(catalogue, "unverifiable", monkeypatch)
    assert set(sharers.asked) == {"uid-c0", "uid-c1"}
    assert len(sharers.asked) == 5


def test_the_audit_looks_into_no_share_of_a_device_with_room(catalogue: Catalogue) -> None:
    """It added up all shares of the cluster in one turn of each check: 0.8 s for 32,768."""
    with_room, overdrawn = Sharers(claims=20), Sharers(claims=20, memory="9")
    for sharers in (with_room, overdrawn):
        list(Auditor(sharers.usage, lambda pool: catalogue, sharers.stored).violations())
    assert (bool(with_room.asked), bool(overdrawn.asked)) == (False, True)


def test_the_audit_of_many_devices_has_parts(catalogue: Catalogue) -> None:
    usage = UsageIndex(lambda pool: None)
    for number in range(5 * PORTION // 2):
        usage.replace(f"uid-{number}", {}, {(("gpu", "n", f"x{number}"), None): {}})
    assert list(Auditor(usage, lambda pool: catalogue, lambda uid: None).violations()) == [(), ()]


def test_amounts_are_added_up_only_if_they_matter_and_the_work_is_told_before(catalogue: Catalogue) -> None:
    """128 claims of devices with 320 shares each, of which a driver has lowered the capacity, took 10 s in one turn."""
    sharers = Sharers(claims=20, memory="9")
    auditor, told = Auditor(sharers.usage, lambda pool: catalogue, sharers.stored), list[int]()
    stored = sharers.stored("uid-c0")
    assert stored is not None
    sharers.asked.clear()

    def compare(work: int) -> bool:
        told.append(work)
        return False

    assert list(auditor.rivals("uid-c0", stored[1], "", lambda uid: True, compare)) == []
    assert (told, sharers.asked) == ([80 * PER_SHARE], [])
    assert set(auditor.rivals("uid-c0", stored[1], "", lambda uid: True)) == {f"uid-c{n}" for n in range(1, 20)}


def test_what_doubts_depend_on_changes_when_a_hold_becomes_an_allocation(catalogue: Catalogue, ledger: Ledger) -> None:
    """The use of the devices stays the same, so the revision of the pool does."""
    ours, other = make_claim("ours", 5, ["gpu/n/p0"]), make_claim("other", 1)
    for claim in (ours, other):
        ledger.observe(claim, watched=True)
    hold = ledger.hold(other, make_allocation("gpu/n/p2"), owner="pod")
    before, revision = ledger.doubts_key(ours), ledger.revision(("gpu", "n"))
    assert ledger.rivals(ours) == ()
    ledger.confirm(hold, make_claim("other", 6, ["gpu/n/p2"]))
    assert [rival.metadata.name for rival in ledger.rivals(ours)] == ["other"]
    assert (ledger.revision(("gpu", "n")), ledger.doubts_key(ours) == before) == (revision, False)
