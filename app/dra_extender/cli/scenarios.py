"""Scenarios of the offline commands: JSON lines on standard input, one JSON line on standard output for each.

Promises: one answer per non-empty line, in order, written as soon as it is known. A line that is not valid gets an
answer with the problem, and the next lines are still answered. `strict` refuses a field that is unknown or has the
wrong type, with its path, and fills in the defaults of the API server; it checks the specs of objects field by field,
not metadata and status.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec
import orjson

from dra_extender.api.decoding import DecodeError, convert, to_builtins
from dra_extender.api.resource import DeviceClassSpec, DeviceTaintRuleSpec, ResourceClaimSpec, ResourceSliceSpec
from dra_extender.insight.manifests import defaulted

Spec = TypeVar("Spec")


class _Item(msgspec.Struct, Generic[Spec], rename="camel", kw_only=True, forbid_unknown_fields=True):
    """An object. Only its spec is checked here."""

    spec: Spec
    api_version: Any = None
    kind: Any = None
    metadata: Any = None
    status: Any = None


class _Class(_Item[DeviceClassSpec], kw_only=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class _Scenario(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    claims: tuple[_Item[ResourceClaimSpec], ...] = ()
    slices: tuple[_Item[ResourceSliceSpec], ...] = ()
    classes: tuple[_Class, ...] = ()
    taint_rules: tuple[_Item[DeviceTaintRuleSpec], ...] = ()
    allocated_claims: tuple[_Item[ResourceClaimSpec], ...] = ()
    name: Any = ""
    node: dict[str, Any] = {}
    features: tuple[str, ...] = ()
    release: str = ""


def answer_lines(
    answer: Callable[[dict[str, Any]], dict[str, Any]], refuse: Callable[[str, str], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Answer every line; yields the answers. `refuse`: the answer to a line that is not a JSON object, or for which
    `answer` raises ValueError, by the name of the line and the problem.
    """
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        name = f"line {number}"
        try:
            case = _parsed(line)
            name = str(case.get("name") or "")
            found = answer(case)
        except ValueError as problem:
            found = refuse(name, str(problem))
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()
        yield found


def _parsed(line: bytes) -> dict[str, Any]:
    """The object of a line. Raises ValueError."""
    try:
        case = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(case, dict):
        raise ValueError("not an object")
    return case


def strict(case: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario with defaults. Raises ValueError for what cannot be meant."""
    if not case.get("claims"):
        raise ValueError("claims: missing or empty, so there is nothing to allocate")
    try:
        read = convert(_Scenario, case)
    except DecodeError as wrong:
        raise ValueError(wrong.problem) from None
    claims = []
    for number, claim in enumerate(read.claims):
        for request in claim.spec.devices.requests:
            counts = [source.count for source in request.first_available]
            counts += [request.exactly.count] if request.exactly is not None else []
            if min(counts, default=0) < 0:
                raise ValueError(f"claims[{number}]: request {request.name}: count {min(counts)} is less than 1")
        claims.append({**case["claims"][number], "spec": to_builtins(defaulted(claim.spec))})
    return {**case, "claims": claims}
