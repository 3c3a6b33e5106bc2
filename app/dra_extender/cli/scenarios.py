"""Scenarios of the offline commands: JSON lines on standard input, one JSON line on standard output for each.

Promises: one answer per non-empty line, in order, written as soon as it is known. A line that is not a JSON object gets
an answer with the problem, and the next lines are still answered. `strict` names a field that is misspelt or has the
wrong type by its path, and fills in the defaults of the API server; it checks the specs of objects field by field, not
metadata and status. Messages use the words of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, BinaryIO, Final, Generic, TypeVar

import msgspec
import orjson
from msgspec import inspect

from dra_extender.api.decoding import DecodeError, convert, to_builtins
from dra_extender.api.resource import DeviceClassSpec, DeviceTaintRuleSpec, ResourceClaimSpec, ResourceSliceSpec
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
        target.write(msgspec.json.encode(reply) + b"\n")
        target.flush()
    return unreadable


def shape(value: object) -> str:
    """What a value of JSON is, in words."""
    if isinstance(value, bool):
        return "true or false"
    names = {int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")


# --- scenarios --------------------------------------------------------------------------------------------------------


Spec = TypeVar("Spec")


class _Item(msgspec.Struct, Generic[Spec], rename="camel", kw_only=True):
    """An object. Only its spec is checked here."""

    spec: Spec
    api_version: Any = None
    kind: Any = None
    metadata: Any = None
    status: Any = None


class _Class(_Item[DeviceClassSpec], kw_only=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class _Scenario(msgspec.Struct, rename="camel", kw_only=True):
    claims: tuple[_Item[ResourceClaimSpec], ...] = ()
    slices: tuple[_Item[ResourceSliceSpec], ...] = ()
    classes: tuple[_Class, ...] = ()
    taint_rules: tuple[_Item[DeviceTaintRuleSpec], ...] = ()
    allocated_claims: tuple[_Item[ResourceClaimSpec], ...] = ()
    name: Any = ""
    node: dict[str, Any] = {}
    features: tuple[str, ...] = ()
    release: str = ""


_WORDS: Final = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "object": "an object",
    "array": "a list", "null": "null",
}  # fmt: skip
_EXPECTED: Final = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_MISSING: Final = re.compile(r"Object missing required field `([^`]*)`")
_PATH: Final = re.compile(r"^(.*?)(?: - at `\$\.?([^`]*)`)?$", re.DOTALL)


def worded(problem: str) -> str:
    """What a decoder says of a value, in the words of JSON, the path first."""
    text = _EXPECTED.sub(lambda found: f"{_types(found[2])} where {_types(found[1])} is expected", problem)
    text = _MISSING.sub(r"\1 is missing", text)
    head, colon, rest = text.rpartition(": ") if " - at `" in text else ("", "", text)
    found = _PATH.match(rest)
    message, path = (found[1], found[2]) if found is not None else (rest, None)
    return f"{head}{colon}{path}: {message}" if path else f"{head}{colon}{message}"


def _types(names: str) -> str:
    return " or ".join(_WORDS.get(name.strip(), name.strip()) for name in names.split("|"))


def strict(case: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with defaults. Raises ValueError for what cannot be meant."""
    for problem in _unknown("", case, inspect.type_info(_Scenario)):
        raise ValueError(problem)
    if not case.get("claims"):
        raise ValueError("claims: missing or empty, so there is nothing to allocate")
    try:
        read = convert(_Scenario, case)
    except DecodeError as wrong:
        raise ValueError(worded(wrong.problem)) from None
    claims = []
    for number, claim in enumerate(read.claims):
        for request in claim.spec.devices.requests:
            counts = [source.count for source in request.first_available]
            counts += [request.exactly.count] if request.exactly is not None else []
            if min(counts, default=0) < 0:
                raise ValueError(f"claims[{number}]: request {request.name}: count {min(counts)} is less than 1")
        claims.append({**case["claims"][number], "spec": to_builtins(defaulted(claim.spec))})
    return {**case, "claims": claims}


def _unknown(path: str, value: Any, kind: inspect.Type) -> Iterator[str]:
    """Unknown fields. Wrong types are reported when the object is decoded."""
    if isinstance(kind, inspect.UnionType):
        kind = next((each for each in kind.types if not isinstance(each, inspect.NoneType)), kind)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for name, part in value.items():
            place = f"{path}.{name}" if path else name
            if name in fields:
                yield from _unknown(place, part, fields[name])
            else:
                near = get_close_matches(name, fields, 1)
                meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(fields)}"
                yield f"{place}: no such field; {meant}"
    elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
        for name, part in value.items():
            yield from _unknown(f"{path}.{name}", part, kind.value_type)
    elif isinstance(kind, inspect.VarTupleType) and isinstance(value, list):
        for number, part in enumerate(value):
            yield from _unknown(f"{path}[{number}]", part, kind.item_type)
