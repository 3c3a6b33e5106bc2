"""A grammar of claims and devices that are expensive to decide on: many of everything, drawn from dice.

Promises: every scenario is one that the API server stores: at most 32 requests, 32 constraints and 8 alternatives in a
claim, 32 attributes and capacities on a device. Small numbers are drawn before large ones, so failures shrink.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.support.allocation.scenarios import (
    DRIVER,
    A,
    allocated,
    ask,
    claim,
    device,
    first_available,
    resource_slice,
    scenario,
)

Json = dict[str, Any]

VALUES: Final = (1, 2, 3, 5, 8, 30, 10_000)
"""How many values an attribute has over the devices; the last one: each device has its own."""
NAMES: Final = ("model", "numa", "root", "uuid")


def expensive(dice: Random, *, most_devices: int = 256, most_claims: int = 3) -> Json:
    """A node, and claims for its devices."""
    count = dice.choice([size for size in (1, 4, 9, 33, 128, 256) if size <= most_devices])
    sets, counters = dice.choice((0, 0, 1, 8)), dice.choice((1, 4, 32))
    shared, amounts = dice.choice((0, 0, 1, 2)), dice.choice((1, 3, 20))
    values = {name: dice.choice(VALUES) for name in NAMES}
    lists = dice.random() < 0.2
    content = []
    for index in range(count):
        attributes: Json = {"index": index}
        for name, number in values.items():
            value = index * (1 + len(name)) % number
            if (index + number) % 7:
                attributes[name] = [f"{value}", f"{value + 1}"] if lists and name == "root" else f"{value}"
        consumed = {f"c{i}": str(1 + index * i % 5) for i in range(counters)}
        fields: Json = {"allowMultipleAllocations": True} if shared and index % shared == 0 else {}
        content.append(
            device(
                f"d{index}",
                attributes,
                counters={f"s{index % sets}": consumed} if sets else None,
                capacity={f"m{i}": str(20 + index * i % 9) for i in range(amounts)} if shared else None,
                **fields,
            )
        )
    offered = {f"s{i}": {f"c{k}": str(dice.choice((7, 60))) for k in range(counters)} for i in range(sets)}
    slices = [resource_slice(content, name="devices", count=1 + bool(sets))]
    if sets:
        slices.append(resource_slice(name="counters", count=2, counters=offered))
    held = [f"d{index}" for index in range(0, count, dice.choice((2, 5, 1_000))) if not shared or index % shared]
    in_use = [allocated(*held, name="other")] if held and dice.random() < 0.5 else []
    for index in range(0, count, 3) if shared and dice.random() < 0.5 else ():
        if index % shared == 0:
            share = {"device": f"d{index}", "shareID": f"00000000-0000-4000-8000-{index:012}"}
            in_use.append(allocated({**share, "consumedCapacity": {"m0": "3"}}, name=f"sharer-{index}"))
    claims = [_claim(dice, f"claim-{i}", bool(shared)) for i in range(dice.choice((1, 1, most_claims)))]
    return scenario(slices, claims, in_use=in_use)


def _claim(dice: Random, name: str, shared: bool) -> Json:
    count = dice.choice((1, 2, 3, 5, 9, 32))
    several = dice.choice((0, 0, 1, 8))
    kind = dice.choice(("plain", "picky", "counted", "any"))
    requests = [_request(dice, f"r{i}", several, kind, shared) for i in range(count)]
    names = [entry["name"] for entry in requests]
    if several and dice.random() < 0.5:
        names += [f"r{i}/a" for i in range(count)]
    constraints: list[Json] = []
    copies, span = dice.choice((0, 1, 2, 4, 16, 32)), dice.choice((0, 2, 3))
    mixed = dice.choice((("matchAttribute",), ("distinctAttribute",), ("matchAttribute", "distinctAttribute")))
    for index in range(copies):
        constraint: Json = {mixed[index % len(mixed)]: f"{DRIVER}/{dice.choice(NAMES)}"}
        if span:
            constraint["requests"] = dice.sample(names, min(span, len(names)))
        constraints.append(constraint)
    return claim(*requests, name=name, constraints=constraints)


def _request(dice: Random, name: str, several: int, kind: str, shared: bool) -> Json:
    if several:
        return first_available(name, *(_ask(dice, kind, shared) for _ in range(several)))
    fields: Json = {"adminAccess": True} if kind == "any" and dice.random() < 0.1 else {}
    return {"name": name, "exactly": {**_ask(dice, kind, shared), **fields}}


def _ask(dice: Random, kind: str, shared: bool) -> Json:
    fields: Json = {"capacity": {"requests": {"m0": str(dice.choice((1, 5, 9, 14)))}}} if shared else {}
    count = dice.choice((1, 1, 2, 4)) if kind in ("counted", "any") else 1
    if kind == "any" and dice.random() < 0.05:
        return ask(None, **fields)
    selector = f"{A}.index % {dice.choice((2, 3))} == 0" if kind in ("picky", "any") and dice.random() < 0.5 else ""
    if not selector and dice.random() < 0.02:
        selector = costly(dice)
    return ask(count, selector, **fields)


def costly(dice: Random) -> str:
    """A true selector of 2,700 to 4,500 units of work. Perhaps it looks for an address among others; as integers these
    differ by multiples of 2^61 - 1.
    """
    if dice.random() < 0.5:
        return f"lists.range({dice.randrange(900, 1_400)}).all(x, x >= 0)"
    start, wanted, *others = (
        f"ip('::{part:x}:0:0:0:{2**14 - 8 * part:x}')" for part in range(1, dice.randrange(150, 170))
    )
    entries = ", ".join(f"{address}: 1" for address in (start, *others))
    return f"cel.bind(m, {{{entries}}}, cel.bind(q, {wanted}, lists.range(800).all(x, !(q in m))))"
