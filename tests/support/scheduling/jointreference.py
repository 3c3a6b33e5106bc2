"""Random small gangs, and a reference that tries every node and every device for every member.

Promises: the reference shares no code with the joint decision or the allocator. A scenario has at most 4 members, 3
nodes and 6 devices: devices of one node or of all nodes, whole GPUs and their partitions with a shared counter, claims
of one member and claims that members share, one or two devices a request, or all of a kind, prioritized lists, and the
wish for one clique: all devices of all members have one value of an attribute that some devices do not have. In the
scenarios of `generate_full` up to 5 pods have most of the devices: pods of gangs, and pods that a budget protects.
Mode All means all devices of a kind that one of the nodes of the claim sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from random import Random
from typing import Final

import msgspec

Kind = str
Wish = tuple[Kind, int]
"""(kind of device, how many; `ALL` for all of the kind)"""
ALL = 0


class Item(msgspec.Struct, frozen=True):
    """A device. `node` is empty for all nodes. `units` of the counter of its pool are consumed. Without a `clique` it
    does not have the attribute.
    """

    name: str
    node: str
    kind: Kind
    units: int = 0
    clique: str = ""


class Claim(msgspec.Struct, frozen=True):
    """Each request is a list of alternatives."""

    name: str
    requests: tuple[tuple[Wish, ...], ...]


class Holder(msgspec.Struct, frozen=True):
    """A pod that has devices. `gang`: empty for a pod alone. `protected`: the budget selects it."""

    name: str
    node: str
    priority: int
    devices: tuple[str, ...]
    gang: str = ""
    protected: bool = False


class JointScenario(msgspec.Struct, frozen=True):
    """`members[i]`: the names of the claims of member i. `units`: what the counter of a pool offers, by node.
    `allowed`: the disruptions that the budget allows.
    """

    nodes: tuple[str, ...]
    devices: tuple[Item, ...]
    units: dict[str, int]
    claims: tuple[Claim, ...]
    members: tuple[tuple[str, ...], ...]
    needed: int
    one_clique: bool = False
    holders: tuple[Holder, ...] = ()
    allowed: int = 0


PREEMPTOR: Final = 10
"""The priority of the members."""


def generate(seed: int) -> JointScenario:
    random = Random(seed)
    nodes = tuple(f"n{number}" for number in range(random.randint(1, 3)))
    places = [*nodes, ""] if random.random() < 0.4 else list(nodes)
    devices = []
    units: dict[str, int] = {}
    for number in range(random.randint(1, 6)):
        node, kind = random.choice(places), random.choice("aab")
        takes = 0
        if random.random() < 0.3:
            units.setdefault(node, random.randint(1, 3))
            takes = random.randint(1, 2)
        devices.append(Item(f"d{number}", node, kind, takes, random.choice(["x", "x", "y", "y", ""])))
    count = random.randint(2, 4)
    equal = random.random() < 0.4
    made: list[Claim] = []
    members: list[tuple[str, ...]] = []
    first = _requests(random)
    for number in range(count):
        own = Claim(f"c{number}", first if equal else _requests(random))
        made.append(own)
        members.append((own.name,))
    if random.random() < 0.3:
        made.append(Claim("shared", _requests(random)))
        sharing = random.sample(range(count), 2)
        members = [(*names, "shared") if number in sharing else names for number, names in enumerate(members)]
    if random.random() < 0.2:
        members[0] = members[0][1:] or members[0]
    used = {name for names in members for name in names}
    claims = tuple(claim for claim in made if claim.name in used)
    one_clique = random.random() < 0.4
    return JointScenario(nodes, tuple(devices), units, claims, tuple(members), random.randint(1, count), one_clique)


def generate_full(seed: int) -> JointScenario:
    random = Random(seed)
    scenario = generate(seed)
    held: dict[int, list[Item]] = {}
    taken: frozenset[Item] = frozenset()
    for device in scenario.devices:
        if random.random() < 0.85 and _within(scenario, taken | {device}):
            taken |= {device}
            held.setdefault(random.randrange(5), []).append(device)
    gangs = random.random() < 0.4
    holders = tuple(
        Holder(
            name=f"h{number}",
            node=next((each.node for each in devices if each.node), "") or random.choice(scenario.nodes),
            priority=random.choice([0, 0, 1, 1, 5, 20]),
            devices=tuple(each.name for each in devices),
            gang=random.choice(["", "g1", "g2"]) if gangs else "",
            protected=random.random() < 0.3,
        )
        for number, devices in held.items()
    )
    return msgspec.structs.replace(scenario, holders=holders, allowed=random.choice([0, 1, 1, 2]))


def least_victims(scenario: JointScenario) -> tuple[int, int, int] | None:
    """(highest priority, sum of the priorities, number) of the victims that are best; None if no victims help."""
    evictable = [each for each in scenario.holders if each.priority < PREEMPTOR]
    evictable = [each for each in evictable if scenario.allowed or not each.protected]
    best: tuple[int, int, int, int] | None = None
    for size in range(len(evictable) + 1):
        for victims in combinations(evictable, size):
            gangs = {each.gang for each in victims if each.gang}
            whole = all(each in victims for each in evictable if each.gang in gangs)
            if whole and sum(each.protected for each in victims) <= scenario.allowed and _helps(scenario, victims):
                priorities = [each.priority for each in victims]
                found = max(priorities, default=-1), size, sum(priorities), size
                best = min(best or found, found)
    return (best[0], best[2], best[3]) if best is not None else None


def _helps(scenario: JointScenario, victims: Sequence[Holder]) -> bool:
    names = {name for each in scenario.holders if each not in victims for name in each.devices}
    return most_placed(scenario, frozenset(each for each in scenario.devices if each.name in names)) >= scenario.needed


def _requests(random: Random) -> tuple[tuple[Wish, ...], ...]:
    counts = [1] * 8 + [2, ALL]
    requests = []
    for _ in range(1 if random.random() < 0.7 else 2):
        wishes = 1 if random.random() < 0.7 else 2
        requests.append(tuple((random.choice("aab"), random.choice(counts)) for _ in range(wishes)))
    return tuple(requests)


def most_placed(scenario: JointScenario, taken: frozenset[Item] = frozenset()) -> int:
    """How many members can be placed at the same time. `taken`: devices of other pods."""
    count = len(scenario.members)
    for size in range(count, 0, -1):
        for chosen in combinations(range(count), size):
            if any(_fit(scenario, chosen, where, taken) for where in product(scenario.nodes, repeat=size)):
                return size
    return 0


def _fit(scenario: JointScenario, chosen: Sequence[int], where: Sequence[str], taken: frozenset[Item]) -> bool:
    """Whether these members fit on these nodes at the same time."""
    on: dict[str, set[str]] = {}
    for member, node in zip(chosen, where, strict=True):
        for name in scenario.members[member]:
            on.setdefault(name, set()).add(node)
    claims = [claim for claim in scenario.claims if claim.name in on]
    cliques = {device.clique for device in scenario.devices} - {""} if scenario.one_clique else {""}
    return any(
        _allocate(
            scenario,
            [
                (wishes, on[claim.name], first)
                for claim, first in zip(claims, chosen, strict=True)
                for wishes in claim.requests
            ],
            taken,
            clique,
        )
        for chosen in product(*(sorted(on[claim.name]) for claim in claims))
        for clique in cliques
    )


def _allocate(
    scenario: JointScenario,
    requests: Sequence[tuple[tuple[Wish, ...], set[str], str]],
    taken: frozenset[Item],
    clique: str,
) -> bool:
    """Whether the requests, each with the nodes of its claim and the node for mode All, can have
    devices of the clique; of any clique if it is empty.
    """
    if not requests:
        return True
    (wishes, nodes, first), rest = requests[0], requests[1:]
    return any(
        _allocate(scenario, rest, taken | devices, clique)
        for wish in wishes
        for devices in _choices(scenario, wish, nodes, first, taken)
        if not clique or all(device.clique == clique for device in devices)
    )


def _choices(
    scenario: JointScenario, wish: Wish, nodes: set[str], first: str, taken: frozenset[Item]
) -> Iterator[frozenset[Item]]:
    """A device of one node serves members of this node only."""
    kind, count = wish
    seen = [
        device for device in scenario.devices if device.kind == kind and (not device.node or nodes == {device.node})
    ]
    usable = [device for device in seen if device not in taken]
    everything = [device for device in scenario.devices if device.kind == kind and device.node in ("", first)]
    if count == ALL and (not seen or usable != everything):
        return
    for devices in combinations(usable, count or len(seen)):
        used = taken | frozenset(devices)
        if _within(scenario, used):
            yield frozenset(devices)


def _within(scenario: JointScenario, used: frozenset[Item]) -> bool:
    """Whether the counters suffice for these devices."""
    return all(
        sum(device.units for device in used if device.node == node) <= units for node, units in scenario.units.items()
    )
