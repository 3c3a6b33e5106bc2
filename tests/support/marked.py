"""Strings of objects with sequences that control a terminal, a log or a browser, and what must not come out of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import inspect

from dra_extender.api.core import Node, Pod, PodDisruptionBudget
from dra_extender.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dra_extender.api.scheduling import CoschedulingPodGroup, PodGroup
from dra_extender.kube.resources import POD_GROUPS, Served, watched_kinds

Json = dict[str, Any]
Path = tuple[str | int, ...]

FORGED: Final = "Suggestion: run it"
MARK: Final = f"\x1b]52;c;cm0=\x07\x1b[2J\x9b2J\u202e\u2066\u200b\u2028\ufeff\x7f\r\n{FORGED}"
"""OSC 52 (clipboard), CSI (clear the screen) in both forms, bidirectional and zero-width characters, a line of its own.
"""
KEY: Final = "<key>"

STRUCTS: Final[dict[str, type[Any]]] = {
    each.__name__: each
    for each in (
        *(Node, Pod, ResourceClaim, ResourceSlice, DeviceClass, DeviceTaintRule),
        *(PodDisruptionBudget, PodGroup, CoschedulingPodGroup),
    )
}
"""Every kind that is decoded."""
KINDS: Final = {
    kind.kind: kind for kind in watched_kinds(Served(taint_rules="v1", pod_groups=POD_GROUPS), budgets=True)
}
assert KINDS.keys() == STRUCTS.keys()


def is_harmless(text: str) -> bool:
    """Each line is printable, and none of them comes from a value."""
    lines = text.split("\n")
    return all(line.isprintable() for line in lines) and not any(line.startswith(FORGED) for line in lines)


def string_fields(struct: type[Any]) -> list[Path]:
    """The paths of everything in this struct that is a string in JSON. 0: in a list; `KEY`: the key of a dictionary."""
    return list(dict.fromkeys(_strings(inspect.type_info(struct), ())))


def _strings(kind: inspect.Type, path: Path) -> Iterator[Path]:
    match kind:
        case inspect.StructType():
            for field in kind.fields:
                yield from _strings(field.type, (*path, field.encode_name))
        case inspect.UnionType():
            for member in kind.types:
                yield from _strings(member, path)
        case inspect.VarTupleType():
            yield from _strings(kind.item_type, (*path, 0))
        case inspect.DictType():
            yield (*path, KEY)
            yield from _strings(kind.value_type, (*path, "key"))
        case inspect.StrType() | inspect.LiteralType() | inspect.CustomType():
            yield path


def marked(documents: Sequence[Json], kind: str, path: Path) -> list[Json]:
    """The documents with a mark at this path of each one of the kind. What had the same value still has the same."""
    found = copy.deepcopy(list(documents))
    for document in found:
        if document["kind"] == kind:
            before = _mark(document, path)
            if before:
                found[:] = [_renamed(each, before) for each in found]
                break
    return found


def _mark(place: Any, path: Path) -> str:
    """Returns the previous value, if it was a string."""
    head, *rest = path
    if head == KEY:
        place[f"key{MARK}"] = next(iter(place.values()), "1")
        return ""
    if head == 0 and not place:
        place.append({} if rest else "")
    if not rest:
        before = place[0] if head == 0 else place.get(head, "")
        place[head] = f"{before if isinstance(before, str) else ''}{MARK}"
        return before if isinstance(before, str) else ""
    empty: Any = [] if rest[0] == 0 else {}
    if head == 0:
        return _mark(place[0], tuple(rest))
    if head == "key" and place:
        head = next(iter(place))
    return _mark(place.setdefault(head, empty), tuple(rest))


def _renamed(value: Any, before: str) -> Any:
    match value:
        case dict():
            return {key: part if key == "kind" else _renamed(part, before) for key, part in value.items()}
        case list():
            return [_renamed(part, before) for part in value]
        case str():
            return before + MARK if value == before else value
    return value
