"""Device attributes that must have one value for all members of a gang, such as one NVLink clique or one rail.

Promises: pure. Devices that members already have, or keep, fix the values. Values with fewest free devices come first,
so that large groups of devices stay whole. Of more than `MOST_VALUES` values, those with most free devices are tried.
Linear in the devices of the cluster: a device whose lists make more than `COMBINATIONS_OF_DEVICE` combinations counts
as one without the attributes, and values beyond `MOST_KNOWN` are ignored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from heapq import nsmallest
from itertools import product
from math import prod
from typing import Final

from dra_extender.allocation.constraints import Token, Values, split
from dra_extender.api.resource import Device, DeviceID, ResourceSlice
from dra_extender.devices.models import attribute_of
from dra_extender.devices.usage import PoolID
from dra_extender.limits import COMBINATIONS_OF_DEVICE
from dra_extender.scheduling.view import View

SAME: Final = "dra-extender.dev/same-device-attribute"

MOST_ATTRIBUTES: Final = 4
CHARACTERS_OF_ATTRIBUTE: Final = 96
"""The API server accepts no longer attribute name. The reason of every node quotes it."""
MOST_VALUES: Final = 64
MOST_KNOWN: Final = 2**16
PORTION: Final = 256
"""Values that are compared in one step, for four units of work each."""

Tokens = Sequence[Sequence[Token]]
"""The values that a device has, by attribute."""


def attributes_of(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The names that are written in the annotation, as `DOMAIN/NAME`."""
    written = annotations.get(SAME, "").split(",")[: MOST_ATTRIBUTES + 1]
    names = dict.fromkeys(name.strip()[:CHARACTERS_OF_ATTRIBUTE] for name in written)
    return tuple(name for name in names if name)


def problem_of(attributes: Sequence[str]) -> str:
    """What is wrong with the annotation; empty if nothing is."""
    if len(attributes) > MOST_ATTRIBUTES:
        return f"annotation {SAME} of its pods names more than {MOST_ATTRIBUTES} attributes"
    wrong = next((name for name in attributes if not all(name.partition("/"))), "")
    return f'annotation {SAME} of its pods must name attributes as DOMAIN/NAME, not "{wrong}"' if wrong else ""


def values_of(
    view: View, attributes: Sequence[str], fixed: Iterable[DeviceID]
) -> tuple[Mapping[Values, Collection[str]], str]:
    """The values to try, in order, each with the nodes that have it ("": any node may), and why if none has room.
    `fixed`: devices that members have. Each turn goes on where the last one stopped: devices that are taken or freed in
    between change only the order. Raises TurnSpent and Deferred.
    """
    lists, pools = view.features.DRAListTypeAttributes, view.cluster.inventory.pools
    free, devices = _free(view, attributes, lists), tuple(fixed)
    view.decisions.budget.spend(len(devices))
    allowed: Set[Values] = free.keys()
    for device in devices:
        known = pools[device[:2]].device(device[2]) if device[:2] in pools else None
        if known is not None:
            allowed &= set(_values(attributes, _tokens(device[0], known, attributes, lists)))
    names = " and ".join(attributes)
    if not free:
        return {}, f"no device has attribute {names}"
    if not allowed:
        return {}, f"its pods that have devices already have different values of device attribute {names}"
    left, chosen = view.decisions.budget.found.setdefault(("values", *attributes, *devices), (list(allowed), []))
    while left:
        view.decisions.budget.spend(4 * PORTION)
        some = *chosen, *left[-PORTION:]
        chosen[:] = nsmallest(MOST_VALUES, some, key=lambda values: (-free[values].total(), repr(values)))
        del left[-PORTION:]
    which = "no value" if len(chosen) == len(allowed) else f"none of the {MOST_VALUES} most frequent values"
    why = f"{which} of device attribute {names} has room for all pods"
    return {values: free[values] for values in reversed(chosen)}, why


def _free(view: View, attributes: Sequence[str], lists: bool) -> Mapping[Values, Counter[str]]:
    """The values that devices have: by node, how many of the devices are not in use. Raises TurnSpent and Deferred."""
    found, key, overlay = view.decisions.budget.found, (SAME, *attributes), view.overlay()
    unread: list[tuple[PoolID, ResourceSlice]]
    free: defaultdict[Values, Counter[str]]
    if key not in found:
        pools = view.cluster.inventory.pools.items()
        found[key] = [(id, each) for id, pool in pools for each in pool.as_published()], defaultdict(Counter)
    unread, free = found[key]
    while unread:
        pool, each = unread[-1]
        holdings = overlay.holdings(pool)
        owned = holdings.owned if holdings is not None else ()
        tokens = [_tokens(pool[0], device, attributes, lists) for device in each.spec.devices]
        view.decisions.budget.spend(sum(1 + sum(map(len, listed)) + _combinations(listed) for listed in tokens))
        for device, listed in zip(each.spec.devices, tokens, strict=True):
            for value in _values(attributes, listed):
                if len(free) < MOST_KNOWN or value in free:
                    free[value][each.spec.node_name or ""] += device.name not in owned
        unread.pop()
    return free


def _tokens(driver: str, device: Device, attributes: Sequence[str], lists: bool) -> Tokens:
    written = [attribute_of(driver, device.attributes, name) for name in attributes]
    return [split(each.value, lists) if each is not None else () for each in written]


def _combinations(tokens: Tokens) -> int:
    """How many combinations count; none if there are too many."""
    count = prod(map(len, tokens))
    return count if count <= COMBINATIONS_OF_DEVICE else 0


def _values(attributes: Sequence[str], tokens: Tokens) -> Iterator[Values]:
    """The combinations of values that a device has: several if an attribute is a list."""
    for found in product(*tokens) if _combinations(tokens) else ():
        yield tuple(zip(attributes, found, strict=True))
