"""Answers of questions without an event loop."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.devicereport.listing import EVERYTHING, DeviceQuery, reporting
from dra_extender.insight.devicereport.report import DeviceReport
from dra_extender.insight.headroom import DECISIONS, GangShape, Headroom, measuring
from dra_extender.insight.manifests import Draft, HypotheticalObject
from dra_extender.insight.whatif.simulation import Simulation, request_of, simulation
from dra_extender.insight.whatif.whatif import Changes, WhatIf, simulating
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.report import Diagnosis
from dra_extender.scheduling.turns import run_at_once
from dra_extender.scheduling.view import View


def diagnose(
    view: View, pod: Pod, names: Sequence[str] | None = None, claims: Iterable[ResourceClaim] = ()
) -> Diagnosis:
    return run_at_once(diagnosing(view, pod, names, claims))


def device_report(view: View, wanted: DeviceQuery = EVERYTHING) -> DeviceReport:
    return run_at_once(reporting(view, wanted))


def headroom(
    view: View, what: str, claims: Sequence[ResourceClaim], gang: GangShape | None = None, *, most: int = DECISIONS
) -> Headroom:
    return run_at_once(measuring(view, what, claims, gang, most=most))


def what_if(
    view: View, changes: Changes, drafts: Sequence[Draft] | None = None, objects: Sequence[HypotheticalObject] = ()
) -> WhatIf:
    return run_at_once(simulating(view, changes, drafts, objects))


def simulate(view: View, **body: Any) -> Simulation:
    return run_at_once(simulation(view, request_of(json.dumps(body).encode())))
