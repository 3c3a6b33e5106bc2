"""Binding conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.readiness import has_conditions, readiness, unavailable

Json = dict[str, Any]


def claim(*states: Json | None, stamp: str | None = "2026-01-01T00:00:00Z") -> ResourceClaim:
    """One device per state: conditions by type; None = the driver has said nothing."""
    names = [f"d{index}" for index in range(len(states))]
    base = {"driver": "x", "pool": "p"}
    results = [
        {**base, "request": "r", "device": name, "bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}
        for name in names
    ]
    devices = [
        {
            **base,
            "device": name,
            "conditions": [
                {"type": kind, "status": value, "reason": "Why", "message": "text"} for kind, value in state.items()
            ],
        }
        for name, state in zip(names, states, strict=True)
        if state is not None
    ]
    allocation: Json = {"devices": {"results": results}}
    if stamp:
        allocation["allocationTimestamp"] = stamp
    status = {"allocation": allocation, "devices": devices}
    return convert(ResourceClaim, {"metadata": {"name": "c"}, "status": status})


FAILED = "device binding failed: claim=c, reason=Why, message=text"


@pytest.mark.parametrize(
    ("states", "ready", "failed"),
    [
        ([{"ready": "True"}], True, ""),
        ([{"ready": "False"}], False, ""),
        ([{"ready": "Unknown"}], False, ""),
        ([{}], False, ""),
        ([None], False, ""),
        ([{"ready": "True"}, None], False, ""),
        ([{"ready": "True", "bad": "True"}], False, FAILED),
        ([{"bad": "False", "ready": "True"}], True, ""),
        ([None, {"bad": "True"}], False, FAILED),
    ],
)
def test_a_claim_is_ready_when_all_its_devices_are(states: list[Json | None], ready: bool, failed: str) -> None:
    found = readiness(claim(*states))
    assert (found.ready, found.failed) == (ready, failed)


def test_a_claim_without_conditions_is_always_ready() -> None:
    plain = convert(
        ResourceClaim,
        {
            "metadata": {"name": "c"},
            "status": {
                "allocation": {
                    "devices": {"results": [{"request": "r", "driver": "x", "pool": "p", "device": "d"}]},
                    "allocationTimestamp": "2020-01-01T00:00:00Z",
                }
            },
        },
    )
    assert readiness(plain).ready
    assert not has_conditions(plain)
    assert not unavailable(plain, datetime(2026, 1, 1, tzinfo=UTC), 600)


@pytest.mark.parametrize(("second", "over"), [(0, False), (599, False), (600, False), (601, True)])
def test_the_clock_starts_at_the_allocation(second: int, over: bool) -> None:
    now = datetime.fromtimestamp(datetime(2026, 1, 1, tzinfo=UTC).timestamp() + second, UTC)
    assert bool(unavailable(claim(None), now, 600)) is over
    assert not unavailable(claim({"ready": "True"}), now, 600)


def test_without_a_timestamp_nothing_times_out() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert not unavailable(claim(None, stamp=None), now, 600)
    assert not unavailable(claim(None, stamp="yesterday"), now, 600)


def test_a_failed_device_makes_the_claim_unavailable_at_once() -> None:
    assert unavailable(claim({"bad": "True"}), datetime(2026, 1, 1, tzinfo=UTC), 600)
