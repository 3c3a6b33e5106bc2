"""What functions exist, for which types, and how they are carried out.

A library is a module with a `LIBRARY`; each overload is declared by its signature next to the function behind it:

    @LIBRARY.method("charAt", "string, int -> string")
    def char_at(text: str, index: int) -> str: ...

The first type of a method is the receiver's. Single capital letters are type variables. Functions whose work or memory
is more than a few times the size of their arguments are `metered`: they take the meter of the evaluation before these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from dra_extender.cel import types
from dra_extender.cel.errors import Fault
from dra_extender.cel.types import Type
from dra_extender.cel.values import CLASSES, type_name
from dra_extender.cel.work import Meter

Run = Callable[..., Any]
"""Carries out a function: takes the meter of the evaluation and the values."""
Guard = Callable[[Any], bool]
F = TypeVar("F", bound=Callable[..., Any])

_TYPES: Final = {
    "bool": types.BOOL, "bytes": types.BYTES, "double": types.DOUBLE, "duration": types.DURATION, "dyn": types.DYN,
    "int": types.INT, "string": types.STRING, "timestamp": types.TIMESTAMP, "uint": types.UINT, "CIDR": types.CIDR,
    "IP": types.IP, "NamedFormat": types.NAMED_FORMAT, "Quantity": types.QUANTITY, "Semver": types.SEMVER,
    "URL": types.URL,
}  # fmt: skip
_GENERIC: Final[dict[str, Callable[..., Type]]] = {
    "list": types.list_of, "map": types.map_of, "optional": types.optional_of, "type": types.type_of,
}  # fmt: skip
_WORD: Final = re.compile(r"\w+|->|\)")


class Overload:
    """One signature of a function. `run` carries it out; it may assume that the values are of the declared types."""

    def __init__(self, function: str, member: bool, signature: str, run: Run | None) -> None:
        self.function = function
        self.member = member
        words = iter(_WORD.findall(signature))
        self.params, (self.result,) = _parse_types(words), _parse_types(words)
        self.run = run
        self.guards: tuple[Guard | None, ...] = tuple(_guard(kind) for kind in self.params)

    def accepts(self, values: tuple[Any, ...]) -> bool:
        """True when the values have the declared types, as far as upstream looks: of a list, at its first element."""
        if len(values) != len(self.params):
            return False
        for guard, value in zip(self.guards, values, strict=True):
            if guard is not None and not guard(value):
                return False
        return True


@dataclass(slots=True, eq=False)
class Function:
    """All overloads of a name. `shared` carries out every overload and checks the values itself."""

    name: str
    overloads: list[Overload] = field(default_factory=list)
    shared: Run | None = None

    def run(self, overloads: Sequence[Overload]) -> Run:
        """What carries out a call for which the checker found these overloads."""
        if self.shared is not None:
            return self.shared
        return partial(self._first, overloads if len(overloads) == 1 else self.overloads)

    def _first(self, overloads: Sequence[Overload], meter: Meter, *values: Any) -> Any:
        """Carry out the first overload that accepts the values. Raises Fault if no overload does."""
        for overload in overloads:
            if overload.run is not None and overload.accepts(values):
                return overload.run(meter, *values)
        raise no_such_overload(self.name, values)


@dataclass(slots=True, eq=False)
class Library:
    """Some functions that belong together."""

    overloads: list[Overload] = field(default_factory=list)
    shared: dict[str, Run] = field(default_factory=dict)

    def function(self, name: str, *signatures: str, metered: bool = False) -> Callable[[F], F]:
        """The decorated function carries out these overloads of the global function `name`."""
        return self._register(name, False, signatures, metered)

    def method(self, name: str, *signatures: str, metered: bool = False) -> Callable[[F], F]:
        """The decorated function carries out these overloads of the method `name`."""
        return self._register(name, True, signatures, metered)

    def functions(self, runs: Mapping[tuple[str, str], Callable[..., Any]]) -> None:
        """Global functions, by name and signature."""
        for (name, signature), run in runs.items():
            self.function(name, signature)(run)

    def methods(self, runs: Mapping[tuple[str, str], Callable[..., Any]]) -> None:
        """Methods, by name and signature."""
        for (name, signature), run in runs.items():
            self.method(name, signature)(run)

    def _register(self, name: str, member: bool, signatures: tuple[str, ...], metered: bool) -> Callable[[F], F]:
        def register(run: F) -> F:
            carried_out = run if metered else _without_meter(run)
            self.overloads += [Overload(name, member, signature, carried_out) for signature in signatures]
            return run

        return register

    def declare(self, name: str, *signatures: str, member: bool = False) -> None:
        """Overloads that are carried out by the function's shared implementation, or by the interpreter itself."""
        self.overloads += [Overload(name, member, signature, None) for signature in signatures]

    def share(self, name: str, metered: bool = False) -> Callable[[F], F]:
        """The decorated function carries out all overloads of `name`."""

        def register(run: F) -> F:
            self.shared[name] = run if metered else _without_meter(run)
            return run

        return register


def _without_meter(run: Callable[..., Any]) -> Run:
    return lambda _, *values: run(*values)


Functions = Mapping[str, Function]


def functions_of(libraries: Iterable[Library]) -> Functions:
    functions: dict[str, Function] = {}
    for library in libraries:
        for overload in library.overloads:
            functions.setdefault(overload.function, Function(overload.function)).overloads.append(overload)
        for name, run in library.shared.items():
            functions[name].shared = run
    return functions


def no_such_overload(name: str, values: Iterable[Any]) -> Fault:
    return Fault(f"no such overload: {name}({', '.join(map(type_name, values))})")


def _parse_types(words: Iterator[str]) -> tuple[Type, ...]:
    """The types up to an arrow, to the bracket that closes, or to the end."""
    found: list[Type] = []
    for word in words:
        if word in ("->", ")"):
            break
        if word in _GENERIC:
            found.append(_GENERIC[word](*_parse_types(words)))
        else:
            found.append(types.param(word) if len(word) == 1 else _TYPES[word])
    return tuple(found)


def _guard(kind: Type) -> Guard | None:
    """A test whether a value is of a type; None when every value is (cel-go common/types, IsAssignableRuntimeType)."""
    if kind.is_dynamic or kind.kind == "param":
        return None
    if kind.kind == "list":
        element = _guard(kind.params[0])
        if element is None:
            return lambda value: value.__class__ is list
        return lambda value: value.__class__ is list and (not value or element(value[0]))
    class_ = CLASSES.get(kind.name)
    if class_ is not None:
        return lambda value: value.__class__ is class_
    return lambda value: type_name(value) == kind.name
