"""A scenario as people write it: what is misspelt or of another type is named with its path, and what the API server
would fill in is filled in. Recorded scenarios are decided as they are; this is for those that somebody types.

Promises: pure. Of objects the specs are checked, field by field; metadata and status have more fields than decisions
read. Messages use the words of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import inspect

from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import (
    DeviceClassSpec,
    DeviceTaintRuleSpec,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSliceSpec,
)
from dra_extender.cli.lines import shape
from dra_extender.insight.why.draft import defaulted

_LISTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "slices": ResourceSliceSpec,
    "classes": DeviceClassSpec,
    "taintRules": DeviceTaintRuleSpec,
    "allocatedClaims": ResourceClaimSpec,
    "claims": ResourceClaimSpec,
}
"""List of a scenario -> what the specs in it are."""
_FIELDS: Final = (*_LISTS, "name", "node", "features")
_WORDS: Final = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "object": "an object",
    "array": "a list", "null": "null",
}  # fmt: skip
_EXPECTED: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_PATH: Final = re.compile(r"^(.*?)(?: - at `\$\.?([^`]*)`)?$", re.DOTALL)


def worded(problem: str) -> str:
    """What a decoder says of a value, in the words of JSON, the path first."""
    text = _EXPECTED.sub(lambda found: f"{_types(found[2])} where {_types(found[1])} is expected", problem)
    head, colon, rest = text.rpartition(": ") if " - at `" in text else ("", "", text)
    found = _PATH.match(rest)
    message, path = (found[1], found[2]) if found is not None else (rest, None)
    return f"{head}{colon}{path}: {message}" if path else f"{head}{colon}{message}"


def _types(names: str) -> str:
    return " or ".join(_WORDS.get(name.strip(), name.strip()) for name in names.split("|"))


def strict(case: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with defaults. Raises ValueError for what cannot be meant."""
    problem = next(_problems(case), "")
    if problem:
        raise ValueError(problem)
    claims = []
    for number, claim in enumerate(case["claims"]):
        try:
            read = convert(ResourceClaim, claim)
        except ValueError as wrong:
            raise ValueError(f"claims[{number}]: {worded(str(wrong))}") from None
        for request in read.spec.devices.requests:
            counts = [source.count for source in request.first_available]
            counts += [request.exactly.count] if request.exactly is not None else []
            if min(counts, default=0) < 0:
                raise ValueError(f"claims[{number}]: request {request.name}: count {min(counts)} is less than 1")
        claims.append({**claim, "spec": to_builtins(defaulted(read.spec))})
    return {**case, "claims": claims}


def _problems(case: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown("", case, _FIELDS)
    for name in _LISTS:
        items = case.get(name)
        if items is not None and not isinstance(items, list):
            yield f"{name}: {shape(items)} where a list is expected"
    if not case.get("claims"):
        yield "claims: missing or empty, so there is nothing to allocate"
    features = case.get("features")
    if features is not None and not (isinstance(features, list) and all(isinstance(each, str) for each in features)):
        yield f"features: a list of names is expected, of {', '.join(FeatureGates.__struct_fields__)}"
    if not isinstance(case.get("node") or {}, dict):
        yield f"node: {shape(case['node'])} where an object is expected"
    for name, kind in _LISTS.items():
        for number, item in enumerate(case.get(name) or ()):
            path = f"{name}[{number}]"
            if not isinstance(item, dict):
                yield f"{path}: {shape(item)} where an object is expected"
                continue
            if "spec" not in item and kind is not DeviceClassSpec:
                yield f"{path}: spec is missing"
            yield from _strange(f"{path}.spec", item.get("spec"), inspect.type_info(kind))


def _strange(path: str, value: Any, kind: inspect.Type) -> Iterator[str]:
    """Fields below that nobody knows. Other types than expected are told when the object is decoded."""
    if isinstance(kind, inspect.UnionType):
        kind = next((each for each in kind.types if not isinstance(each, inspect.NoneType)), kind)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        yield from _unknown(path, value, tuple(fields))
        for name, part in value.items():
            if name in fields:
                yield from _strange(f"{path}.{name}", part, fields[name])
    elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
        for name, part in value.items():
            yield from _strange(f"{path}.{name}", part, kind.value_type)
    elif isinstance(kind, inspect.VarTupleType) and isinstance(value, list):
        for number, part in enumerate(value):
            yield from _strange(f"{path}[{number}]", part, kind.item_type)


def _unknown(path: str, value: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[str]:
    for name in value:
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            yield f"{path}{'.' if path else ''}{name}: no such field; {meant}"
