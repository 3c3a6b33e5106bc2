"""Claims, pods, slices, classes and nodes of hostile contents: large, deep, or many.

Pure; half of them is drawn from dice. All of them are what a real API server stores.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from tools.hostile.things import (
    DRIVER,
    ORDINARY,
    Body,
    Burst,
    Objects,
    Thing,
    claim,
    device_class,
    pod,
    request,
    resource_slice,
    wish,
    with_pod,
)

OWN: Final = "hostile.example.com"
"""The driver of hostile slices, and the class of its devices."""
NODES: Final = 8
"""As many nodes as the ground has; hard searches are put on each."""
WAITING: Final = 400
BIG: Final = "9" * 900


def claims(dice: random.Random) -> Iterator[Thing]:
    """Claims, and pods with many of them."""
    yield Thing("claims", "32 requests for devices that differ", with_pod("distinct", _distinct(32)))
    yield Thing("claims", "32 × 8 alternatives for all there is", with_pod("alternatives", _alternatives(32, 8)))
    yield Thing("claims", "a count of 2^62", with_pod("count", claim("count", request(count=2**62))))
    yield Thing("claims", "opaque parameters 2,500 deep", with_pod("deep", _opaque("deep", _deep(2_500))))
    yield Thing("claims", "opaque parameters 240 deep", with_pod("less-deep", _opaque("less-deep", _deep(240))))
    yield Thing("claims", "16 tolerations for each of 256 alternatives", with_pod("tolerant", _tolerant()))
    yield Thing("claims", "32 configurations of 10 KiB", with_pod("configured", _opaque("configured", "x" * 9_900, 32)))
    yield Thing("claims", "32 constraints over 32 requests", with_pod("constrained", _constrained(dice, 32, 32)))
    yield Thing("claims", "a capacity of 900 digits", with_pod("digits", _capacity("digits", BIG)))
    yield Thing("claims", "a capacity of 1e900", with_pod("exponent", _capacity("exponent", "1e900")))
    hundred = [claim(f"one-of-{i}", request(count=1)) for i in range(1_000)]
    yield Thing("pods", "a pod with 1,000 claims", with_pod("thousand", *hundred))
    yield Thing("pods", "a pod with 1,000 claims that do not exist", Objects((pod("none", *_names(1_000)),)))
    yield Thing("pods", "100 pods for one claim", _crowd("crowd", 100))
    for number in range(6):
        body = _random_claim(dice, f"random-{number}")
        yield Thing("claims", f"generated claim {number}", with_pod(f"random-{number}", body), generated=True)
    for number in range(3):
        bodies = [_random_claim(dice, f"many-{number}-{i}") for i in range(dice.randint(5, 60))]
        yield Thing("pods", f"generated pod {number}", with_pod(f"many-{number}", *bodies), generated=True)


def bombs(dice: random.Random) -> Iterator[Thing]:
    """Metadata as large as they may be, and many versions of an object."""
    notes = {f"note-{i}": "x" * 2_500 for i in range(100)}
    labels = {f"label-{i}": "y" * 63 for i in range(10_000)}
    yield Thing(
        "labels and annotations", "a claim with 250 KiB of annotations", _bomb("claim-notes", annotations=notes)
    )
    yield Thing("labels and annotations", "a claim with 10,000 labels", _bomb("claim-labels", labels=labels))
    with_notes = Objects((claim("plain", request()), pod("pod-notes", "plain", annotations=notes, labels=labels)))
    yield Thing("labels and annotations", "a pod with both", with_notes)
    bombed = device_class("bombed", f"device.driver == '{DRIVER}'")
    bombed["metadata"] |= {"annotations": notes, "labels": labels}
    yield Thing(
        "labels and annotations",
        "a class with both",
        with_pod("of-class", bombed, claim("of-class", request(cls="bombed"))),
    )
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bombed", "annotations": notes, "labels": labels}}
    yield Thing("labels and annotations", "a node with both", Objects((node,)))
    for number in range(3):
        texts = {f"k{i}": "z" * dice.randint(1, 63) for i in range(dice.randint(100, 5_000))}
        made = _bomb(
            f"random-bomb-{number}", labels=texts, annotations={k: v * 10 for k, v in list(texts.items())[:300]}
        )
        yield Thing("labels and annotations", f"generated labels {number}", made, generated=True)
    yield Thing("events", "many writes of a claim", Burst(100_000))


def published(dice: random.Random) -> Iterator[Thing]:
    """Slices and classes, each with a claim for what is in them."""
    own = device_class(OWN, f"device.driver == '{OWN}'")
    wanted = claim("wanted", request(cls=OWN))

    def slices(name: str, *made: Body) -> Thing:
        return Thing("slices", name, with_pod("of-slice", own, *made, wanted))

    full = [_device(i, attributes=32) for i in range(128)]
    yield slices("128 devices with 32 attributes", resource_slice("full", "node-1", full))
    yield slices(
        "64 devices with 16 taints", resource_slice("tainted", "node-1", [_device(i, 4, taints=16) for i in range(64)])
    )
    yield slices("8 × 32 counters and 64 consumers", *_counted())
    yield slices("values of 64 bytes", resource_slice("long", "node-2", [_long(i) for i in range(128)]))
    yield slices("numbers of 900 digits", resource_slice("big", "node-2", [_big(i) for i in range(64)]))
    yield slices("versions beyond 64 bits", resource_slice("versions", "node-2", [_versions(i) for i in range(32)]))
    yield slices("a generation of 2^63-1", _late("late", 2**63 - 1, 1))
    yield slices("a pool of 2^63-1 slices", _late("endless", 1, 2**63 - 1))
    yield slices("a policy of tiny steps", resource_slice("steps", "node-3", [_stepping(i) for i in range(32)]))
    yield slices("1,000 slices of one pool", *_scattered(1_000))
    selectors = [f"device.driver == '{DRIVER}' && {i} < 100" for i in range(32)]
    chosen = device_class("many-selectors", *selectors)
    yield Thing("classes", "32 selectors", with_pod("of-many", chosen, claim("of-many", request(cls="many-selectors"))))
    broken = device_class("broken", f"device.attributes['{DRIVER}'].missing == 1")
    yield Thing(
        "classes", "a selector that fails", with_pod("of-broken", broken, claim("of-broken", request(cls="broken")))
    )
    config = [{"opaque": {"driver": DRIVER, "parameters": {"x": "y" * 10_000}}}] * 32
    large = device_class("configured", f"device.driver == '{DRIVER}'", config=config)
    yield Thing(
        "classes", "32 configurations", with_pod("of-large", large, claim("of-large", request(cls="configured")))
    )
    for number in range(6):
        devices = [_random_device(dice, i) for i in range(dice.randint(1, 64))]
        thing = slices(f"generated slice {number}", resource_slice(f"random-{number}", f"node-{1 + number}", devices))
        yield Thing(thing.family, thing.name, thing.act, generated=True)


def lists(dice: random.Random) -> Iterator[Thing]:
    """Kinds that are large when they are listed again, all at once."""
    large = [_large(f"large-{i}") for i in range(80)]
    yield Thing("lists", "80 claims of 1.3 MB", Objects(tuple(large), "resourceclaims"))
    full = [_full(f"full-{i}", 1 + i % NODES) for i in range(100)]
    yield Thing("lists", "100 slices of 128 devices with 32 attributes", Objects(tuple(full), "resourceslices"))
    small = [claim(f"small-{i}", request()) for i in range(3_000)]
    yield Thing("lists", "3,000 claims", Objects(tuple(small), "resourceclaims"))
    mixed = [_random_claim(dice, f"listed-{i}") for i in range(300)]
    yield Thing("lists", "300 generated claims", Objects(tuple(mixed), "resourceclaims"), generated=True)


def crowds() -> Iterator[Thing]:
    """Very many pods of one namespace that do not fit, and one of another namespace."""
    crowd = [claim("too-many", request(count=31)), *(pod(f"waiting-{i}", "too-many") for i in range(WAITING))]
    other = claim("of-another", request(count=31)), pod("of-another", "of-another")
    for body in other:
        body["metadata"]["namespace"] = ORDINARY
    name = f"{WAITING} waiting pods, and one of another namespace"
    yield Thing("waiting pods", name, Objects(tuple(crowd), other=other))


# --- claims -----------------------------------------------------------------------------------------------------------


def _names(count: int) -> list[str]:
    return [f"no-such-{i}" for i in range(count)]


def _distinct(count: int) -> Body:
    requests = [request(f"r{i}") for i in range(count)]
    return claim("distinct", *requests, constraints=[{"distinctAttribute": f"{DRIVER}/model"}])


def _alternatives(requests: int, each: int) -> Body:
    made = [
        {"name": f"r{i}", "firstAvailable": [{"name": f"a{k}", **wish(count=9 - k)} for k in range(each)]}
        for i in range(requests)
    ]
    return claim("alternatives", *made, constraints=[{"matchAttribute": f"{DRIVER}/model"}])


def _tolerant() -> Body:
    wanted = [{"key": f"key-{i}", "operator": "Exists", "effect": "NoSchedule"} for i in range(16)]
    made = [
        {"name": f"r{i}", "firstAvailable": [{"name": f"a{k}", **wish(tolerations=wanted)} for k in range(8)]}
        for i in range(32)
    ]
    return claim("tolerant", *made)


def _large(name: str) -> Body:
    """As large as etcd takes it."""
    texts = [f"device.driver != '{'x' * 10_000}{i}'" for i in range(72)]
    config = [{"opaque": {"driver": DRIVER, "parameters": {"a": "x" * 9_900}}}] * 32
    made = claim(name, *(request(f"r{i}", *texts[i * 24 : i * 24 + 24]) for i in range(3)), config=config)
    made["metadata"]["annotations"] = {f"note-{i}": "x" * 2_500 for i in range(100)}
    return made


def _full(name: str, node: int) -> Body:
    return resource_slice(name, f"node-{node}", [_device(i, attributes=32) for i in range(128)])


def _deep(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = [made]
    return made


def _opaque(name: str, value: Any, count: int = 1) -> Body:
    return claim(name, request(), config=[{"opaque": {"driver": DRIVER, "parameters": {"a": value}}}] * count)


def _constrained(dice: random.Random, requests: int, constraints: int) -> Body:
    names = [f"r{i}" for i in range(requests)]
    kinds, attributes = ("matchAttribute", "distinctAttribute"), ("model", "index", "uuid", "driverVersion")
    made = [
        {
            "requests": dice.sample(names, dice.randint(2, min(8, requests))),
            dice.choice(kinds): f"{DRIVER}/{dice.choice(attributes)}",
        }
        for _ in range(constraints)
    ]
    return claim("constrained", *map(request, names), constraints=made)


def _capacity(name: str, amount: str) -> Body:
    return claim(name, request(capacity={"requests": {"memory": amount}}))


def _crowd(name: str, pods: int) -> Objects:
    return Objects((claim(name, request(allocationMode="All")), *(pod(f"{name}-{i}", name) for i in range(pods))))


def _random_claim(dice: random.Random, name: str) -> Body:
    """Any number of anything that may be in a claim."""
    requests: list[Body] = []
    for index in range(dice.randint(1, 32)):
        fields: dict[str, Any] = {}
        if dice.random() < 0.3:
            fields["count"] = dice.choice([1, 2, 7, 64, 2**31, 2**62])
        elif dice.random() < 0.2:
            fields["allocationMode"] = "All"
        if dice.random() < 0.3:
            fields["tolerations"] = [{"operator": "Exists"}] * dice.randint(1, 16)
        if dice.random() < 0.2:
            fields["capacity"] = {"requests": {"memory": dice.choice(["1", "1n", "8191Pi", "1e99", BIG])}}
        selectors = [f"device.driver != 'none' && {dice.randint(0, 9)} >= 0"] * dice.choice([0, 0, 1, 32])
        if dice.random() < 0.3:
            chosen = [{"name": f"a{k}", **wish(*selectors, **fields)} for k in range(dice.randint(1, 8))]
            requests.append({"name": f"r{index}", "firstAvailable": chosen})
        else:
            requests.append(request(f"r{index}", *selectors, **fields))
    made = claim(name, *requests)
    if dice.random() < 0.6:
        names = [entry["name"] for entry in requests]
        made["spec"]["devices"]["constraints"] = [
            {"requests": dice.sample(names, dice.randint(1, len(names))), "matchAttribute": f"{DRIVER}/model"}
            for _ in range(dice.randint(1, 32))
        ]
    return made


def _bomb(name: str, **metadata: Any) -> Objects:
    made = claim(name, request())
    made["metadata"] |= metadata
    return with_pod(name, made)


# --- slices -----------------------------------------------------------------------------------------------------------


def _device(index: int, attributes: int, taints: int = 0) -> Body:
    made: Body = {"name": f"d{index}", "attributes": {f"a{i}": {"int": index * i} for i in range(attributes)}}
    if taints:
        made["taints"] = [{"key": f"t{i}", "value": "v" * 63, "effect": "NoSchedule"} for i in range(taints)]
    return made


def _long(index: int) -> Body:
    return {"name": f"d{index}", "attributes": {f"a{i}": {"string": f"{index:04}" + "x" * 60} for i in range(32)}}


def _big(index: int) -> Body:
    amounts = [BIG, f"{index}e900", f"0.{'0' * 900}1", "1e900", "-" + BIG]
    return {"name": f"d{index}", "capacity": {f"c{i}": {"value": amount} for i, amount in enumerate(amounts)}}


def _versions(index: int) -> Body:
    texts = [f"{index}.0.{'9' * 50}", f"1.0.0-{'1.' * 28}1", "18446744073709551616.0.0", "0.0.0-0+" + "b" * 50]
    return {"name": f"d{index}", "attributes": {f"v{i}": {"version": text} for i, text in enumerate(texts)}}


def _stepping(index: int) -> Body:
    policy = {"default": "1", "validRange": {"min": "1", "max": "1000000000000", "step": "1"}}
    capacity = {"c": {"value": "1000000000000", "requestPolicy": policy}}
    return {"name": f"d{index}", "allowMultipleAllocations": True, "capacity": capacity}


def _late(name: str, generation: int, count: int) -> Body:
    made = resource_slice(name, "node-3", [_device(0, 1)])
    made["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": count}
    return made


def _scattered(count: int) -> list[Body]:
    made = [resource_slice(f"part-{i:04}", "node-4", [{"name": f"d{i}"}]) for i in range(count)]
    for part in made:
        part["spec"]["pool"] = {"name": "scattered", "generation": 1, "resourceSliceCount": count}
    return made


def _counted() -> list[Body]:
    counters = {f"c{i}": {"value": "64"} for i in range(32)}
    sets = [{"name": f"set-{i}", "counters": counters} for i in range(8)]
    small = {name: {"value": "1"} for name in counters}
    devices = [
        {
            "name": f"d{i}",
            "consumesCounters": [{"counterSet": f"set-{(i + k) % 8}", "counters": small} for k in range(2)],
        }
        for i in range(64)
    ]
    made = [resource_slice("counters", "node-5", []), resource_slice("consumers", "node-5", devices)]
    made[0]["spec"]["sharedCounters"] = sets
    for part in made:
        part["spec"]["pool"] = {"name": "counted", "generation": 1, "resourceSliceCount": 2}
    return made


def _random_device(dice: random.Random, index: int) -> Body:
    made: Body = {"name": f"d{index}"}
    room = 32
    attributes: Body = {}
    for number in range(dice.randint(0, 24)):
        value = dice.choice(
            [{"int": dice.choice([0, -(2**63), 2**63 - 1])}, {"bool": True}, {"string": "s" * dice.randint(0, 64)},
             {"version": f"{dice.randint(0, 9)}.{'9' * dice.randint(1, 40)}.0"}]
        )  # fmt: skip
        attributes[dice.choice(["", "x.example.com/", f"{OWN}/"]) + f"a{number}"] = value
    made["attributes"] = attributes
    room -= len(attributes)
    if dice.random() < 0.5:
        amounts = ["0", "1", "1n", "1e-9", "12E", BIG[: dice.randint(1, 900)], f"1e{dice.randint(1, 999)}"]
        made["capacity"] = {f"c{i}": {"value": dice.choice(amounts)} for i in range(dice.randint(0, room))}
    if dice.random() < 0.3:
        effects = ("NoSchedule", "NoExecute")
        made["taints"] = [{"key": f"t{i}", "effect": dice.choice(effects)} for i in range(dice.randint(1, 16))]
    if dice.random() < 0.3:
        made["allowMultipleAllocations"] = True
    return made
