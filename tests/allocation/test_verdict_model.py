"""The verdict cache never differs from a fresh search, whatever happens to slices, classes, claims, nodes and holds.

The fresh search shares nothing with the cache: it gathers pools from all slices and holdings from all claims.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.allocation.allocator import Allocator
from app.allocation.decisions import Decisions
from app.allocation.plan import Failure, Plan, Refusal
from app.allocation.requests import prepare
from app.allocation.score import score as raw_score
from app.api.core import Node
from app.api.decoding import convert, to_builtins
from app.api.features import FeatureGates
from app.api.resource import AllocationResult, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from app.devices.cluster import Cluster
from app.devices.holdings import Holdings, NodeHoldings
from app.devices.ledger import HeldError, Hold
from app.devices.pools import node_view

NODES = ("n0", "n1", "n2", "n3")
SLICES = tuple(f"s{index}" for index in range(7))
CLAIMS = ("c0", "c1", "c2")
CLASSES = ("any", "gpu", "big")
EXPRESSIONS = (
    "true",
    'device.driver == "gpu"',
    'device.attributes["gpu"].model == "x"',
    'device.attributes["gpu"].?model.orValue("") == "x"',
    'device.capacity["gpu"].?memory.orValue(quantity("0")).compareTo(quantity("4")) >= 0',
)

# --- objects ----------------------------------------------------------------------------------------------------------


def _maybe(draw: st.DrawFn, one_in: int) -> bool:
    return draw(st.integers(1, one_in)) == 1


@st.composite
def devices(draw: st.DrawFn, counters: bool, own_selection: bool) -> list[dict[str, Any]]:
    found = []
    for name in draw(st.lists(st.sampled_from(("d0", "d1", "d2", "d3")), min_size=1, max_size=4, unique=True)):
        device: dict[str, Any] = {"name": name, "attributes": {}}
        if not _maybe(draw, 6):
            device["attributes"]["model"] = {"string": draw(st.sampled_from("xxy"))}
        if not _maybe(draw, 4):
            device["attributes"]["gpu/root"] = draw(st.sampled_from(({"int": 1}, {"int": 2}, {"bool": True})))
        device["attributes"]["serial"] = {"string": draw(st.sampled_from(("0", "1")))}
        if _maybe(draw, 3):
            device["capacity"] = {"memory": {"value": draw(st.sampled_from(("4", "8")))}}
            if _maybe(draw, 2):
                device["allowMultipleAllocations"] = True
                device["capacity"]["memory"]["requestPolicy"] = {"default": "2", "validRange": {"min": "2"}}
        if counters and not _maybe(draw, 3):
            units = draw(st.sampled_from(("1", "2")))
            device["consumesCounters"] = [{"counterSet": "c", "counters": {"u": {"value": units}}}]
        if _maybe(draw, 6):
            device["taints"] = [{"key": "t", "effect": draw(st.sampled_from(("NoSchedule", "None")))}]
        if _maybe(draw, 8):
            device["bindingConditions"] = ["ready"]
        if own_selection:
            device |= draw(st.sampled_from(({"nodeName": "n0"}, {"nodeName": "n1"}, {"allNodes": True})))
        found.append(device)
    return found


@st.composite
def slices(draw: st.DrawFn) -> ResourceSlice:
    node = draw(st.sampled_from(NODES))
    kind = draw(st.sampled_from(("own", "own", "own", "own", "counters", "counted", "all", "zone", "per device")))
    count = 2 if kind in ("counters", "counted") else draw(st.sampled_from((1, 1, 1, 1, 2)))
    pool = node if kind in ("own", "counters", "counted") else draw(st.sampled_from(("p", "q")))
    spec: dict[str, Any] = {
        "driver": draw(st.sampled_from(("gpu", "gpu", "nic"))),
        "pool": {"name": pool, "generation": draw(st.sampled_from((1, 1, 1, 2))), "resourceSliceCount": count},
    }
    if kind == "counters":
        units = draw(st.sampled_from(("2", "3")))
        spec |= {"nodeName": node, "sharedCounters": [{"name": "c", "counters": {"u": {"value": units}}}]}
    else:
        spec["devices"] = draw(devices(kind == "counted", kind == "per device"))
        spec |= {
            "all": {"allNodes": True},
            "zone": {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a"]}]}]}},
            "per device": {"perDeviceNodeSelection": True},
        }.get(kind, {"nodeName": node})  # fmt: skip
    return convert(ResourceSlice, {"metadata": {"name": draw(st.sampled_from(SLICES))}, "spec": spec})


@st.composite
def exact_requests(draw: st.DrawFn) -> dict[str, Any]:
    request: dict[str, Any] = {"deviceClassName": draw(st.sampled_from(CLASSES)), "allocationMode": "ExactCount"}
    if _maybe(draw, 6):
        request["allocationMode"] = "All"
    else:
        request["count"] = draw(st.integers(1, 2))
    if _maybe(draw, 4):
        request["selectors"] = [{"cel": {"expression": draw(st.sampled_from(EXPRESSIONS))}}]
    if _maybe(draw, 4):
        request["tolerations"] = [{"key": "t", "operator": "Exists"}]
    if _maybe(draw, 5):
        request["capacity"] = {"requests": {"memory": draw(st.sampled_from(("1", "4", "9")))}}
    return request


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    requests: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, 2))):
        if _maybe(draw, 4):
            alternatives = [{"name": f"a{i}", **draw(exact_requests())} for i in range(2)]
            requests.append({"name": f"r{index}", "firstAvailable": alternatives})
        else:
            exact = draw(exact_requests())
            if _maybe(draw, 8):
                exact["adminAccess"] = True
            requests.append({"name": f"r{index}", "exactly": exact})
    found: dict[str, Any] = {"requests": requests}
    if _maybe(draw, 3):
        kind = draw(st.sampled_from(("matchAttribute", "distinctAttribute")))
        found["constraints"] = [{kind: draw(st.sampled_from(("gpu/root", "gpu/model", "gpu/serial")))}]
    return {"devices": found}


def _claim(name: str, version: int, spec: dict[str, Any], status: dict[str, Any] | None = None) -> ResourceClaim:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return convert(ResourceClaim, {"metadata": metadata, "spec": spec, "status": status or {}})


@st.composite
def allocations(draw: st.DrawFn) -> dict[str, Any]:
    results = []
    for index in range(draw(st.integers(1, 2))):
        result: dict[str, Any] = {
            "request": "r", "driver": draw(st.sampled_from(("gpu", "gpu", "nic"))),
            "pool": draw(st.sampled_from((*NODES, "p"))), "device": draw(st.sampled_from(("d0", "d1", "d2", "d3"))),
        }  # fmt: skip
        if _maybe(draw, 4):
            result |= {"shareID": f"share-{index}", "consumedCapacity": {"memory": draw(st.sampled_from("24"))}}
        results.append(result)
    return {"devices": {"results": results}}


# --- the machine ------------------------------------------------------------------------------------------------------


class VerdictMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.slices: dict[str, ResourceSlice] = {}
        self.taints: dict[str, DeviceTaintRule] = {}
        self.holds: list[Hold] = []
        self.asked: list[tuple[ResourceClaim, ...]] = []

    @initialize(
        gates=st.sampled_from(("", "DRAPartitionableDevices=false", "DRAConsumableCapacity=false", "DRADeviceTaints=false",
                               "DRADeviceBindingConditions=false")),
        first=st.lists(specs(), min_size=1, max_size=2),
        more=st.lists(specs(), min_size=1, max_size=2),
    )  # fmt: skip
    def begin(self, gates: str, first: list[dict[str, Any]], more: list[dict[str, Any]]) -> None:
        self.features = FeatureGates.parse(gates)
        self.cluster = Cluster(self.features)
        self.decisions = Decisions(self.cluster, share_ids=lambda: "share")
        for specs_of_pod in (first, more):
            self.asked.append(tuple(_claim(f"asked-{i}", 1, spec) for i, spec in enumerate(specs_of_pod)))
        for name in NODES:
            self.put_node(name, "a")
        for name in CLASSES:
            self.put_class(name, 'device.driver == "gpu"' if name == "gpu" else "true")

    @rule(item=slices())
    def put_slice(self, item: ResourceSlice) -> None:
        self.slices[item.metadata.name] = item
        self.cluster.apply(item)

    @rule(source=st.sampled_from(SLICES), node=st.sampled_from(NODES))
    def copy_slice_to_another_node(self, source: str, node: str) -> None:
        found = self.slices.get(source)
        if found is not None and found.spec.node_name:
            pool = {"name": node, "generation": found.spec.pool.generation,
                    "resourceSliceCount": found.spec.pool.resource_slice_count}  # fmt: skip
            copied = convert(
                ResourceSlice,
                _plain(found, metadata={"name": f"{source}-{node}"}, pool=pool, node=node),
            )
            self.put_slice(copied)

    @rule(name=st.sampled_from(SLICES))
    def drop_slice(self, name: str) -> None:
        found = self.slices.pop(name, None)
        if found is not None:
            self.cluster.remove(found)

    @rule(name=st.sampled_from(NODES), zone=st.sampled_from("ab"))
    def put_node(self, name: str, zone: str) -> None:
        self.cluster.apply(convert(Node, {"metadata": {"name": name, "labels": {"zone": zone}}}))

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name: str) -> None:
        if name in self.cluster.nodes:
            self.cluster.remove(self.cluster.nodes[name])

    @rule(name=st.sampled_from(CLASSES), expression=st.sampled_from(EXPRESSIONS))
    def put_class(self, name: str, expression: str) -> None:
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        self.cluster.apply(convert(DeviceClass, {"metadata": {"name": name}, "spec": spec}))

    @rule(name=st.sampled_from(CLASSES))
    def drop_class(self, name: str) -> None:
        if name in self.cluster.classes:
            self.cluster.remove(self.cluster.classes[name])

    @rule(selected=st.fixed_dictionaries({}, optional={"pool": st.sampled_from(NODES), "device": st.just("d0")}))
    def put_taint_rule(self, selected: dict[str, str]) -> None:
        spec = {"taint": {"key": "t", "effect": "NoExecute"}, "deviceSelector": selected}
        self.taints["r"] = convert(DeviceTaintRule, {"metadata": {"name": "r"}, "spec": spec})
        self.cluster.apply(self.taints["r"])

    @rule()
    def drop_taint_rule(self) -> None:
        if self.taints:
            self.cluster.remove(self.taints.pop("r"))

    @rule(name=st.sampled_from(CLAIMS), allocation=st.none() | allocations())
    def put_claim(self, name: str, allocation: dict[str, Any] | None) -> None:
        self.version += 1
        self.cluster.apply(_claim(name, self.version, {}, {"allocation": allocation} if allocation else None))

    @rule(name=st.sampled_from(CLAIMS))
    def drop_claim(self, name: str) -> None:
        known = self.cluster.ledger.get("ns", name)
        if known is not None:
            self.cluster.remove(known)

    @rule(pod=st.integers(0, 1), node=st.sampled_from(NODES))
    def hold_a_plan(self, pod: int, node: str) -> None:
        self.version += 1
        found = self.decisions.plan(self.asked[pod], node)
        if not isinstance(found, Plan):
            return
        for index, allocation in enumerate(found.allocations):
            self.hold(_claim(f"held-{self.version}-{index}", self.version, {}), allocation)

    def hold(self, claim: ResourceClaim, allocation: AllocationResult) -> None:
        try:
            self.holds.append(self.cluster.ledger.hold(claim, allocation, owner="pod"))
        except HeldError:
            return

    @rule(which=st.integers(0, 10))
    def release(self, which: int) -> None:
        if self.holds:
            self.cluster.release(self.holds.pop(which % len(self.holds)))

    # --- the promise -------------------------------------------------------------------------------------------------

    def fresh(self, claims: tuple[ResourceClaim, ...], node: Node) -> Plan | Refusal | Failure:
        ordered = [self.slices[name] for name in sorted(self.slices)]
        view = node_view(node, ordered, list(self.taints.values()), self.features)
        held = Holdings.of_claims(self.cluster.ledger.claims(), self.features)
        held = held.holding(hold.allocation for hold in self.cluster.ledger.holds())
        prepared = prepare(claims, dict(self.cluster.classes), self.features)
        if isinstance(prepared, Failure):
            return prepared
        return Allocator(share_ids=lambda: "share").allocate(prepared, view, NodeHoldings(view, held))

    @invariant()
    def every_verdict_is_that_of_a_fresh_search(self) -> None:
        for claims in self.asked:
            found = self.decisions.verdicts(claims, NODES)
            scores = self.decisions.scores(claims, NODES)
            assert found.generation == self.cluster.generation
            fits, refused, error = [], {}, ""
            for name in NODES:
                node = self.cluster.nodes.get(name)
                answer = self.fresh(claims, node) if node is not None else Refusal("node is not known yet", 0)
                if isinstance(answer, Failure):
                    error = answer.error
                    break
                if isinstance(answer, Refusal):
                    refused[name] = answer.reason
                else:
                    fits.append(name)
                    assert error or scores.get(name, -1) in (
                        -1,
                        raw_score(zip(claims, answer.allocations, strict=True)),
                    )
            if error:
                assert bool(found.error) and not found.fits and not found.refused and not scores
            else:
                assert (found.fits, found.refused, found.error) == (fits, refused, "")
                assert sorted(scores) == sorted(fits)

    @invariant()
    def a_plan_is_that_of_a_fresh_search(self) -> None:
        for claims in self.asked:
            for name in self.cluster.nodes:
                planned, fresh = self.decisions.plan(claims, name), self.fresh(claims, self.cluster.nodes[name])
                assert type(planned) is type(fresh)
                if isinstance(planned, Plan) and isinstance(fresh, Plan):
                    assert planned.allocations == fresh.allocations
                elif isinstance(planned, Refusal) and isinstance(fresh, Refusal):
                    assert planned.reason == fresh.reason


def _plain(item: ResourceSlice, *, metadata: dict[str, Any], pool: dict[str, Any], node: str) -> dict[str, Any]:
    plain: dict[str, Any] = to_builtins(item)
    plain["metadata"] = metadata
    plain["spec"] |= {"pool": pool, "nodeName": node}
    return plain


TestVerdictMachine = VerdictMachine.TestCase
TestVerdictMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
