"""Families of scenarios that explode without one proof or another, in the sizes that a test or a table wants.

Promises: each function says what is hard about its family. `DECIDED_BY` has one scenario for every proof, which the
search decides quickly with all proofs and not within its step budget when that one is left out.
"""

from __future__ import annotations

from typing import Any, Final

from dra_extender.allocation.proofs.proof import Proof
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


def behind_all(gpus: int, first: int, last: int) -> Json:
    """Too many GPUs are wanted. Most requests cannot see that: between them stands a request for all NICs, which could
    meet an error, so only states that failed tell.
    """
    content = [device(f"gpu-{i}", {"index": i}) for i in range(gpus)]
    content += [device(f"nic-{i}", {"nic": True, "numa": 0}) for i in range(2)]
    claims = [
        claim(*(request(f"r{i}", 1, GPU) for i in range(first)), name="first"),
        claim(request("nics", None, NIC), name="nics", constraints=[NUMA]),
        claim(*(request(f"z{i}", 1, GPU) for i in range(last)), name="last"),
    ]
    return scenario([resource_slice(content)], claims)


def windows(count: int, *, error: bool) -> Json:
    """Requests for neighbouring devices, all together one more than there are. With `error`, a request that could meet
    one comes last.
    """

    def between(name: str, low: int, high: int) -> Json:
        index = f"{A}.?index.orValue(-1)"
        return request(name, 1, f"{index} >= {low} && {index} < {high}")

    half, quarter = count // 2, count // 4
    requests = [between(f"r{i}", i, i + half) for i in range(half)]
    requests += [between(f"t{i}", quarter, 3 * quarter) for i in range(half - 1)]
    requests += [between(f"u{i}", 0, count) for i in range(2)]
    content = [*devices(count), device("nic", {"nic": True, "numa": 0})]
    nics = claim(request("nics", None, NIC), name="nics", constraints=[NUMA])
    return scenario([resource_slice(content)], [claim(*requests), *([nics] if error else [])])


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


def worn_cards(count: int, wanted: int) -> Json:
    """Large partitions: each card has room for one of two. No two cards have the same memory left."""
    content = [
        device(f"c{i}-{k}", counters={f"card-{i}": {"slots": "3", "memory": "30"}})
        for i in range(count)
        for k in range(2)
    ]
    counters = {f"card-{i}": {"slots": "4", "memory": str(40 + i)} for i in range(count)}
    return _partitions(content, counters, claim(*(request(f"r{i}") for i in range(wanted))))


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
    Proof.NOGOODS: behind_all(16, 8, 9),
    Proof.EXCHANGE: behind_all(20, 10, 11),
    Proof.AHEAD: windows(24, error=True),
    Proof.COUNTS: pinned_devices(16, 8),
    Proof.LIMIT: alternatives(6, 5, 4, requests=8, total=40),
    Proof.MATCH: chain(12, 6, 3),
    Proof.DISTINCT: distinct(8, 6),
    Proof.HALL: windows(24, error=False),
    Proof.BUDGETS: cards(8, [*(slots(f"quarter{i}", 1) for i in range(16)), *(slots(f"full{i}", 4) for i in range(5))]),
    Proof.YIELDS: worn_cards(8, 9),
    Proof.SHARES: shares(6, *PERFECT),
    Proof.GROUPS: aligned(8, 4, 8, 9, 3),
    Proof.SUMS: shares(6, *[7] * 4, *[21] * 6, *[31] * 6, *[41] * 6),
    Proof.BINS: shares_of_two(
        6, *((3 + i, 3) for i in range(6)), *[(60, 30)] * 6, *[(30, 30)] * 6, (30, 60)
    ),
}  # fmt: skip
