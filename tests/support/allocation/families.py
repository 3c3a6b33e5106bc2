"""Families of scenarios that explode without one proof or another, in the sizes that a test or a table wants.

Promises: each function says what is hard about its family. `DECIDED_BY` has one scenario for every proof, which the
search decides quickly with all proofs and not within its step budget when that one is left out.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

from dra_extender.allocation.proofs.bounds import Proof
from tests.support.allocation.scenarios import (
    DRIVER,
    A,
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

NUMA: Final = {"matchAttribute": f"{DRIVER}/numa"}
NIC: Final = f"{A}.?nic.orValue(false)"
GPU: Final = f"!{NIC}"

PERFECT: Final = (3, 3, 3, 7, 8, 10, 11, 14, 15, 17, 18, 20, 21, 24, 25, 27, 31, 34, 37, 40, 49, 51, 66, 66)
"""Fills six times 100 without a gap."""


# --- devices of their own ---------------------------------------------------------------------------------------------


def windows(count: int) -> Json:
    """Requests for neighbouring devices, all together one more than there are."""

    def between(name: str, low: int, high: int) -> Json:
        index = f"{A}.?index.orValue(-1)"
        return request(name, 1, f"{index} >= {low} && {index} < {high}")

    half, quarter = count // 2, count // 4
    requests = [between(f"r{i}", i, i + half) for i in range(half)]
    requests += [between(f"t{i}", quarter, 3 * quarter) for i in range(half - 1)]
    requests += [between(f"u{i}", 0, count) for i in range(2)]
    return scenario([resource_slice(devices(count))], [claim(*requests)])


def pinned_devices(count: int, pinned: int) -> Json:
    """Requests that take any device, before as many that want the first devices, one each."""
    requests = [request(f"any{i}") for i in range(pinned)]
    requests += [request(f"one{i}", 1, f"{A}.index == {i}") for i in range(pinned)]
    return scenario([resource_slice(devices(count))], [claim(*requests)])


def alternatives(*counts: int, requests: int, total: int) -> Json:
    """Requests that prefer more devices than all of them can have."""
    wanted = [first_available(f"r{i}", *map(ask, counts)) for i in range(requests)]
    return scenario([resource_slice(devices(total))], [claim(*wanted)])


# --- constraints ------------------------------------------------------------------------------------------------------


def chain(count: int, free: int, linked: int) -> Json:
    """Each device is linked with its neighbours. Requests for any device come before a claim for linked ones."""
    content = [device(f"d{i}", {"links": [f"l{i}", f"l{i + 1}"]}) for i in range(count)]
    claims = [
        claim(*(request(f"r{i}") for i in range(free)), name="free"),
        claim(request("linked", linked), name="linked", constraints=[{"matchAttribute": f"{DRIVER}/links"}]),
    ]
    return scenario([resource_slice(content)], claims)


def distinct(values: int, devices_per_value: int) -> Json:
    """One device more than there are different values."""
    content = [device(f"d{i}", {"numa": i % values}) for i in range(values * devices_per_value)]
    constraints = [{"distinctAttribute": f"{DRIVER}/numa"}]
    return scenario([resource_slice(content)], [claim(request("r", values + 1), constraints=constraints)])


def lists(devices: int, values: int) -> Json:
    """Devices with as many values each, none of which another device has: too many to keep."""
    content = [device(f"d{i}", {"links": list(range(i * values, (i + 1) * values))}) for i in range(devices)]
    return scenario(
        [resource_slice(content)], [claim(request("r", 2), constraints=[{"matchAttribute": f"{DRIVER}/links"}])]
    )


def distinct_pairs(roots: int, requests: int, copies: int) -> Json:
    """Requests for GPUs of different PCIe roots, said pair by pair, and many times that no device comes twice. One
    device has no attribute value in common with another.
    """
    content = [device(f"d{i}", {"uuid": f"u{i}", "root": i % roots}) for i in range(2 * roots)]
    content.append(device("lone", {"uuid": "lone", "root": roots}))
    names = [f"r{i}" for i in range(requests)]
    root, uuid = f"{DRIVER}/root", f"{DRIVER}/uuid"
    constraints = [{"distinctAttribute": root, "requests": [*pair]} for pair in combinations(names, 2)]
    constraints += [{"distinctAttribute": uuid, "requests": names} for _ in range(copies)]
    return scenario([resource_slice(content)], [claim(*map(request, names), constraints=constraints)])


def together(groups: int, size: int, *wanted: int) -> Json:
    """Claims for devices of one group each."""
    content = [device(f"d{i}", {"index": i, "numa": i % groups}) for i in range(groups * size)]
    claims = [claim(request("r", n), name=f"c{i}", constraints=[NUMA]) for i, n in enumerate(wanted)]
    return scenario([resource_slice(content)], claims)


def aligned(groups: int, gpus: int, nics: int, claims: int, wanted: int) -> Json:
    """Claims for some GPUs and a NIC of one group each, for more groups than there are."""
    content = [device(f"gpu-{group}-{i}", {"numa": group}) for i in range(gpus) for group in range(groups)]
    content += [
        device(f"nic-{group}-{i}", {"nic": True, "numa": group}) for group in range(groups) for i in range(nics)
    ]
    requests = [request("gpus", wanted, GPU), request("nic", 1, NIC)]
    return scenario(
        [resource_slice(content)], [claim(*requests, name=f"c{i}", constraints=[NUMA]) for i in range(claims)]
    )


def together_beside(groups: int, size: int, wanted: int, first: int) -> Json:
    """As many claims as groups, each for devices of one, before one for devices of the first group."""
    content = [device(f"d{group}-{i}", {"numa": group}) for group in range(groups) for i in range(size)]
    claims = [claim(request("r", wanted), name=f"c{i}", constraints=[NUMA]) for i in range(groups)]
    claims.append(claim(request("r", first, f"{A}.numa == 0"), name="first"))
    return scenario([resource_slice(content)], claims)


def triangles(count: int, pairs: int) -> Json:
    """Devices linked in triangles; each claim wants two that are linked."""
    content = [
        device(f"d{i}-{a}", {"links": [f"{a}{i}", f"{b}{i}"]}) for i in range(count) for a, b in ("ab", "bc", "ca")
    ]
    constraints = [{"matchAttribute": f"{DRIVER}/links"}]
    claims = [claim(request("r", 2), name=f"c{i}", constraints=constraints) for i in range(pairs)]
    return scenario([resource_slice(content)], claims)


# --- counters ---------------------------------------------------------------------------------------------------------


def _partitions(content: list[Json], counters: dict[str, dict[str, str]], *claims: Json) -> Json:
    slices = [resource_slice(content, name="b", count=2), resource_slice(name="a", count=2, counters=counters)]
    return scenario(slices, claims)


def slots(name: str, amount: int, count: int = 1) -> Json:
    return request(name, count, f"{A}.slots == {amount}")


def cards(count: int, requests: list[Json], size: int = 4) -> Json:
    """Cards of `size` slots, cut into one full, halves and quarters."""
    content = [
        device(f"c{i}-{slots}-{k}", {"slots": slots, "card": i}, counters={f"card-{i}": {"slots": str(slots)}})
        for i in range(count)
        for slots, pieces in ((size, 1), (2, size // 2), (1, size))
        for k in range(pieces)
    ]
    return _partitions(content, {f"card-{i}": {"slots": str(size)} for i in range(count)}, claim(*requests))


def knapsacks(cards: int, count: int) -> Json:
    """As many claims for `count` devices as cards with room for no more than their smallest `count` devices."""
    sizes = [20 + 37 * index % 101 for index in range(32)]
    content = [
        device(f"c{card}-{index}", counters={f"card-{card}": {"memory": str(size)}})
        for card in range(cards)
        for index, size in enumerate(sizes)
    ]
    counters = {f"card-{card}": {"memory": str(sum(sorted(sizes)[:count]))} for card in range(cards)}
    return _partitions(content, counters, *(claim(request("r", count), name=f"claim-{card}") for card in range(cards)))


# --- shares -----------------------------------------------------------------------------------------------------------


def shares(total: int, *amounts: int, exclusive: int = 0) -> Json:
    """Requests for shares of devices with 100 units each, smallest first; some more devices cannot be shared."""
    content = [device(f"d{i}", capacity={"units": "100"}, allowMultipleAllocations=True) for i in range(total)]
    content += [device(f"x{i}", capacity={"units": "100"}) for i in range(exclusive)]
    wanted = [request(f"r{i}", capacity={"requests": {"units": str(n)}}) for i, n in enumerate(sorted(amounts))]
    return scenario([resource_slice(content)], [claim(*wanted)])


def shares_of_two(total: int, *amounts: tuple[int, int]) -> Json:
    """The same for devices with 100 units of memory and 100 of cores."""
    capacity = {"memory": "100", "cores": "100"}
    content = [device(f"d{i}", capacity=capacity, allowMultipleAllocations=True) for i in range(total)]
    wanted = [
        request(f"r{i}", capacity={"requests": {"memory": str(memory), "cores": str(cores)}})
        for i, (memory, cores) in enumerate(amounts)
    ]
    return scenario([resource_slice(content)], [claim(*wanted)])


def shares_of_any_size(devices: int, *amounts: int) -> Json:
    """Devices that the shares just fill together: as amounts are large, their sums are too many to be listed."""
    room = {"units": str(sum(amounts) // devices + 7)}
    content = [device(f"d{i}", capacity=room, allowMultipleAllocations=True) for i in range(devices)]
    wanted = [request(f"r{i}", capacity={"requests": {"units": str(n)}}) for i, n in enumerate(amounts)]
    return scenario([resource_slice(content)], [claim(*wanted)])


DECIDED_BY: Final[dict[Proof, Json]] = {
    Proof.COUNTS: pinned_devices(16, 8),
    Proof.LIMIT: alternatives(6, 5, 4, requests=8, total=40),
    Proof.MATCH: chain(12, 6, 3),
    Proof.DISTINCT: distinct(8, 6),
    Proof.HALL: windows(24),
    Proof.BUDGETS: cards(8, [*(slots(f"quarter{i}", 1) for i in range(16)), *(slots(f"full{i}", 4) for i in range(5))]),
    Proof.SHARES: shares(6, *PERFECT),
    Proof.GROUPS: aligned(8, 4, 8, 9, 3),
}  # fmt: skip
