"""Scenarios as JSON: one decision each, self-contained, the form in which conformance is tested.

A scenario is an object with `name`, `node`, `slices`, `classes`, `taintRules`, `allocatedClaims`, `claims` (lists of
API objects, resource.k8s.io/v1 or the betas converted to it), `features` (the gates that are on; absent: all of 1.36)
and `release` (the Kubernetes release whose rules hold: 1.36 or 1.37; absent: 1.36). The answer has `name`, `kind`
(`allocated`, `unschedulable` or `error`), `allocations`, `error`, `steps` and `micros`.

Promises: pure; never raises for what a scenario contains; an object that cannot be decoded is an `error` that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from dra_extender.allocation.allocator import Allocator, ShareIDs
from dra_extender.allocation.plan import STEP_BUDGET, Failure, Plan, Unfit
from dra_extender.allocation.requests import prepare
from dra_extender.api.core import Node
from dra_extender.api.decoding import DecodeError, convert, to_builtins
from dra_extender.api.features import ABSENT, GATES, FeatureGates, Release
from dra_extender.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.usage import holdings_of

T = TypeVar("T")


class Scenario:
    def __init__(self, case: Mapping[str, Any]) -> None:
        """Raises DecodeError or ValueError."""
        self.name = str(case.get("name", ""))
        self.features = features_of(case.get("features"), case.get("release", "1.36"))
        self.node = convert(Node, case.get("node") or {"metadata": {}})
        self.slices = _objects(ResourceSlice, case.get("slices"))
        self.classes = {item.metadata.name: item for item in _objects(DeviceClass, case.get("classes"))}
        self.rules = _objects(DeviceTaintRule, case.get("taintRules"))
        self.allocated = _objects(ResourceClaim, case.get("allocatedClaims"))
        self.claims = _objects(ResourceClaim, case.get("claims"))


def answer(
    case: Mapping[str, Any], *, share_ids: ShareIDs, nanoseconds: Callable[[], int], step_budget: int = STEP_BUDGET
) -> dict[str, Any]:
    """The decision for one scenario; `micros` is the time from decoded objects to the answer by the clock
    `nanoseconds`.
    """
    try:
        scenario = Scenario(case)
    except (DecodeError, ValueError, TypeError, AttributeError) as problem:
        return _answer(str(case.get("name", "")), Failure(str(problem)), 0)
    started = nanoseconds()
    decision = decide(scenario, Allocator(share_ids=share_ids, step_budget=step_budget))
    return _answer(scenario.name, decision, (nanoseconds() - started) // 1000)


def decide(scenario: Scenario, allocator: Allocator) -> Plan | Unfit | Failure:
    view = node_view(scenario.node, scenario.slices, scenario.rules, scenario.features)
    holdings = NodeHoldings(view, holdings_of(scenario.allocated, scenario.features))
    prepared = prepare(scenario.claims, scenario.classes, scenario.features)
    return prepared if isinstance(prepared, Failure) else allocator.allocate(prepared, view, holdings)


def features_of(names: Sequence[str] | None, release: Release = "1.36") -> FeatureGates:
    """The gates named, joined ones by `+`; all of 1.36 when nothing is said. Raises ValueError for unknown names.

    A scenario that gives taint rules means them, so their gate need not be named.
    """
    if release not in get_args(Release):
        raise ValueError(f"release: {release!r} is unknown; known are: {', '.join(get_args(Release))}")
    named = [gate for gate in GATES if gate not in ABSENT["1.36"]] if names is None else names
    on = {part for name in named for part in str(name).split("+")} | {"DRADeviceTaintRules"}
    unknown = on.difference(GATES) | on.intersection(ABSENT[release])
    if unknown:
        known = ", ".join(gate for gate in GATES if gate not in ABSENT[release])
        raise ValueError(f"features: {', '.join(sorted(unknown))} unknown in {release}; known are: {known}")
    return FeatureGates(**{name: name in on for name in GATES}, release=release)


def _objects(kind: type[T], items: Any) -> tuple[T, ...]:
    return tuple(convert(kind, item) for item in items or ())


def _answer(name: str, decision: Plan | Unfit | Failure, micros: int) -> dict[str, Any]:
    kind, error, allocations = "allocated", "", None
    if isinstance(decision, Plan):
        allocations = [to_builtins(allocation) for allocation in decision.allocations]
    elif isinstance(decision, Unfit):
        kind, error = "unschedulable", decision.reason
    else:
        kind, error = "error", decision.error
    return {
        "name": name,
        "kind": kind,
        "allocations": allocations,
        "error": error,
        "steps": decision.steps,
        "micros": micros,
    }
