"""The ledger: versions, holds, use of devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import pytest

from dra_extender.api.features import FeatureGates
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.ledger import HeldError, Ledger
from dra_extender.devices.usage import PoolID
from dra_extender.limits import CLAIMS_OF_OWNER
from tests.support.devices.objects import make_allocation, make_claim

POOL = ("gpu", "node-1")


@pytest.fixture
def changes() -> list[PoolID]:
    return []


@pytest.fixture
def ledger(changes: list[PoolID]) -> Ledger:
    return Ledger(FeatureGates(), lambda pool: None, changes.append)


def owners(ledger: Ledger, device: str) -> set[str]:
    driver, pool, name = device.split("/")
    use = ledger.in_use((driver, pool)).get(name)
    return set(use.owners) if use else set()


class Unlisted(dict[tuple[str, str], Mapping[str, Quantity]]):
    """Shares that cannot be enumerated."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all shares were looked at")


class TestVersions:
    def test_a_newer_version_replaces_an_older_one(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1), watched=True)
        ledger.observe(make_claim("a", 2, ["gpu/node-1/d0"]), watched=True)
        assert owners(ledger, "gpu/node-1/d0") == {"uid-a"}
        assert ledger.watched_version("uid-a") == 2

    def test_an_older_version_is_ignored(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 5, ["gpu/node-1/d0"]), watched=False)
        assert not ledger.observe(make_claim("a", 4), watched=True)
        assert owners(ledger, "gpu/node-1/d0") == {"uid-a"}
        assert ledger.watched_version("uid-a") == 4, "the watch has not shown our write yet"

    def test_deallocation_frees_the_devices(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1, ["gpu/node-1/d0"]), watched=True)
        assert ledger.observe(make_claim("a", 2), watched=True)
        assert ledger.in_use(POOL) == {}
        assert ledger.revision(POOL) == 0

    def test_a_change_that_touches_no_device_changes_no_revision(self, ledger: Ledger, changes: list[PoolID]) -> None:
        ledger.observe(make_claim("a", 1, ["gpu/node-1/d0"]), watched=True)
        before = ledger.revision(POOL)
        assert not ledger.observe(make_claim("a", 2, ["gpu/node-1/d0"], labels={"x": "y"}), watched=True)
        assert ledger.revision(POOL) == before
        assert changes == [POOL]

    def test_a_recreated_claim_replaces_its_namesake(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1, ["gpu/node-1/d0"], uid="old"), watched=True)
        assert ledger.observe(make_claim("a", 3, uid="new"), watched=True)
        assert ledger.by_uid("old") is None
        known = ledger.get("default", "a")
        assert known is not None and known.metadata.uid == "new"

    def test_a_late_reply_about_the_old_namesake_is_ignored(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1, uid="old"), watched=True)
        ledger.observe(make_claim("a", 3, uid="new"), watched=True)
        ledger.observe(make_claim("a", 2, ["gpu/node-1/d0"], uid="old"), watched=False)
        assert ledger.in_use(POOL) == {}
        assert ledger.by_uid("old") is None

    def test_a_late_reply_does_not_revive_a_deleted_claim(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1), watched=True)
        ledger.forget("default/a", "uid-a")
        ledger.observe(make_claim("a", 2, ["gpu/node-1/d0"]), watched=False)
        assert ledger.in_use(POOL) == {}
        assert ledger.get("default", "a") is None

    def test_the_reply_to_a_creation_is_known_before_the_watch_shows_it(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 7), watched=False)
        assert ledger.get("default", "a") is not None
        assert ledger.watched_version("uid-a") == 0

    def test_deletion_frees_the_devices(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1, ["gpu/node-1/d0"]), watched=True)
        assert ledger.forget("default/a", "uid-a")
        assert ledger.in_use(POOL) == {}
        assert list(ledger.claims()) == []

    def test_objects_without_uid_and_version_are_told_apart_by_name(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 0, ["gpu/node-1/d0"], uid=""), watched=True)
        ledger.observe(make_claim("b", 0, ["gpu/node-1/d1"], uid=""), watched=True)
        assert owners(ledger, "gpu/node-1/d0") == {"default/a"}
        assert ledger.observe(make_claim("a", 0, uid=""), watched=True)
        assert set(ledger.in_use(POOL)) == {"d1"}

    def test_claims_are_found_by_the_pod_that_owns_them(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1, pod="pod-1"), watched=True)
        ledger.observe(make_claim("b", 2, pod="pod-1"), watched=True)
        ledger.observe(make_claim("c", 3, pod="pod-2"), watched=True)
        assert [claim.metadata.name for claim in ledger.owned_by("default", "pod-1")] == ["a", "b"]
        ledger.forget("default/a", "uid-a")
        assert [claim.metadata.name for claim in ledger.owned_by("default", "pod-1")] == ["b"]
        assert ledger.owned_by("default", "nobody") == ()

    def test_so_many_claims_are_found_by_their_owner_and_no_more(self, ledger: Ledger) -> None:
        """A user of any namespace can name the pods of others as owners."""
        for number in range(CLAIMS_OF_OWNER + 10):
            for namespace in ("other", "default"):
                claim = make_claim(f"c-{number}", uid=f"{namespace}-{number}", pod="pod-1", namespace=namespace)
                ledger.observe(claim, watched=True)
        expected = [f"default-{number}" for number in range(CLAIMS_OF_OWNER)]
        assert [claim.metadata.uid for claim in ledger.owned_by("default", "pod-1")] == expected
        for number in range(CLAIMS_OF_OWNER + 10):
            ledger.forget(f"default/c-{number}", f"default-{number}")
        assert ledger.owned_by("default", "pod-1") == ()
        assert len(ledger.owned_by("other", "pod-1")) == CLAIMS_OF_OWNER

    def test_a_claim_that_changes_its_owner_is_found_by_the_present_owner_only(self, ledger: Ledger) -> None:
        for version, owner in enumerate(("pod-1", "", "pod-2"), 1):
            ledger.observe(make_claim("a", version, pod=owner), watched=True)
            found = {
                pod: [claim.metadata.name for claim in ledger.owned_by("default", pod)] for pod in ("pod-1", "pod-2")
            }
            assert found == {pod: ["a"] if pod == owner else [] for pod in found}
        ledger.forget("default/a", "uid-a")
        assert ledger.owned_by("default", "pod-1") == ledger.owned_by("default", "pod-2") == ()


