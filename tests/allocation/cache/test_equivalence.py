"""What makes the equivalence keys of nodes differ: everything that decisions may read of their devices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.allocation.budget import UNLIMITED, WorkBudget
from dra_extender.allocation.cache.equivalence import (
    DEVICES_PER_UNIT,
    EquivalenceKey,
    EquivalenceKeys,
    NodeReads,
    node_reads,
)
from dra_extender.allocation.requests import PreparedClaims, prepare
from dra_extender.allocation.signatures import PoolSignatures, reads_of
from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.features import GATES, FeatureGates
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import Device, DeviceAttribute, DeviceClass, ResourceSliceSpec
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.holdings import PoolStates
from dra_extender.devices.models import DeviceModel, Traits, traits_of
from dra_extender.devices.nodes import SeenNode, SeenPool
from dra_extender.devices.nodeselection import NodeSelection
from dra_extender.devices.pools import Pool
from tests.support.allocation.manynodes import exactly, wanted
from tests.support.specimens import field_specimens, specimen

ALL = msgspec.convert(dict.fromkeys(GATES, True), FeatureGates)
SAME = Traits(driver="same")


def reading(*attributes: str) -> NodeReads:
    """What the search for one device without any conditions reads, when constraints read these attributes."""
    prepared = prepare([wanted(exactly())], {"any": convert(DeviceClass, {"metadata": {"name": "any"}})}, ALL)
    assert isinstance(prepared, PreparedClaims)
    return msgspec.structs.replace(node_reads(prepared), attributes=attributes)


class Keys:
    """Equivalence keys of nodes with one pool. `based`: made from the signatures for more attributes."""

    def __init__(self, reads: NodeReads, *, based: bool = False) -> None:
        more = PoolSignatures(reads_of(reads.filters, (*reads.attributes, "same/serial", "same/a")))
        pools = PoolSignatures(reads_of(reads.filters, reads.attributes), more if based else None)
        self._keys = EquivalenceKeys(reads, pools=pools, states=PoolStates())
        self._ledger = Cluster(ALL).ledger

    def of(self, *devices: Traits, budget: WorkBudget = UNLIMITED) -> EquivalenceKey:
        somewhere = NodeSelection(specimen(ResourceSliceSpec))
        names = tuple(f"d{index}" for index, _ in enumerate(devices))
        pool = Pool(("same", "p"), names, tuple(map(DeviceModel, devices)), tuple(somewhere for _ in devices))
        seen = SeenNode(0, Node(metadata=ObjectMeta(name="n")))
        seen.pools = (SeenPool(pool),)
        return self._keys.of(seen, self._ledger, budget=budget)


def test_the_state_of_a_pool_is_charged_by_its_devices() -> None:
    def units(devices: int) -> int:
        budget = WorkBudget()
        Keys(reading()).of(*[SAME] * devices, budget=budget)
        return budget.used

    assert units(6_400) - units(3_200) >= 3_200 // 2 + 3_200 // DEVICES_PER_UNIT


CHANGES: dict[str, Any] = field_specimens(Traits)
BASED = pytest.mark.parametrize("based", [False, True])


@BASED
@pytest.mark.parametrize("field", CHANGES)
def test_devices_that_differ_in_one_trait_have_different_keys(field: str, based: bool) -> None:
    other = msgspec.structs.replace(SAME, **{field: CHANGES[field]})
    keys = Keys(reading(*other.attributes), based=based)
    assert keys.of(SAME) == keys.of(msgspec.structs.replace(SAME))
    assert keys.of(SAME) != keys.of(other)


@BASED
def test_an_ordinary_attribute_counts_only_when_it_is_read(based: bool) -> None:
    one, two = (msgspec.structs.replace(SAME, attributes={"serial": DeviceAttribute(int_=number)}) for number in (0, 1))
    unread, read = Keys(reading(), based=based), Keys(reading("same/serial"), based=based)
    assert unread.of(one, one) == unread.of(one, two)
    assert read.of(one, one) != read.of(one, two)


@BASED
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (DeviceAttribute(int_=1), DeviceAttribute(bool_=True)),
        (DeviceAttribute(string="1.0.0"), DeviceAttribute(version="1.0.0")),
        (DeviceAttribute(ints=(1,)), DeviceAttribute(bools=(True,))),
        (DeviceAttribute(), None),
    ],
)
def test_types_and_presence_of_attributes_count(
    one: DeviceAttribute, other: DeviceAttribute | None, based: bool
) -> None:
    keys = Keys(reading("same/a"), based=based)
    found = [
        keys.of(msgspec.structs.replace(SAME, attributes={} if value is None else {"a": value}))
        for value in (one, other)
    ]
    assert found[0] != found[1]


OF_NODES = {"node_name", "node_selector", "all_nodes"}
IGNORED = {"node_allocatable_resource_mappings"}


@pytest.mark.parametrize("field", sorted(set(Device.__struct_fields__) - OF_NODES - IGNORED))
def test_every_field_of_a_published_device_is_a_trait_but_its_name_and_its_nodes(field: str) -> None:
    bare = Device(name="d")
    changed = msgspec.structs.replace(bare, **{field: field_specimens(Device)[field]})
    if field == "taints":
        changed = msgspec.structs.replace(
            changed, taints=tuple(msgspec.structs.replace(taint, effect="NoSchedule") for taint in changed.taints)
        )
    assert (traits_of("d", bare) != traits_of("d", changed)) == (field != "name")
