"""What an expression may name: the language of device selectors for given feature gates, and what others share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from dra_extender.cel import types
from dra_extender.cel.declarations import Declarations
from dra_extender.cel.library import (
    conversions,
    formats,
    formatting,
    lists,
    membership,
    network,
    operators,
    optionals,
    quantities,
    regexes,
    strings,
    times,
    urls,
    versions,
)
from dra_extender.cel.types import Type, map_of

_LIBRARIES: Final = tuple(
    module.LIBRARY
    for module in (
        operators, conversions, times, lists, strings, formatting, optionals, quantities, versions, network, urls,
        formats, regexes,
    )
)  # fmt: skip


class CelGates(msgspec.Struct, frozen=True):
    """The features of the cluster that change the language.

    `list_attributes` is DRAListTypeAttributes, `consumable_capacity` is DRAConsumableCapacity. Without them new
    selectors have no `includes` and no `device.allowMultipleAllocations`. In `stored` selectors, which are all that an
    allocator sees, both are always known: they may have been accepted while the features were on (Kubernetes 1.36,
    dynamic-resource-allocation/cel/compile.go).
    """

    list_attributes: bool = False
    consumable_capacity: bool = True
    stored: bool = False


class Environment(NamedTuple):
    declarations: Declarations
    roots: Mapping[str, Type]
    """The variables that every expression may name."""
    structs: Mapping[str, Mapping[str, Type]]
    """The fields of types that have some, by the name of the type."""
    results: tuple[Type, ...]
    """The types an expression may have; none for any."""
    wanted: str
    """What is said of an expression of another type, in front of that type."""


@lru_cache(maxsize=8)
def environment(gates: CelGates) -> Environment:
    attribute = types.DYN if gates.list_attributes else types.ANY
    fields = {
        "driver": types.STRING,
        "attributes": map_of(types.STRING, map_of(types.STRING, attribute)),
        "capacity": map_of(types.STRING, map_of(types.STRING, types.QUANTITY)),
    }
    if gates.consumable_capacity or gates.stored:
        fields["allowMultipleAllocations"] = types.BOOL
    libraries = (*_LIBRARIES, membership.LIBRARY) if gates.list_attributes or gates.stored else _LIBRARIES
    results = (types.BOOL, types.ANY, types.DYN) if gates.list_attributes else (types.BOOL, types.ANY)
    wanted = "must evaluate to bool or the unknown type, not"
    return Environment(Declarations(libraries), {"device": types.DEVICE}, {types.DEVICE.name: fields}, results, wanted)
