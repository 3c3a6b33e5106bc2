"""The language of device selectors: all libraries, and the fields of the variable `device`, for given feature gates."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from app.cel import types
from app.cel.declarations import Declarations
from app.cel.library import (
    authorization,
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
from app.cel.types import Type, map_of

_LIBRARIES: Final = tuple(
    module.LIBRARY
    for module in (
        operators, conversions, times, lists, strings, formatting, optionals, quantities, versions, network, urls,
        formats, regexes, authorization,
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
    device_fields: dict[str, Type]
    results: tuple[Type, ...]
    """The types an expression may have."""


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
    return Environment(Declarations(libraries), fields, results)
