"""Attributes of which the devices of all members of a gang need one value, such as one clique or one rail.

Promises: pure. The devices that members have already, or keep, decide the values. Values with fewest free devices come
first, so that large groups of devices stay whole. Of more than `MOST_VALUES` the ones with most free devices are
tried. Linear in the devices of the cluster: a device whose lists make more than `COMBINATIONS_OF_DEVICE` combinations
counts as one without the attributes, and further values than `MOST_KNOWN` are not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Final

from dra_extender.allocation.constraints import Token, Values, split
from dra_extender.api.resource import Device, DeviceID
from dra_extender.devices.models import attribute_of
from dra_extender.devices.usage import PoolID
from dra_extender.limits import COMBINATIONS_OF_DEVICE
from dra_extender.scheduling.view import View

SAME: Final = "dra-extender.dev/same-device-attribute"

MOST_ATTRIBUTES: Final = 4
CHARACTERS_OF_ATTRIBUTE: Final = 96
"""A longer name of an attribute does not exist. The reasons of all nodes quote it."""
MOST_VALUES: Final = 64
MOST_KNOWN: Final = 2**16
VALUES_PER_UNIT: Final = 4
"""Values and combinations of values per unit of work."""

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


def values_of(view: View, attributes: Sequence[str], fixed: Iterable[DeviceID]) -> tuple[Sequence[Values], str]:
    """What to try, in order, and why nothing else can be tried. `fixed`: devices that members have. Raises TurnSpent
    and Deferred.
    """
    lists, pools = view.features.DRAListTypeAttributes, view.cluster.inventory.pools
    free = _free(view, attributes, lists)
    allowed = set(free)
    for device in fixed:
        known = pools[device[:2]].device(device[2]) if device[:2] in pools else None
        if known is not None:
            allowed.intersection_update(_values(attributes, _tokens(device[0], known, attributes, lists)))
    names = " and ".join(attributes)
    if not free:
        return (), f"no device has attribute {names}"
    if not allowed:
        return (), f"its pods that have devices already have different values of device attribute {names}"
    chosen = sorted(allowed, key=lambda values: (-free[values], repr(values)))[:MOST_VALUES]
    which = "no value" if len(chosen) == len(allowed) else f"none of the {MOST_VALUES} most frequent values"
    why = f"{which} of device attribute {names} has room for all pods"
    return chosen[::-1], why


def _free(view: View, attributes: Sequence[str], lists: bool) -> Counter[Values]:
    """The values that devices have, and how many of these are not in use. Raises TurnSpent and Deferred."""
    budget, overlay = view.decisions.budget, view.overlay()
    read: set[tuple[PoolID, str]]
    free: Counter[Values]
    read, free = budget.found.setdefault((SAME, *attributes), (set(), Counter()))
    for pool, published in view.cluster.inventory.pools.items():
        holdings = overlay.holdings(pool)
        owned = holdings.owned if holdings is not None else ()
        for name, each in published.slices.items():
            if (pool, name) in read:
                continue
            tokens = [_tokens(pool[0], device, attributes, lists) for device in each.spec.devices]
            budget.spend(sum(map(_cost, tokens)) // VALUES_PER_UNIT)
            for device, listed in zip(each.spec.devices, tokens, strict=True):
                for found in _values(attributes, listed):
                    if len(free) < MOST_KNOWN or found in free:
                        free[found] += device.name not in owned
            read.add((pool, name))
    return free


def _tokens(driver: str, device: Device, attributes: Sequence[str], lists: bool) -> Tokens:
    written = [attribute_of(driver, device.attributes, name) for name in attributes]
    return [split(each.value, lists) if each is not None else () for each in written]


def _cost(tokens: Tokens) -> int:
    return 1 + sum(map(len, tokens)) + _combinations(tokens)


def _combinations(tokens: Tokens) -> int:
    """How many combinations count; none if there are too many."""
    count = prod(map(len, tokens))
    return count if count <= COMBINATIONS_OF_DEVICE else 0


def _values(attributes: Sequence[str], tokens: Tokens) -> Iterator[Values]:
    """What a device has: one combination, or several if an attribute is a list."""
    for found in product(*tokens) if _combinations(tokens) else ():
        yield tuple(zip(attributes, found, strict=True))
