"""Random small scenarios for the enumerating allocator."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.allocation.enumeration import SELECTORS
from tests.support.allocation.scenarios import DRIVER, allocated, claim, device, resource_slice, scenario

Json = dict[str, Any]

ATTRIBUTES = (f"{DRIVER}/model", f"{DRIVER}/numa", "example.org/rack")
AMOUNTS = st.sampled_from(("1", "2", "3", "0.5"))


@st.composite
def _device(draw: st.DrawFn, index: int) -> Json:
    attributes: dict[str, object] = {"index": index}
    if draw(st.integers(0, 9)):
        attributes["model"] = draw(st.sampled_from(("x", "y")))
    if draw(st.booleans()):
        attributes["numa"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        attributes["example.org/rack"] = draw(st.sampled_from(("a", "b", 1)))
    counters = {"card": {"slots": draw(st.sampled_from(("1", "2")))}} if draw(st.booleans()) else None
    capacity = {"units": draw(st.sampled_from(("2", "3")))} if draw(st.booleans()) else None
    multi = {"allowMultipleAllocations": True} if draw(st.integers(0, 2)) == 0 else {}
    return device(f"dev-{index}", attributes, counters=counters, capacity=capacity, **multi)


@st.composite
def _ask(draw: st.DrawFn, *, exact: bool) -> Json:
    mode: Json = {"allocationMode": "ExactCount", "count": draw(st.integers(1, 3))}
    if draw(st.integers(0, 7)) == 0:
        mode = {"allocationMode": "All"}
    result: Json = {"deviceClassName": "any", **mode}
    expression = draw(st.sampled_from(tuple(SELECTORS)))
    if expression:
        result["selectors"] = [{"cel": {"expression": expression}}]
    if draw(st.integers(0, 3)) == 0:
        result["capacity"] = {"requests": {"units": draw(AMOUNTS)}}
    if exact and draw(st.integers(0, 7)) == 0:
        result["adminAccess"] = True
    return result


@st.composite
def _request(draw: st.DrawFn, name: str) -> Json:
    if draw(st.integers(0, 2)):
        return {"name": name, "exactly": draw(_ask(exact=True))}
    alternatives = [{"name": letter, **draw(_ask(exact=False))} for letter in "abc"[: draw(st.integers(1, 3))]]
    return {"name": name, "firstAvailable": alternatives}


@st.composite
def _claim(draw: st.DrawFn, name: str) -> Json:
    requests = [draw(_request(f"r{i}")) for i in range(draw(st.integers(1, 3)))]
    names = [item["name"] for item in requests]
    names += [f"{item['name']}/a" for item in requests if "firstAvailable" in item]
    constraints: list[Json] = []
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        kind = draw(st.sampled_from(("matchAttribute", "distinctAttribute")))
        constraint: Json = {kind: draw(st.sampled_from(ATTRIBUTES))}
        if draw(st.booleans()):
            constraint["requests"] = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        constraints.append(constraint)
    return claim(*requests, name=name, constraints=constraints)


@st.composite
def scenarios(draw: st.DrawFn) -> Json:
    """One node with one pool of up to six devices, up to three claims, perhaps some devices in use."""
    content = [draw(_device(index)) for index in range(draw(st.integers(1, 6)))]
    slices = [resource_slice(content, name="devices", count=2)]
    slices.append(resource_slice(name="counters", count=2, counters={"card": {"slots": draw(st.sampled_from("2346"))}}))
    in_use: list[Json] = []
    for item in content:
        if draw(st.integers(0, 5)) == 0:
            if item.get("allowMultipleAllocations") and draw(st.booleans()):
                share: Json = {"device": item["name"], "shareID": f"00000000-0000-4000-8000-{len(in_use):012}"}
                if "capacity" in item and draw(st.booleans()):
                    share["consumedCapacity"] = {"units": "1"}
                in_use.append(allocated(share, name=f"other-{len(in_use)}"))
            else:
                in_use.append(allocated(item["name"], name=f"other-{len(in_use)}"))
    claims = [draw(_claim(f"claim-{i}")) for i in range(draw(st.integers(1, 3)))]
    return scenario(slices, claims, in_use=in_use)
