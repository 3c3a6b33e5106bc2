"""The loops of the interpreter: `all`, `exists`, `map`, `filter`, … over lists and maps, with one variable or two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from dra_extender.cel.cost import CALLS, LIST, Constant
from dra_extender.cel.declarations import no_such_overload
from dra_extender.cel.equality import describe
from dra_extender.cel.errors import Abort, Fault
from dra_extender.cel.frame import Evaluate, Frame, renewed, renewed_if_optional
from dra_extender.cel.library.lists import sort_by_keys
from dra_extender.cel.values import NONE, Map, Option, find, key_value, map_key, size_of, type_name

Loop = Callable[[Evaluate, tuple[int, ...], tuple[Evaluate, ...], int], Evaluate]
"""Makes a loop of what is iterated, the places of the variables, the arguments of the macro, and the work of a step."""


def _iterated(frame: Frame, value: Any, two: bool) -> Iterable[Any]:
    """What a loop goes over: elements or keys; pairs of index or key and value for two variables. Raises Fault."""
    if value.__class__ is list:
        return enumerate(value) if two else value
    if isinstance(value, dict):
        frame.charge(1 + len(value) // 8)
        return [(key_value(key), entry) for key, entry in value.items()] if two else list(map(key_value, value))
    if two:
        raise Fault(f"unsupported comprehension range type: {type_name(value)}")
    raise Fault(f"got '{type_name(value)}', expected iterable type")


def _rounds(frame: Frame, value: Any, indexes: tuple[int, ...], step: int) -> Iterator[Any]:
    """What a loop goes over, each item in the variables and charged for. Raises Fault."""
    for item in _iterated(frame, value, len(indexes) == 2):
        frame.charge(step)
        if len(indexes) == 1:
            frame.values[indexes[0]] = item
        else:
            frame.values[indexes[0]], frame.values[indexes[1]] = item
        yield item
        frame.add_cost(0)


def _quantifier(decisive: bool) -> Loop:
    """`all` and `exists`: as `&&` and `||`, errors are absorbed by an element that decides."""
    step_cost = 4 if decisive else 3

    def loop(range_: Evaluate, indexes: tuple[int, ...], arguments: tuple[Evaluate, ...], step: int) -> Evaluate:
        predicate = arguments[0]

        def evaluate(frame: Frame) -> bool:
            fault: Fault | None = None
            values = range_(frame)
            left = size_of(values)
            decided = False
            for _ in _rounds(frame, values, indexes, step):
                frame.add_cost(step_cost)
                left -= 1
                try:
                    value = predicate(frame)
                except Fault as error:
                    fault = fault or error.with_traceback(None)
                    continue
                if value is decisive:
                    decided = True
                    if left:  # upstream looks at the condition of the loop once more
                        frame.cost += step_cost - 1
                    break
                if value.__class__ is not bool:
                    fault = fault or Fault("no such overload")
            frame.cost += 1
            if fault is not None and not decided:
                raise fault
            return decisive if decided else not decisive

        return evaluate

    return loop


def _exactly_one(range_: Evaluate, indexes: tuple[int, ...], arguments: tuple[Evaluate, ...], step: int) -> Evaluate:
    predicate = arguments[0]

    def evaluate(frame: Frame) -> bool:
        count = 0
        for _ in _rounds(frame, range_(frame), indexes, step):
            if _holds(predicate(frame)):
                count += 1
                frame.cost += 2
        frame.cost += 2
        return count == 1

    return evaluate


def _holds(value: Any) -> bool:
    if value.__class__ is bool:
        return bool(value)
    raise Fault("no such overload")


def _filter(range_: Evaluate, indexes: tuple[int, ...], arguments: tuple[Evaluate, ...], step: int) -> Evaluate:
    predicate = arguments[0]

    def evaluate(frame: Frame) -> list[Any]:
        kept = []
        for item in _rounds(frame, range_(frame), indexes, step):
            if _holds(predicate(frame)):
                kept.append(item)
                frame.cost += LIST + 3
        frame.cost += 1
        frame.keep(kept)
        return kept

    return evaluate


def _transform_list(range_: Evaluate, indexes: tuple[int, ...], arguments: tuple[Evaluate, ...], step: int) -> Evaluate:
    """`map` and `transformList`, with or without a condition."""
    transform = arguments[-1]
    condition = arguments[0] if len(arguments) == 2 else None
    step_cost = 2 if isinstance(transform, Constant) else LIST + 2

    def evaluate(frame: Frame) -> list[Any]:
        results = []
        for _ in _rounds(frame, range_(frame), indexes, step):
            if condition is None or _holds(condition(frame)):
                results.append(transform(frame))
                frame.cost += step_cost
        frame.cost += 1
        frame.keep(results)
        return results

    return evaluate


def _into_map(insert: Callable[[Frame, Map, Any, Any], None], step_cost: int) -> Loop:
    """A loop that makes a map; `insert` puts what an element (its key is given) becomes into it."""

    def transform_map(
        range_: Evaluate, indexes: tuple[int, ...], arguments: tuple[Evaluate, ...], step: int
    ) -> Evaluate:
        transform = arguments[-1]
        condition = arguments[0] if len(arguments) == 2 else None

        def evaluate(frame: Frame) -> Map:
            result = Map()
            for key, _ in _rounds(frame, range_(frame), indexes, step):
                if condition is None or _holds(condition(frame)):
                    insert(frame, result, key, transform(frame))
                    frame.cost += step_cost
            frame.cost += 1
            frame.keep(result)
            return result

        return evaluate

    return transform_map


def _insert(_: Frame, entries: Map, key: Any, value: Any) -> None:
    """`transformMap`: the same keys with other values."""
    if find(entries, key)[1]:
        raise Fault(f"insert failed: key {describe(key)} already exists")
    entries[map_key(key)] = value


def _insert_all(frame: Frame, entries: Map, _: Any, more: Any) -> None:
    """`transformMapEntry`: each element becomes some entries."""
    if not isinstance(more, dict):
        raise Fault("no such overload: cel.@mapInsert")
    frame.charge(len(more))
    for key, value in more.items():
        _insert(frame, entries, key_value(key), value)


def sort_by(range_: Evaluate, index: int, key: Evaluate, step: int, fragile: bool) -> Evaluate:
    """`sortBy`. An error in a key ends the whole evaluation if the type of the keys is known; upstream panics then."""
    step_cost = 2 if isinstance(key, Constant) else LIST + 2

    def keys_of_values(frame: Frame) -> tuple[Any, list[Any]]:
        values = range_(frame)
        keys = []
        for _ in _rounds(frame, values, (index,), step):
            keys.append(key(frame))
            frame.add_cost(step_cost)
        return values, keys

    def evaluate(frame: Frame) -> list[Any]:
        try:
            values, keys = keys_of_values(frame)
        except Fault as fault:
            if fragile:
                raise Abort(f"internal error: {fault}") from None
            raise
        frame.add_cost(3 + CALLS["@sortByAssociatedKeys"]((values, keys), None))
        return sort_by_keys(frame, values, keys)

    return evaluate


def unwrapping(option: Evaluate, index: int, body: Evaluate, wrap: bool) -> Evaluate:
    """`optMap` and, without `wrap`, `optFlatMap`: a round for what is in an optional, if anything is."""

    def evaluate(frame: Frame) -> Any:
        value = option(frame)
        if value.__class__ is not Option:
            raise no_such_overload("hasValue", (value,))
        frame.cost += 2
        if value is NONE:
            return NONE
        frame.values[index] = value.content
        result = body(frame)
        return renewed(Option(result)) if wrap else renewed_if_optional(result)

    return evaluate


LOOPS: Final[dict[str, Loop]] = {
    "all": _quantifier(False),
    "exists": _quantifier(True),
    "exists_one": _exactly_one,
    "existsOne": _exactly_one,
    "filter": _filter,
    "map": _transform_list,
    "transformList": _transform_list,
    "transformMap": _into_map(_insert, 3),
    "transformMapEntry": _into_map(_insert_all, 2),
}