class TestUse:
    def test_admin_access_uses_nothing(self, ledger: Ledger) -> None:
        result = {"request": "r", "driver": "gpu", "pool": "node-1", "device": "d0", "adminAccess": True}
        ledger.observe(make_claim("a", 1, [result]), watched=True)
        assert ledger.in_use(POOL) == {}

    def test_a_device_in_two_claims_stays_in_use_until_both_let_go(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1, ["gpu/node-1/d0"]), watched=True)
        ledger.observe(make_claim("b", 2, ["gpu/node-1/d0"]), watched=True)
        ledger.forget("default/a", "uid-a")
        assert owners(ledger, "gpu/node-1/d0") == {"uid-b"}

    def test_shares_are_kept_apart_from_owners(self, ledger: Ledger) -> None:
        ledger.observe(make_claim("a", 1, ["gpu/node-1/d0#s1"]), watched=True)
        use = ledger.in_use(POOL)["d0"]
        assert (set(use.owners), set(use.shares)) == (set(), {("uid-a", "s1")})

    def test_a_share_id_is_looked_for_without_a_look_at_all_shares(self, ledger: Ledger) -> None:
        for name in ("a", "b"):
            ledger.observe(make_claim(name, 1, ["gpu/node-1/d0#s1"]), watched=True)
        ledger.forget("default/a", "uid-a")
        use = ledger.in_use(POOL)["d0"]
        use.shares = Unlisted(use.shares)
        ledger.hold(make_claim("c", 2), make_allocation("gpu/node-1/d0#s2"), owner="pod")
        with pytest.raises(HeldError, match="share s1 of device gpu/node-1/d0 exists already"):
            ledger.hold(make_claim("d", 3), make_allocation("gpu/node-1/d0#s1"), owner="pod")
        ledger.forget("default/b", "uid-b")
        ledger.hold(make_claim("d", 3), make_allocation("gpu/node-1/d0#s1"), owner="pod")

    def test_shares_own_their_device_when_consumable_capacity_is_off(self) -> None:
        ledger = Ledger(FeatureGates(DRAConsumableCapacity=False), lambda pool: None)
        ledger.observe(make_claim("a", 1, ["gpu/node-1/d0#s1"]), watched=True)
        assert owners(ledger, "gpu/node-1/d0") == {"uid-a"}


