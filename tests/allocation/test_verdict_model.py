"""The verdict cache never differs from a fresh search, whatever happens to slices, classes, claims, nodes and holds.

The machine starts with equal nodes and lets them drift apart by one small change after the other, because a cache goes
wrong where two nodes look alike and are not. The fresh search shares nothing with the cache: it gathers pools from all
slices and holdings from all claims.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.allocation.allocator import Allocator
from app.allocation.decisions import Decisions
from app.allocation.plan import Failure, Plan, Refusal
from app.allocation.requests import prepare
from app.allocation.score import PrioritizedList
from app.api.core import Node
from app.api.decoding import convert
from app.api.features import FeatureGates
from app.api.meta import ObjectMeta
from app.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimStatus, ResourceSlice
from app.devices.cluster import Cluster
from app.devices.holdings import NodeHoldings, holdings_of
from app.devices.ledger import HeldError, Hold
from app.devices.nodeview import node_view

Json = dict[str, Any]

NODES = ("n0", "n1", "n2")
DEVICES = ("d0", "d1", "d2", "d3")
CLAIMS = tuple(f"c{index}" for index in range(6))
GATES = (
    *[""] * 6,
    "DRAPartitionableDevices=false",
    "DRAConsumableCapacity=false",
    "DRADeviceTaints=false",
    "DRADeviceBindingConditions=false",
)
SELECTORS = (
    *['device.driver == "gpu"'] * 3,
    'device.attributes["gpu"].?model.orValue("") == "x"',
    'device.attributes["gpu"].?model.orValue("") != "y"',
    '"root" in device.attributes["gpu"]',
    'device.capacity["gpu"].?memory.orValue(quantity("0")).compareTo(quantity("6")) > 0',
    'device.attributes["gpu"].model == "x"',
)
IN_ZONE_A = {"key": "zone", "operator": "In", "values": ["a"]}
OPEN = (
    {"allNodes": True},
    {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [IN_ZONE_A]}]}},
    {"perDeviceNodeSelection": True},
)


# --- what drivers publish ---------------------------------------------------------------------------------------------


def one_in(number: int) -> st.SearchStrategy[bool]:
    return st.integers(1, number).map(lambda drawn: drawn == 1)


ROOTS = st.sampled_from(({"int": 1}, {"int": 2}, {"bool": True}, {"string": "1"}))
MEMORY = st.sampled_from(("4", "8"))
FIRMWARE = st.sampled_from(({"version": "1.0.0"}, {"version": "not a version"}))
TAINTS = st.sampled_from(([], [{"key": "t", "effect": "NoSchedule"}], [{"key": "t", "effect": "None"}]))


def device_of(name: str, *parts: Json) -> Json:
    attributes = {
        "model": {"string": "x"},
        "root": {"int": int(name[-1]) // 2},
        "serial": {"string": f"serial-{name}"},
    }
    found: Json = {"name": name, "attributes": attributes}
    for part in parts:
        found |= part
    return found


@st.composite
def templates(draw: st.DrawFn) -> list[Json]:
    """The devices every node starts with: plain, in shares, partitions of one thing, or mixed."""
    partitioned, shared = draw(st.sampled_from(((0, 0), (1, 0), (0, 1), (1, 1), (3, 3))))
    found = []
    for name in DEVICES:
        parts = []
        if partitioned and draw(one_in(partitioned)):
            parts.append(consuming(draw(st.sampled_from("12"))))
        if shared and draw(one_in(shared)):
            parts.append(shareable(draw(MEMORY)))
        found.append(device_of(name, *parts))
    return found


def shareable(memory: str) -> Json:
    policy = {"default": "2", "validRange": {"min": "2"}}
    capacity = {"memory": {"value": memory, "requestPolicy": policy}}
    return {"capacity": capacity, "allowMultipleAllocations": True}


def consuming(units: str) -> Json:
    return {"consumesCounters": [{"counterSet": "c", "counters": {"u": {"value": units}}}]}


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Json]:
    """(field, value): attributes are merged, other fields replaced."""
    field = draw(
        st.sampled_from(
            ("model", "root", "serial", "firmware", "capacity", "share", "multi", "units", "taints", "late")
        )
    )
    if field == "model":
        return "attributes", {"model": {"string": draw(st.sampled_from("xy"))}}
    if field == "root":
        return "attributes", {"root": draw(ROOTS)}
    if field == "serial":
        return "attributes", {"serial": {"string": draw(st.sampled_from(("one", "two")))}}
    if field == "firmware":
        return "attributes", {"firmware": draw(FIRMWARE)}
    if field == "capacity":
        return "device", {"capacity": {"memory": {"value": draw(MEMORY)}}}
    if field == "share":
        return "device", shareable(draw(MEMORY))
    if field == "multi":
        return "device", {"allowMultipleAllocations": draw(st.booleans())}
    if field == "units":
        return "device", consuming(draw(st.sampled_from("12")))
    if field == "taints":
        return "device", {"taints": draw(TAINTS)}
    return "device", {"bindingConditions": ["ready"]}


def changed(device: Json, change: tuple[str, Json]) -> Json:
    field, value = change
    return device | ({"attributes": device["attributes"] | value} if field == "attributes" else value)


# --- what pods ask for ------------------------------------------------------------------------------------------------


@st.composite
def asks(draw: st.DrawFn) -> Json:
    ask: Json = {"deviceClassName": draw(st.sampled_from(("any", "any", "gpu"))), "allocationMode": "ExactCount"}
    if draw(one_in(5)):
        ask["allocationMode"] = "All"
    else:
        ask["count"] = draw(st.sampled_from((1, 1, 2, 3)))
    if draw(one_in(2)):
        ask["selectors"] = [{"cel": {"expression": draw(st.sampled_from(SELECTORS))}}]
    if draw(one_in(4)):
        ask["tolerations"] = [{"key": "t", "operator": "Exists"}]
    if draw(one_in(4)):
        ask["capacity"] = {"requests": {"memory": draw(st.sampled_from(("1", "4", "5")))}}
    return ask


@st.composite
def specs(draw: st.DrawFn) -> Json:
    requests: list[Json] = []
    for index in range(draw(st.sampled_from((1, 1, 2)))):
        if draw(one_in(4)):
            alternatives = [{"name": f"a{i}", **draw(asks())} for i in range(2)]
            requests.append({"name": f"r{index}", "firstAvailable": alternatives})
        else:
            admin = {"adminAccess": True} if draw(one_in(6)) else {}
            requests.append({"name": f"r{index}", "exactly": draw(asks()) | admin})
    found: Json = {"requests": requests}
    if draw(one_in(2)):
        kind = draw(st.sampled_from(("matchAttribute", "matchAttribute", "distinctAttribute")))
        found["constraints"] = [{kind: draw(st.sampled_from(("gpu/root", "gpu/root", "gpu/model", "gpu/serial")))}]
    return {"devices": found}


PODS = st.lists(specs(), min_size=1, max_size=2)


def claim_of(name: str, version: int, spec: Json, results: list[Json] | None = None) -> ResourceClaim:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return convert(ResourceClaim, {"metadata": metadata, "spec": spec, "status": status})


# --- the machine ------------------------------------------------------------------------------------------------------


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
        self.cluster.apply(self.slices[name])

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
                self.cluster.remove(self.slices.pop(name))

    @rule(name=st.sampled_from(NODES), zone=st.sampled_from("ab"))
    def put_node(self, name: str, zone: str) -> None:
        self.cluster.apply(convert(Node, {"metadata": {"name": name, "labels": {"zone": zone}}}))

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name: str) -> None:
        if name in self.cluster.nodes:
            self.cluster.remove(self.cluster.nodes[name])

    @rule(name=st.just("gpu"), expression=st.sampled_from(SELECTORS))
    def put_class(self, name: str, expression: str) -> None:
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        self.cluster.apply(convert(DeviceClass, {"metadata": {"name": name}, "spec": spec}))

    @rule()
    def drop_class(self) -> None:
        if "gpu" in self.cluster.classes:
            self.cluster.remove(self.cluster.classes["gpu"])

    @rule(
        selector=st.fixed_dictionaries({"device": st.sampled_from(DEVICES)}, optional={"pool": st.sampled_from(NODES)})
    )
    def put_taint_rule(self, selector: Json) -> None:
        spec = {"taint": {"key": "t", "effect": "NoExecute"}, "deviceSelector": selector}
        self.taint_rules = [convert(DeviceTaintRule, {"metadata": {"name": "rule"}, "spec": spec})]
        self.cluster.apply(self.taint_rules[0])

    @rule()
    def drop_taint_rule(self) -> None:
        if self.taint_rules:
            self.cluster.remove(self.taint_rules.pop())

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
        self.cluster.apply(claim_of(name, self.version, {}, [result]))

    @rule(name=st.sampled_from(CLAIMS))
    def give_back(self, name: str) -> None:
        self.version += 1
        self.cluster.apply(claim_of(name, self.version, {}))

    @rule(name=st.sampled_from(CLAIMS))
    def drop_claim(self, name: str) -> None:
        known = self.cluster.ledger.get("ns", name)
        if known is not None:
            self.cluster.remove(known)

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

    def fresh(self, claims: tuple[ResourceClaim, ...], node: Node) -> Plan | Refusal | Failure:
        ordered = [self.slices[name] for name in sorted(self.slices)]
        view = node_view(node, ordered, self.taint_rules, self.features)
        promised = [ResourceClaimStatus(allocation=hold.allocation) for hold in self.cluster.ledger.holds()]
        holding = [ResourceClaim(ObjectMeta(), status=status) for status in promised]
        held = holdings_of([*self.cluster.ledger.claims(), *holding], self.features)
        prepared = prepare(claims, self.cluster.classes, self.features)
        if isinstance(prepared, Failure):
            return prepared
        return Allocator(share_ids=lambda: "share").allocate(prepared, view, NodeHoldings(view, held))

    def expected(self, claims: tuple[ResourceClaim, ...]) -> tuple[list[str], dict[str, str], dict[str, int], str]:
        """Nodes that fit, refused nodes with reasons, scores; or only the first error in the order of nodes."""
        fits, refused, scores = [], {}, {}
        problem = prepare(claims, self.cluster.classes, self.features)
        if isinstance(problem, Failure):
            return [], {}, {}, problem.error
        for name in NODES:
            node = self.cluster.nodes.get(name)
            answer = self.fresh(claims, node) if node is not None else Refusal("node is not known yet", 0)
            if isinstance(answer, Failure):
                return [], {}, {}, answer.error
            if isinstance(answer, Refusal):
                refused[name] = answer.reason
            else:
                fits.append(name)
                scores[name] = PrioritizedList().settled(zip(claims, answer.allocations, strict=True))
        return fits, refused, scores, ""

    @invariant()
    def every_verdict_is_that_of_a_fresh_search(self) -> None:
        for claims in self.asked:
            found = self.decisions.verdicts(claims, NODES)
            scores = self.decisions.scores(claims, NODES)
            assert (found.fits, found.refused, scores, found.error) == self.expected(claims)

    @invariant()
    def a_plan_is_that_of_a_fresh_search(self) -> None:
        for claims in self.asked:
            for name, node in self.cluster.nodes.items():
                planned, fresh = self.decisions.plan(claims, name), self.fresh(claims, node)
                assert without_steps(planned) == without_steps(fresh)


def without_steps(answer: Plan | Refusal | Failure) -> Any:
    if isinstance(answer, Plan):
        return answer.allocations
    return answer.reason if isinstance(answer, Refusal) else ("error", answer.error)


TestVerdictMachine = VerdictMachine.TestCase
TestVerdictMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


class _AtLength(VerdictMachine):
    """The same walk, more often."""


TestVerdictMachineAtLength = pytest.mark.slow(_AtLength.TestCase)
TestVerdictMachineAtLength.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
