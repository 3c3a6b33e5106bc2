"""What nodes see, kept up to date event by event, compared with gathering everything again."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.features import FeatureGates, Release
from dra_extender.api.resource import DeviceTaintRule, ResourceSlice
from dra_extender.devices.inventory import Inventory, node_view
from dra_extender.devices.pools import NodeView, Pool
from tests.support.examples import examples

NODES = ("n0", "n1", "n2")
ZONES = ("a", "b")


def selector(zone: str) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}


BROKEN = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["x"]}]}]}

SELECTION: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(NODES).map(lambda name: {"nodeName": name}),
    st.just({"allNodes": True}),
    st.sampled_from(ZONES).map(lambda zone: {"nodeSelector": selector(zone)}),
)
RARE_SELECTION = st.one_of(*([SELECTION] * 12), st.just({"nodeSelector": BROKEN}), st.just({}))


@st.composite
def devices(draw: st.DrawFn, own_selection: bool) -> list[dict[str, Any]]:
    found = []
    for name in draw(st.lists(st.sampled_from(("d0", "d1", "d2")), max_size=3, unique=True)):
        device: dict[str, Any] = {"name": name}
        if own_selection:
            device |= draw(RARE_SELECTION)
        if draw(st.booleans()):
            device["attributes"] = {"model": {"string": draw(st.sampled_from("xy"))}}
        if draw(st.integers(0, 3)) == 0:
            device["consumesCounters"] = [
                {"counterSet": draw(st.sampled_from(("c0", "c0", "c1"))), "counters": {"u": {"value": "1"}}}
            ]
        if draw(st.integers(0, 5)) == 0:
            device["bindingConditions"] = ["ready"]
        found.append(device)
    return found


@st.composite
def slices(draw: st.DrawFn) -> ResourceSlice:
    spec: dict[str, Any] = {
        "driver": draw(st.sampled_from(("gpu", "nic"))),
        "pool": {
            "name": draw(st.sampled_from(("p", "q"))),
            "generation": draw(st.sampled_from((1, 1, 2))),
            "resourceSliceCount": draw(st.sampled_from((1, 1, 2, 2, 3))),
        },
    }
    per_device = draw(st.integers(0, 4)) == 0
    spec |= {"perDeviceNodeSelection": True} if per_device else draw(RARE_SELECTION)
    if draw(st.integers(0, 4)) == 0:
        spec["sharedCounters"] = [{"name": "c0", "counters": {"u": {"value": "2"}}}]
    else:
        spec["devices"] = draw(devices(per_device))
    name = draw(st.sampled_from(("s0", "s1", "s2", "s3", "s4")))
    return convert(ResourceSlice, {"metadata": {"name": name}, "spec": spec})


def described(pool: Pool) -> tuple[Any, ...]:
    listed = tuple(
        (device.id, to_builtins(device.model.traits), _selection(device.selection)) for device in pool.devices
    )
    flags = pool.incomplete, bool(pool.invalid), pool.late, pool.elsewhere, dict(pool.unmatchable)
    return pool.id, flags, listed, dict(pool.counters), sorted(pool.consumers)


def _selection(selection: Any) -> tuple[Any, ...]:
    return selection.node_name, selection.all_nodes, selection.node_selector


def seen(view: NodeView | None) -> Any:
    assert view is not None
    if view.error:
        return "error"
    return [described(pool) for pool in view.pools if pool.devices or pool.incomplete or pool.invalid]


class InventoryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.inventory = Inventory(FeatureGates())
        self.slices: dict[str, ResourceSlice] = {}
        self.taint_rules: dict[str, DeviceTaintRule] = {}
        self.nodes: dict[str, Node] = {}
        self.position = 0
        self.known: dict[int, tuple[str, Any]] = {}

    @initialize(partitionable=st.booleans(), release=st.sampled_from(get_args(Release)))
    def choose_features(self, partitionable: bool, release: Release) -> None:
        self.features = FeatureGates(DRAPartitionableDevices=partitionable, release=release)
        self.inventory = Inventory(self.features)

    @rule(item=slices())
    def put_slice(self, item: ResourceSlice) -> None:
        self.slices[item.metadata.name] = item
        self.inventory.put_slice(item)

    @rule(name=st.sampled_from(("s0", "s1", "s2", "s3", "s4")))
    def drop_slice(self, name: str) -> None:
        self.slices.pop(name, None)
        self.inventory.drop_slice(name)

    @rule(name=st.sampled_from(NODES), zone=st.sampled_from(ZONES))
    def put_node(self, name: str, zone: str) -> None:
        self.nodes[name] = convert(Node, {"metadata": {"name": name, "labels": {"zone": zone}}})
        self.inventory.nodes.put(self.nodes[name])

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.inventory.nodes.drop(name)

    @rule(
        name=st.sampled_from("rs"),
        selected=st.fixed_dictionaries(
            {},
            optional={"driver": st.just("gpu"), "pool": st.sampled_from("pq"), "device": st.sampled_from(("d0", "d1"))},
        )
        | st.none(),
        key=st.sampled_from("kl"),
    )
    def put_rule(self, name: str, selected: dict[str, str] | None, key: str) -> None:
        spec: dict[str, Any] = {"taint": {"key": key, "effect": "NoSchedule"}}
        if selected is not None:
            spec["deviceSelector"] = selected
        self.taint_rules[name] = convert(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})
        self.inventory.put_rule(self.taint_rules[name])

    @rule(name=st.sampled_from("rs"))
    def drop_rule(self, name: str) -> None:
        self.taint_rules.pop(name, None)
        self.inventory.drop_rule(name)

    @invariant()
    def every_node_sees_what_a_fresh_look_shows(self) -> None:
        ordered = [self.slices[name] for name in sorted(self.slices)]
        rules = [self.taint_rules[name] for name in sorted(self.taint_rules)]
        for name, node in self.nodes.items():
            expected = seen(node_view(node, ordered, rules, self.features))
            assert seen(self.inventory.view(name)) == expected
        assert set(self.inventory.nodes) == set(self.nodes)

    @invariant()
    def a_pool_that_cannot_be_used_is_a_problem(self) -> None:
        reported = {problem.object.name for problem in self.inventory.problems()}
        for name in self.nodes:
            view = self.inventory.view(name)
            for pool in view.pools if view is not None else ():
                slices = [item for item in self.slices.values() if (item.spec.driver, item.spec.pool.name) == pool.id]
                if len({item.spec.pool.generation for item in slices}) == 1 and (pool.incomplete or pool.invalid):
                    assert reported & {item.metadata.name for item in slices}

    @invariant()
    def the_log_notes_every_node_that_sees_something_else_now(self) -> None:
        changes = self.inventory.nodes.changes
        noted = changes.since(self.position)
        now = {
            record.index: (name, seen(self.inventory.view(name))) for name, record in self.inventory.nodes.seen.items()
        }
        if noted is not None:
            for index in set(now) | set(self.known):
                assert index in noted or now.get(index) == self.known.get(index)
        self.known, self.position = now, changes.position


TestInventoryMachine = InventoryMachine.TestCase
TestInventoryMachine.settings = settings(max_examples=examples(60), stateful_step_count=25)
