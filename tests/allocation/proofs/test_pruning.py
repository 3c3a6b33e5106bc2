"""All proofs together: shapes on which a search without them explodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.allocation.scenarios import (
    DRIVER,
    A,
    answer,
    ask,
    claim,
    device,
    devices,
    first_available,
    request,
    resource_slice,
    scenario,
)

Json = dict[str, Any]


def shares(total: int, *amounts: int) -> Json:
    """Requests for shares of devices with 100 units each, smallest first."""
    content = [device(f"d{i}", capacity={"units": "100"}, allowMultipleAllocations=True) for i in range(total)]
    wanted = [request(f"r{i}", capacity={"requests": {"units": str(n)}}) for i, n in enumerate(sorted(amounts))]
    return scenario([resource_slice(content)], [claim(*wanted)])


def cards(count: int, requests: list[Json], size: int = 4) -> Json:
    """Cards of `size` slots, cut into one full, halves and quarters."""
    content = [
        device(f"c{i}-{slots}-{k}", {"slots": slots}, counters={f"card-{i}": {"slots": str(slots)}})
        for i in range(count)
        for slots, pieces in ((size, 1), (2, size // 2), (1, size))
        for k in range(pieces)
    ]
    counters = {f"card-{i}": {"slots": str(size)} for i in range(count)}
    slices = [resource_slice(content, name="b", count=2), resource_slice(name="a", count=2, counters=counters)]
    return scenario(slices, [claim(*requests)])


def slots(name: str, amount: int, count: int = 1) -> Json:
    return request(name, count, f"{A}.slots == {amount}")


def together(groups: int, size: int, *wanted: int) -> Json:
    """Claims for devices of one group each."""
    content = [device(f"d{i}", {"index": i, "numa": i % groups}) for i in range(groups * size)]
    constraints = [{"matchAttribute": f"{DRIVER}/numa"}]
    claims = [claim(request("r", n), name=f"c{i}", constraints=constraints) for i, n in enumerate(wanted)]
    return scenario([resource_slice(content)], claims)


def triangles(count: int, pairs: int) -> Json:
    """Devices linked in triangles; each claim wants two that are linked."""
    content = [
        device(f"d{i}-{a}", {"links": [f"{a}{i}", f"{b}{i}"]}) for i in range(count) for a, b in ("ab", "bc", "ca")
    ]
    constraints = [{"matchAttribute": f"{DRIVER}/links"}]
    claims = [claim(request("r", 2), name=f"c{i}", constraints=constraints) for i in range(pairs)]
    return scenario([resource_slice(content)], claims)


def knapsacks(cards: int, count: int) -> Json:
    """As many claims for `count` devices as cards with room for no more than their smallest `count` devices."""
    sizes = [20 + 37 * index % 101 for index in range(32)]
    content = [
        device(f"c{card}-{index}", counters={f"card-{card}": {"memory": str(size)}})
        for card in range(cards)
        for index, size in enumerate(sizes)
    ]
    counters = {f"card-{card}": {"memory": str(sum(sorted(sizes)[:count]))} for card in range(cards)}
    slices = [resource_slice(content, name="b", count=2), resource_slice(name="a", count=2, counters=counters)]
    return scenario(slices, [claim(request("r", count), name=f"claim-{card}") for card in range(cards)])


PERFECT = (3, 3, 3, 7, 8, 10, 11, 14, 15, 17, 18, 20, 21, 24, 25, 27, 31, 34, 37, 40, 49, 51, 66, 66)
"""Fills six times 100 without a gap."""

LAST_NEEDS_FIRST = claim(*(request(f"r{i}", 2) for i in range(9)), request("z", 2, f"{A}.index < 2"))
TOO_MANY = claim(*(first_available(f"r{i}", ask(4), ask(2), ask(1)) for i in range(10)))


@pytest.mark.parametrize(
    ("case", "kind", "steps"),
    [
        (shares(6, *PERFECT), "allocated", 400),
        (shares(5, *[5] * 4, *[51] * 6), "unschedulable", 100),
        (shares(4, *[5] * 4, *[34] * 9), "unschedulable", 400),
        (cards(6, [slots(f"q{i}", 1) for i in range(5)] + [slots("full", 4, 5)]), "unschedulable", 5),
        (cards(6, [slots(f"q{i}", 1) for i in range(4)] + [slots("full", 4, 5)]), "allocated", 300),
        (cards(5, [slots(f"q{i}", 1) for i in range(2)] + [slots("half", 2, 9)]), "allocated", 300),
        (knapsacks(1, 8), "allocated", 100),
        (knapsacks(2, 8), "allocated", 300),
        (together(2, 12, 7, 7, 7), "unschedulable", 20),
        (together(3, 9, 1, 1, 2, 2, 3, 4, 5, 9), "allocated", 400),
        (triangles(5, 5), "allocated", 400),
        (triangles(5, 6), "unschedulable", 20),
        (scenario([resource_slice(devices(20))], [LAST_NEEDS_FIRST]), "allocated", 200),
        (scenario([resource_slice(devices(9))], [TOO_MANY]), "unschedulable", 5),
    ],
    ids=lambda value: value["claims"][0]["metadata"]["name"] if isinstance(value, dict) else str(value),
)  # fmt: skip
def test_little_work_is_done_on_shapes_that_explode(case: Json, kind: str, steps: int) -> None:
    found = answer(case)
    assert (found["kind"], found["error"] or "-")[0] == kind
    assert found["steps"] <= steps
