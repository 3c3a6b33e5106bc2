"""The device report for a client that follows it: what changes between two refreshes, and how little is counted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, Removed
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.http.page.parts import DevicesPart, DeviceUpdates
from dra_extender.scheduling.view import View
from tests.support.diagnosis.hardware import device_class, gpus
from tests.support.diagnosis.heldcluster import GPU, SHARE, claim, scene, shared_by
from tests.support.questions import device_report

PartID = tuple[str, str, str]


class Followed:
    """A view whose cluster changes, and what a client of it knows."""

    def __init__(self) -> None:
        self.view: View = scene().view()
        self.cluster = cast(Cluster, self.view.cluster)
        self.following = DeviceUpdates(self.view)
        self.parts: dict[PartID, DevicesPart] = {}

    def look(self) -> dict[PartID, DevicesPart | None]:
        found: dict[PartID, DevicesPart | None] = {}
        for difference in self.following.refresh():
            if isinstance(difference, str):
                _, driver, pool, node = difference.split("\n")
                found[driver, pool, node] = None
                del self.parts[driver, pool, node]
            elif difference is not None:
                found[difference.driver, difference.pool, difference.node] = difference
        self.parts |= {id: part for id, part in found.items() if part is not None}
        return found

    def apply(self, kind: Any, document: dict[str, Any]) -> None:
        self.cluster.apply(Applied(convert(kind, document)))


@pytest.fixture
def followed() -> Followed:
    made = Followed()
    made.look()
    return made


def told(parts: dict[PartID, DevicesPart]) -> set[tuple[str, str, str, str, str, float, tuple[str, ...]]]:
    return {
        (part.driver, part.pool, part.node, row.name, row.state, row.fill, part.classes[row.classes])
        for part in parts.values()
        for row in part.devices
    }


def test_the_parts_together_are_the_report(followed: Followed) -> None:
    whole = {
        (d.driver, d.pool, d.node, d.name, d.state, d.fill, d.classes) for d in device_report(followed.view).devices
    }
    assert told(followed.parts) == whole


def test_a_second_look_at_the_same_cluster_counts_nothing(followed: Followed) -> None:
    before = followed.following.counted
    assert followed.look() == {}
    assert followed.following.counted == before


def test_no_step_counts_more_than_one_pool() -> None:
    following = DeviceUpdates(scene().view())
    taken = [following.counted for _ in following.refresh()]
    assert max(after - before for before, after in zip([0, *taken], taken, strict=False)) == 1
    assert following.counted == taken[-1] > 5


def test_a_claim_that_gets_a_device_changes_one_part(followed: Followed) -> None:
    before = followed.following.counted
    followed.apply(ResourceClaim, claim("more", GPU, "a2", "gpu-3", namespace="team"))
    assert set(followed.look()) == {(GPU, "a2-gpu", "a2")}
    assert followed.following.counted == before + 1
    (row,) = (row for row in followed.parts[GPU, "a2-gpu", "a2"].devices if row.name == "gpu-3")
    assert (row.state, row.claims, row.holders) == ("used", ("team/more",), 1)


def test_a_device_that_is_free_again_changes_one_part(followed: Followed) -> None:
    held = followed.view.ledger.get("default", "train")
    assert held is not None
    followed.cluster.apply(Removed.of(held))
    assert set(followed.look()) == {(GPU, "a1-gpu", "a1")}
    assert {row.state for row in followed.parts[GPU, "a1-gpu", "a1"].devices} == {"free"}


def test_a_pool_that_goes_is_told(followed: Followed) -> None:
    (published,) = (item for item in followed.view.cluster.inventory.slices() if item.spec.pool.name == "a1-gpu")
    followed.cluster.apply(Removed.of(published))
    assert followed.look() == {(GPU, "a1-gpu", "a1"): None}


def test_a_pool_that_comes_is_told(followed: Followed) -> None:
    followed.apply(ResourceSlice, gpus("new", "H100", 2, "80Gi", "1.0.0"))
    (found,) = followed.look().values()
    assert found is not None
    assert (found.node, len(found.devices)) == ("new", 2)


def test_devices_are_in_other_classes_when_a_class_changes(followed: Followed) -> None:
    followed.apply(DeviceClass, device_class("shares", f'device.driver == "{SHARE}"'))
    changed = {id[0] for id in followed.look()}
    assert changed == {SHARE}
    assert any("shares" in classes for part in followed.parts.values() for classes in part.classes)


def test_counters_of_a_pool_are_told_with_what_is_taken(followed: Followed) -> None:
    (part,) = (part for id, part in followed.parts.items() if id[1] == "m1-mig")
    assert [(counter.name, counter.used, counter.of) for counter in part.counters] == [("card/memory", "40Gi", "80Gi")]
    assert (part.sets, {row.set for row in part.devices}) == ((("card", 50.0),), {0})


def test_devices_refer_to_their_models(followed: Followed) -> None:
    part = followed.parts[GPU, "a1-gpu", "a1"]
    assert {part.models[row.model] for row in part.devices} == {"A100"}
    assert {row.set for row in part.devices} == {-1}


def test_holders_that_a_report_does_not_list_are_counted() -> None:
    (part,) = (each for each in DeviceUpdates(shared_by(300, 1).view()).refresh() if isinstance(each, DevicesPart))
    assert [(row.holders, len(row.claims)) for row in part.devices] == [(300, 5)]
