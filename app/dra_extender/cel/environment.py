"""What a device selector may name, for given feature gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dra_extender.cel import types
from dra_extender.cel.declarations import Functions, functions_of
from dra_extender.cel.derived import EXPECTED, RESULTS
from dra_extender.cel.device import FIELDS, CelGates
from dra_extender.cel.library import (
    conversions,
    formats,
    formatting,
    kubernetes,
    lists,
    network,
    operators,
    regexes,
    strings,
    times,
    urls,
)
from dra_extender.cel.types import Type, map_of

_LIBRARIES: Final = tuple(
    module.LIBRARY
    for module in (
        operators, conversions, times, lists, strings, formatting, kubernetes, network, urls, formats, regexes,
    )
)  # fmt: skip
_WITHOUT_INCLUDES: Final = functions_of(_LIBRARIES)
_ALL: Final = functions_of((*_LIBRARIES, kubernetes.INCLUDES))


class Environment(NamedTuple):
    functions: Functions
    fields: Mapping[str, Type]
    """The fields of `device`, which is the only variable."""
    results: tuple[Type, ...]
    """The types that an expression may have."""
    expected: str
    """The same for people."""


def environment(gates: CelGates) -> Environment:
    attribute = types.DYN if gates.list_attributes else types.ANY
    fields = {
        "attributes": map_of(types.STRING, map_of(types.STRING, attribute)),
        "capacity": map_of(types.STRING, map_of(types.STRING, types.QUANTITY)),
        **{name: field.type for name, field in FIELDS.items() if field.exists(gates)},
    }
    functions = _ALL if gates.list_attributes or gates.stored else _WITHOUT_INCLUDES
    if gates.derived:
        return Environment(functions, fields, RESULTS, EXPECTED)
    results = (types.BOOL, types.ANY, types.DYN) if gates.list_attributes else (types.BOOL, types.ANY)
    return Environment(functions, fields, results, "bool or the unknown type")
