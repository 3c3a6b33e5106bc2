"""The verdict cache never differs from a fresh search, whatever happens to slices, classes, claims, nodes and holds.

A device that has shares and is exclusive now counts as in use, unlike in the allocator itself.

The machine starts with equal nodes and lets them drift apart by one small change after the other, because a cache goes
wrong where two nodes look alike and are not. The fresh search shares nothing with the cache: it gathers pools from all
slices and holdings from all claims.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from dra_extender.allocation.allocator import Allocator
from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.plan import Failure, Plan, Unfit, score_of
from dra_extender.allocation.requests import Filters, prepare
from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, Removed
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimStatus, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.ledger import HeldError, Hold
from dra_extender.devices.usage import holdings_of
from tests.support.allocation.changingnodes import (
    CLAIMS,
    DEVICES,
    GATES,
    NODES,
    OPEN,
    PODS,
    SELECTORS,
    Json,
    changed,
    changes,
    claim_of,
    device_of,
    templates,
)
from tests.support.examples import examples


class VerdictMachine(RuleBasedStateMachine):
    """`published` are the devices of each node's own pool; `units` what its counter set offers, 0 when it has none."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.slices: dict[str, ResourceSlice] = {}
        self.taint_rules: list[DeviceTaintRule] = []
        self.holds: list[Hold] = []
        self.published: dict[str, list[Json]] = {}
        self.units: dict[str, int] = {}

    @initialize(
        gates=st.sampled_from(GATES),
        pods=st.tuples(PODS, PODS, PODS),
        template=templates(),
        units=st.sampled_from((2, 3, 4)),
    )
    def begin(self, gates: str, pods: tuple[list[Json], ...], template: list[Json], units: int) -> None:
        self.features = FeatureGates.parse(gates)
        self.cluster = Cluster(self.features)
        self.filters = Filters()
        self.decisions = Decisions(self.cluster, share_ids=lambda: "share")
        self.asked = [tuple(claim_of(f"asked-{i}", 1, spec) for i, spec in enumerate(pod)) for pod in pods]
        self.put_class("any", "true")
        self.put_class("gpu", SELECTORS[0])
        for name in NODES:
            self.put_node(name, "a")
            self.published[name] = [dict(device) for device in template]
            self.units[name] = units
            self.publish(name)

    def publish(self, node: str, *, count: int = 2, generation: int = 1) -> None:
        pool = {"name": node, "generation": generation, "resourceSliceCount": count}
        spec = {"driver": "gpu", "pool": pool, "nodeName": node}
        counters = [{"name": "c", "counters": {"u": {"value": str(self.units[node])}}}] if self.units[node] else []
        self.put_slice(f"{node}-counters", spec | {"sharedCounters": counters} if counters else spec)
        self.put_slice(f"{node}-devices", spec | {"devices": self.published[node]})

    def put_slice(self, name: str, spec: Json) -> None:
        self.slices[name] = convert(ResourceSlice, {"metadata": {"name": name}, "spec": spec})
        self.cluster.apply(Applied(self.slices[name]))

    # --- slices, nodes, classes, rules -------------------------------------------------------------------------------

    @rule(node=st.sampled_from(NODES), index=st.integers(0, 3), change=changes())
    def change_a_device(self, node: str, index: int, change: tuple[str, Json]) -> None:
        self.published[node][index] = changed(self.published[node][index], change)
        self.publish(node)

    @rule(node=st.sampled_from(NODES), change=changes())
    def change_all_devices(self, node: str, change: tuple[str, Json]) -> None:
        self.published[node] = [changed(device, change) for device in self.published[node]]
        self.publish(node)

    @rule(node=st.sampled_from(NODES), index=st.integers(0, 3), name=st.sampled_from(("root", "model")))
    def take_an_attribute_away(self, node: str, index: int, name: str) -> None:
        device = self.published[node][index]
        kept = {key: value for key, value in device["attributes"].items() if key != name}
        self.published[node][index] = device | {"attributes": kept}
        self.publish(node)

    @rule(node=st.sampled_from(NODES), order=st.permutations(range(4)))
    def list_devices_in_another_order(self, node: str, order: list[int]) -> None:
        self.published[node] = [self.published[node][index] for index in order]
        self.publish(node)

    @rule(node=st.sampled_from(NODES), units=st.sampled_from((0, 2, 3, 4)))
    def change_counters(self, node: str, units: int) -> None:
        self.units[node] = units
        self.publish(node)

    @rule(node=st.sampled_from(NODES), count=st.sampled_from((2, 2, 3)), generation=st.sampled_from((1, 2)))
    def change_the_pool(self, node: str, count: int, generation: int) -> None:
        self.publish(node, count=count, generation=generation)

    @rule(
        name=st.sampled_from(("s", "t")),
        where=st.sampled_from(OPEN),
        parts=st.sampled_from(([], [{"allowMultipleAllocations": True}])),
        node=st.sampled_from(NODES),
    )
    def publish_for_many(self, name: str, where: Json, parts: list[Json], node: str) -> None:
        own = {"nodeName": node} if "perDeviceNodeSelection" in where else {}
        pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
        devices = [device_of("d0", own, *parts)]
        self.put_slice(name, {"driver": "gpu", "pool": pool, "devices": devices, **where})

    @precondition(lambda self: len(self.slices) > 2 * len(NODES))
    @rule()
    def withdraw_from_many(self) -> None:
        for name in ("s", "t"):
            if name in self.slices:
                self.cluster.apply(Removed.of(self.slices.pop(name)))

    @rule(name=st.sampled_from(NODES), zone=st.sampled_from("ab"))
    def put_node(self, name: str, zone: str) -> None:
        self.cluster.apply(Applied(convert(Node, {"metadata": {"name": name, "labels": {"zone": zone}}})))

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name: str) -> None:
        if name in self.cluster.nodes:
            self.cluster.apply(Removed.of(self.cluster.nodes[name]))

    @rule(name=st.just("gpu"), expression=st.sampled_from(SELECTORS))
    def put_class(self, name: str, expression: str) -> None:
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        self.cluster.apply(Applied(convert(DeviceClass, {"metadata": {"name": name}, "spec": spec})))

    @rule()
    def drop_class(self) -> None:
        if "gpu" in self.cluster.classes:
            self.cluster.apply(Removed.of(self.cluster.classes["gpu"]))

    @rule(
        selector=st.fixed_dictionaries({"device": st.sampled_from(DEVICES)}, optional={"pool": st.sampled_from(NODES)})
    )
    def put_taint_rule(self, selector: Json) -> None:
        spec = {"taint": {"key": "t", "effect": "NoExecute"}, "deviceSelector": selector}
        self.taint_rules = [convert(DeviceTaintRule, {"metadata": {"name": "rule"}, "spec": spec})]
        self.cluster.apply(Applied(self.taint_rules[0]))

    @rule()
    def drop_taint_rule(self) -> None:
        if self.taint_rules:
            self.cluster.apply(Removed.of(self.taint_rules.pop()))

    # --- claims and holds --------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(CLAIMS),
        pool=st.sampled_from((*NODES, *NODES, "fabric")),
        device=st.sampled_from(DEVICES),
        memory=st.sampled_from((None, None, "2", "4")),
    )
    def take_a_device(self, name: str, pool: str, device: str, memory: str | None) -> None:
        self.version += 1
        result: Json = {"request": "r", "driver": "gpu", "pool": pool, "device": device}
        if memory:
            result |= {"shareID": f"share-{self.version}", "consumedCapacity": {"memory": memory}}
        self.cluster.apply(Applied(claim_of(name, self.version, {}, [result])))

    @rule(name=st.sampled_from(CLAIMS))
    def give_back(self, name: str) -> None:
        self.version += 1
        self.cluster.apply(Applied(claim_of(name, self.version, {})))

    @rule(name=st.sampled_from(CLAIMS))
    def drop_claim(self, name: str) -> None:
        known = self.cluster.ledger.get("ns", name)
        if known is not None:
            self.cluster.apply(Removed.of(known))

    @rule(pod=st.integers(0, 2), node=st.sampled_from(NODES))
    def hold_a_plan(self, pod: int, node: str) -> None:
        found = self.decisions.plan(self.asked[pod], node)
        for index, allocation in enumerate(found.allocations if isinstance(found, Plan) else ()):
            self.version += 1
            claim = claim_of(f"held-{self.version}-{index}", self.version, {})
            try:
                self.holds.append(self.cluster.ledger.hold(claim, allocation, owner="pod"))
            except HeldError:  # two claims of the pod share a device, and all share IDs are equal here
                continue

    @precondition(lambda self: self.holds)
    @rule(which=st.integers(0, 10))
    def release(self, which: int) -> None:
        self.cluster.ledger.release(self.holds.pop(which % len(self.holds)))

    # --- the promise -------------------------------------------------------------------------------------------------

    def fresh(self, claims: tuple[ResourceClaim, ...], node: Node) -> Plan | Unfit | Failure:
        ordered = [self.slices[name] for name in sorted(self.slices)]
        view = node_view(node, ordered, self.taint_rules, self.features)
        promised = [ResourceClaimStatus(allocation=hold.allocation) for hold in self.cluster.ledger.holds()]
        holding = [ResourceClaim(ObjectMeta(), status=status) for status in promised]
        held = holdings_of([*self.cluster.ledger.claims(), *holding], self.features)
        for pool, state in held.items():
            places = ((name, view.bits.get((*pool, name))) for name in state.shared)
            exclusive = {name for name, place in places if place is not None and not view.multi >> place & 1}
            held[pool] = replace(state, owned=state.owned | exclusive)
        prepared = prepare(claims, self.cluster.classes, self.features, self.filters)
        if isinstance(prepared, Failure):
            return prepared
        return Allocator(share_ids=lambda: "share").allocate(prepared, view, NodeHoldings(view, held))

    def expected(self, claims: tuple[ResourceClaim, ...]) -> tuple[list[str], dict[str, str], dict[str, int], str]:
        """Nodes that fit, refused nodes with reasons, scores; or only the first error in the order of nodes."""
        fits, refused, scores = [], {}, {}
        problem = prepare(claims, self.cluster.classes, self.features, self.filters)
        if isinstance(problem, Failure):
            return [], {}, {}, problem.error
        for name in NODES:
            node = self.cluster.nodes.get(name)
            answer = self.fresh(claims, node) if node is not None else Unfit("node not synced yet", 0)
            if isinstance(answer, Failure):
                return [], {}, {}, answer.error
            if isinstance(answer, Unfit):
                refused[name] = answer.reason
            else:
                fits.append(name)
                scores[name] = score_of(zip(claims, answer.allocations, strict=True))
        return fits, refused, scores, ""

    @invariant()
    def every_verdict_is_that_of_a_fresh_search(self) -> None:
        for claims in self.asked:
            found = self.decisions.node_results(claims, NODES)
            scores = self.decisions.scores(claims, NODES)
            assert (found.fits, found.refused, scores, found.error) == self.expected(claims)

    @invariant()
    def a_plan_is_that_of_a_fresh_search(self) -> None:
        for claims in self.asked:
            for name, node in self.cluster.nodes.items():
                planned, fresh = self.decisions.plan(claims, name), self.fresh(claims, node)
                assert without_steps(planned) == without_steps(fresh)


def without_steps(answer: Plan | Unfit | Failure) -> Any:
    if isinstance(answer, Plan):
        return answer.allocations
    return answer.reason if isinstance(answer, Unfit) else ("error", answer.error)


TestVerdictMachine = VerdictMachine.TestCase
TestVerdictMachine.settings = settings(max_examples=examples(15), stateful_step_count=25)
