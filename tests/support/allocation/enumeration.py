"""A tiny allocator that tries everything in the documented order: no masks, no bounds, no memory, no shared code.

It knows one node, one pool, valid slices, and of the rules: modes, alternatives, admin access, constraints on scalar
attributes, counters, shares of capacity without policies, devices in use, and selectors from a fixed list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from tests.support.allocation.scenarios import DRIVER, A

Json = dict[str, Any]
Pick = tuple[str, str]
"""(request name, device)"""

SELECTORS: dict[str, Callable[[Json], bool]] = {
    "": lambda device: True,
    f"{A}.index >= 1": lambda device: bool(device["index"] >= 1),
    f"{A}.index < 2": lambda device: bool(device["index"] < 2),
    f'{A}.model == "x"': lambda device: bool(device["model"] == "x"),
    f'{A}.?model.orValue("") != "x"': lambda device: bool(device.get("model", "") != "x"),
}
"""Expressions and what they mean for the attributes of a device; a missing key is the error."""


class Fatal(Exception):
    """The order met an error."""


class _Attempt:
    """Everything that changes while devices are tried."""

    def __init__(self, case: Json) -> None:
        self.case = case
        self.devices: list[Json] = [entry for item in case["slices"] for entry in item["spec"].get("devices", ())]
        self.owned: set[str] = set()
        self.shares: dict[str, list[Json]] = defaultdict(list)
        for other in case["allocatedClaims"]:
            for result in other["status"]["allocation"]["devices"]["results"]:
                if "shareID" in result:
                    self.shares[result["device"]].append(result.get("consumedCapacity", {}))
                else:
                    self.owned.add(result["device"])
        self.picks: list[list[tuple[Pick, Json]]] = [[] for _ in case["claims"]]


def enumerate_first(case: Json) -> Any:
    """As `scenarios.outcome`: picks per claim, `none`, or `error`."""
    attempt = _Attempt(case)
    try:
        if not _collectable(attempt):
            return "error"
        for _ in _claims(attempt, 0):
            return [[f"{name}={device}" for (name, device), _ in claim] for claim in attempt.picks]
    except Fatal:
        return "error"
    return "none"


def _attributes(device: Json) -> Json:
    return {name: next(iter(value.values())) for name, value in device.get("attributes", {}).items()}


def _selected(device: Json, ask: Json) -> bool:
    for selector in ask.get("selectors", ()):
        try:
            if not SELECTORS[selector["cel"]["expression"]](_attributes(device)):
                return False
        except KeyError:
            raise Fatal from None
    return True


def _collectable(attempt: _Attempt) -> bool:
    """Mode All looks at every device first, and no claim may need more than 32."""
    for claim in attempt.case["claims"]:
        least = 0
        for request in claim["spec"]["devices"]["requests"]:
            asks = request.get("firstAvailable") or [request["exactly"]]
            least += min(_size(attempt, ask) for ask in asks)
        if least > 32:
            return False
    return True


def _size(attempt: _Attempt, ask: Json) -> int:
    return len(_all(attempt, ask)) if ask["allocationMode"] == "All" else int(ask["count"])


def _all(attempt: _Attempt, ask: Json) -> list[Json]:
    empty = _Attempt(attempt.case)
    return [item for item in empty.devices if _selected(item, ask) and _has_capacity(empty, item, ask)]


# --- order ------------------------------------------------------------------------------------------------------------


def _claims(attempt: _Attempt, number: int) -> Iterator[None]:
    if number == len(attempt.case["claims"]):
        yield
        return
    yield from _requests(attempt, number, 0)


def _requests(attempt: _Attempt, number: int, index: int) -> Iterator[None]:
    requests = attempt.case["claims"][number]["spec"]["devices"]["requests"]
    if index == len(requests):
        yield from _claims(attempt, number + 1)
        return
    request = requests[index]
    exact = request.get("exactly")
    for ask in [exact] if exact else request["firstAvailable"]:
        name = request["name"] if exact else f"{request['name']}/{ask['name']}"
        if ask["allocationMode"] == "All":
            wanted = _all(attempt, ask)
            if wanted:
                yield from _every(attempt, number, index, name, ask, wanted)
        else:
            yield from _some(attempt, number, index, name, ask, 0, int(ask["count"]))


def _every(attempt: _Attempt, number: int, index: int, name: str, ask: Json, wanted: list[Json]) -> Iterator[None]:
    if not wanted:
        yield from _requests(attempt, number, index + 1)
        return
    if _possible(attempt, number, name, ask, wanted[0], must=True):
        attempt.picks[number].append(((name, wanted[0]["name"]), ask))
        yield from _every(attempt, number, index, name, ask, wanted[1:])
        attempt.picks[number].pop()


def _some(attempt: _Attempt, number: int, index: int, name: str, ask: Json, start: int, missing: int) -> Iterator[None]:
    if not missing:
        yield from _requests(attempt, number, index + 1)
        return
    for position in range(start, len(attempt.devices)):
        device = attempt.devices[position]
        if _in_use(attempt, number, ask, device) or not _selected(device, ask):
            continue
        if _possible(attempt, number, name, ask, device, must=False):
            attempt.picks[number].append(((name, device["name"]), ask))
            yield from _some(attempt, number, index, name, ask, position + 1, missing - 1)
            attempt.picks[number].pop()


# --- rules ------------------------------------------------------------------------------------------------------------


def _possible(attempt: _Attempt, number: int, name: str, ask: Json, device: Json, *, must: bool) -> bool:
    if _in_use(attempt, number, ask, device) or not _counters_suffice(attempt, ask, device):
        return False
    for constraint in attempt.case["claims"][number]["spec"]["devices"].get("constraints", ()):
        if not _accepted(attempt, number, name, device, constraint):
            if must:
                raise Fatal
            return False
    return _has_capacity(attempt, device, ask)


def _is_multi(device: Json) -> bool:
    return bool(device.get("allowMultipleAllocations"))


def _in_use(attempt: _Attempt, number: int, ask: Json, device: Json) -> bool:
    picks = attempt.picks[number : number + 1] if ask.get("adminAccess") else attempt.picks
    held = not _is_multi(device) and any(pick[1] == device["name"] for claim in picks for pick, _ in claim)
    return held or (not ask.get("adminAccess") and device["name"] in attempt.owned)


def _counters_suffice(attempt: _Attempt, ask: Json, device: Json) -> bool:
    picked = [(pick[1], other) for claim in attempt.picks for pick, other in claim]
    paying = {name for name, other in picked if not other.get("adminAccess")}
    using = attempt.owned | set(attempt.shares) | paying
    if not device.get("consumesCounters") or ask.get("adminAccess"):
        return True
    if _is_multi(device) and (device["name"] in attempt.shares or device["name"] in paying):
        return True
    left: dict[tuple[str, str], int] = {}
    for item in attempt.case["slices"]:
        for counters in item["spec"].get("sharedCounters", ()):
            for name, counter in counters["counters"].items():
                left[counters["name"], name] = int(counter["value"])
    for user in attempt.devices:
        if user["name"] in using or user is device:
            for part in user.get("consumesCounters", ()):
                for name, counter in part["counters"].items():
                    left[part["counterSet"], name] -= int(counter["value"])
    return all(amount >= 0 for amount in left.values())


def _accepted(attempt: _Attempt, number: int, name: str, device: Json, constraint: Json) -> bool:
    names = constraint.get("requests")

    def covers(request: str) -> bool:
        return not names or request in names or request.split("/")[0] in names

    if not covers(name):
        return True
    full = constraint.get("matchAttribute") or constraint["distinctAttribute"]
    bare = full.removeprefix(f"{DRIVER}/")
    by_name = {item["name"]: _attributes(item) for item in attempt.devices}
    value = by_name[device["name"]].get(bare)
    if value is None:
        return False
    others = [by_name[pick[1]][bare] for pick, _ in attempt.picks[number] if covers(pick[0])]
    if "matchAttribute" in constraint:
        return all(type(other) is type(value) and other == value for other in others)
    return all(type(other) is not type(value) or other != value for other in others)


def _has_capacity(attempt: _Attempt, device: Json, ask: Json) -> bool:
    wanted = ask.get("capacity", {}).get("requests", {})
    offered = {name: Fraction(item["value"]) for name, item in device.get("capacity", {}).items()}
    if any(name not in offered for name in wanted):
        return False
    for name, total in offered.items():
        used = sum(Fraction(share.get(name, 0)) for share in attempt.shares.get(device["name"], ()))
        if _is_multi(device):
            for claim in attempt.picks:
                for pick, other in claim:
                    if pick[1] == device["name"]:
                        used += Fraction(other.get("capacity", {}).get("requests", {}).get(name, total))
        if Fraction(wanted.get(name, total)) + used > total:
            return False
    return True