class TestHolds:
    @pytest.fixture
    def claim(self, ledger: Ledger) -> ResourceClaim:
        claim = make_claim("a", 1)
        ledger.observe(claim, watched=True)
        return claim

    def test_a_hold_takes_the_devices_at_once(self, ledger: Ledger, claim: ResourceClaim) -> None:
        hold = ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        assert owners(ledger, "gpu/node-1/d0") == {"uid-a"}
        assert ledger.held("uid-a") is hold
        assert (hold.owner, hold.written_version) == ("pod-1", None)

    def test_a_released_hold_gives_them_back(self, ledger: Ledger, claim: ResourceClaim) -> None:
        hold = ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        assert ledger.release(hold)
        assert ledger.in_use(POOL) == {}
        assert not ledger.release(hold), "released once only"

    @pytest.mark.parametrize("held", ["gpu/node-1/d0", "gpu/node-1/d0#s1"])
    def test_a_device_that_has_an_owner_is_refused(self, ledger: Ledger, claim: ResourceClaim, held: str) -> None:
        ledger.observe(make_claim("b", 2, ["gpu/node-1/d0"]), watched=True)
        with pytest.raises(HeldError, match="gpu/node-1/d0 is in use by claim uid-b"):
            ledger.hold(claim, make_allocation("gpu/node-1/d1", held), owner="pod-1")
        assert ledger.held("uid-a") is None
        assert set(ledger.in_use(POOL)) == {"d0"}, "nothing of a refused hold stays"

    def test_a_device_that_others_share_gets_no_owner(self, ledger: Ledger, claim: ResourceClaim) -> None:
        ledger.observe(make_claim("b", 2, ["gpu/node-1/d0#s1"]), watched=True)
        with pytest.raises(HeldError, match="gpu/node-1/d0 is in use by claim uid-b"):
            ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        ledger.hold(claim, make_allocation("gpu/node-1/d0#s2"), owner="pod-1")

    def test_a_share_that_exists_is_refused(self, ledger: Ledger, claim: ResourceClaim) -> None:
        ledger.observe(make_claim("b", 2, ["gpu/node-1/d0#s1"]), watched=True)
        with pytest.raises(HeldError, match="share s1"):
            ledger.hold(claim, make_allocation("gpu/node-1/d0#s1"), owner="pod-1")
        ledger.hold(claim, make_allocation("gpu/node-1/d0#s2"), owner="pod-1")

    def test_a_claim_is_held_once(self, ledger: Ledger, claim: ResourceClaim) -> None:
        ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        with pytest.raises(HeldError, match="in the process of being allocated"):
            ledger.hold(claim, make_allocation("gpu/node-1/d1"), owner="pod-2")

    def test_an_allocated_claim_cannot_be_held(self, ledger: Ledger) -> None:
        claim = make_claim("b", 1, ["gpu/node-1/d0"])
        ledger.observe(claim, watched=True)
        with pytest.raises(HeldError, match="allocated already"):
            ledger.hold(claim, make_allocation("gpu/node-1/d1"), owner="pod-1")

    def test_a_written_hold_ends_when_the_watch_shows_the_write(
        self, ledger: Ledger, claim: ResourceClaim, changes: list[PoolID]
    ) -> None:
        hold = ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        ledger.confirm(hold, make_claim("a", 9, ["gpu/node-1/d0"]))
        assert ledger.held("uid-a") is hold
        assert hold.written_version == 9
        ledger.observe(make_claim("a", 8), watched=True)
        assert ledger.held("uid-a") is hold
        ledger.observe(make_claim("a", 9, ["gpu/node-1/d0"]), watched=True)
        assert ledger.held("uid-a") is None
        assert owners(ledger, "gpu/node-1/d0") == {"uid-a"}
        assert changes == [POOL], "from hold to stored the use never changed"

    def test_a_hold_ends_at_once_when_the_watch_was_faster_than_the_reply(
        self, ledger: Ledger, claim: ResourceClaim
    ) -> None:
        hold = ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        ledger.observe(make_claim("a", 9, ["gpu/node-1/d0"]), watched=True)
        ledger.confirm(hold, make_claim("a", 9, ["gpu/node-1/d0"]))
        assert ledger.held("uid-a") is None

    def test_a_claim_deallocated_after_our_write_frees_its_devices(self, ledger: Ledger, claim: ResourceClaim) -> None:
        hold = ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        ledger.confirm(hold, make_claim("a", 9, ["gpu/node-1/d0"]))
        assert ledger.observe(make_claim("a", 11), watched=True)
        assert ledger.in_use(POOL) == {}

    def test_a_deleted_claim_ends_its_written_hold_but_not_one_in_flight(
        self, ledger: Ledger, claim: ResourceClaim
    ) -> None:
        hold = ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        ledger.forget("default/a", "uid-a")
        assert owners(ledger, "gpu/node-1/d0") == {"uid-a"}, "our write may still be on its way"
        ledger.confirm(hold, make_claim("a", 9, ["gpu/node-1/d0"]))
        assert ledger.in_use(POOL) == {}

    def test_a_claim_allocated_elsewhere_meanwhile_uses_both(self, ledger: Ledger, claim: ResourceClaim) -> None:
        hold = ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        ledger.observe(make_claim("a", 5, ["gpu/node-1/d1"]), watched=True)
        assert set(ledger.in_use(POOL)) == {"d0", "d1"}
        ledger.release(hold)
        assert set(ledger.in_use(POOL)) == {"d1"}

    def test_holds_are_listed(self, ledger: Ledger, claim: ResourceClaim) -> None:
        assert ledger.holds() == ()
        hold = ledger.hold(claim, make_allocation("gpu/node-1/d0"), owner="pod-1")
        assert ledger.holds() == (hold,)
