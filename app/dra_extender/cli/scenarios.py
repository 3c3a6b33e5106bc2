"""Scenarios of the offline commands: JSON lines on standard input, one JSON line on standard output for each.

Promises: one answer per non-empty line, in order, written as soon as it is known. A line that is not a JSON object gets
an answer with the problem, and the next lines are still answered. `strict` names a field that is misspelt or has the
wrong type by its path, and fills in the defaults of the API server; it checks the specs of objects field by field, not
metadata and status. Messages use the words of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, BinaryIO, Final

import msgspec
import orjson
from msgspec import inspect

from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.features import GATES
from dra_extender.api.resource import (
    DeviceClassSpec,
    DeviceTaintRuleSpec,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSliceSpec,
)
from dra_extender.insight.manifests import defaulted

LineAnswer = Callable[[dict[str, Any]], dict[str, Any]]
Complaint = Callable[[str, str], dict[str, Any]]
"""(name of the line, problem) -> the answer to a line that cannot be read."""


def answer_lines(source: BinaryIO, target: BinaryIO, answer: LineAnswer, complain: Complaint) -> int:
    """Answer every line of `source` on `target`. Returns how many lines could not be read."""
    unreadable = 0
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            case = orjson.loads(line)
            problem = "" if isinstance(case, dict) else f"{shape(case)} where an object is expected"
        except orjson.JSONDecodeError as error:
            case, problem = {}, f"not JSON: {error}"
        unreadable += bool(problem)
        reply = complain(f"line {number}", problem) if problem else answer(case)
        target.write(_line(reply))
        target.flush()
    return unreadable


def _line(reply: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # an integer of more than 64 bits, in the opaque parameters of a driver
        return json.dumps(reply).encode() + b"\n"


def shape(value: object) -> str:
    """What a value of JSON is, in words."""
    if isinstance(value, bool):
        return "true or false"
    names = {int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")


# --- scenarios --------------------------------------------------------------------------------------------------------

_LISTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "slices": ResourceSliceSpec,
    "classes": DeviceClassSpec,
    "taintRules": DeviceTaintRuleSpec,
    "allocatedClaims": ResourceClaimSpec,
    "claims": ResourceClaimSpec,
}
"""List of a scenario -> what the specs in it are."""
_FIELDS: Final = (*_LISTS, "name", "node", "features", "release")
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
        yield f"features: a list of names is expected, of {', '.join(GATES)}"
    if not isinstance(case.get("release", ""), str):
        yield f"release: {shape(case['release'])} where a text is expected"
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
    """Unknown fields. Wrong types are reported when the object is decoded."""
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
