"""What functions exist, for which types, and how they are carried out.

A library is a module with a `LIBRARY`; each overload is declared by its signature next to the function behind it:

    @LIBRARY.method("charAt", "string, int -> string")
    def char_at(text: str, index: int) -> str: ...

The first type of a method is the receiver's. Single capital letters are type variables. Functions whose work or memory
is more than a few times the size of their arguments are `metered`: they take the meter of the evaluation before these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from dra_extender.cel import types
from dra_extender.cel.errors import Fault
from dra_extender.cel.meter import FREE, Meter
from dra_extender.cel.types import Type
from dra_extender.cel.values import CLASSES, type_name

Implementation = Callable[..., Any]
Metered = Callable[..., Any]
"""Takes a meter and the values."""
Guard = Callable[[Any], bool]
F = TypeVar("F", bound=Callable[..., Any])

_ALIASES: Final = {
    "Quantity": types.QUANTITY, "Semver": types.SEMVER, "URL": types.URL, "IP": types.IP, "CIDR": types.CIDR,
    "NamedFormat": types.NAMED_FORMAT, "timestamp": types.TIMESTAMP, "duration": types.DURATION, "null": types.NULL,
}  # fmt: skip


class Overload:
    """One signature of a function. `run` carries it out; it may assume that the values are of the declared types."""

    __slots__ = ("function", "guards", "member", "metered", "params", "result", "run", "variables")

    def __init__(
        self, function: str, member: bool, signature: str, run: Implementation | None, metered: bool = False
    ) -> None:
        self.function = function
        self.metered = metered
        self.member = member
        self.params, self.result = _parse_signature(signature)
        self.run = run
        self.variables = tuple(sorted({name for part in (*self.params, self.result) for name in _variables(part)}))
        self.guards: tuple[Guard | None, ...] = tuple(_guard(kind) for kind in self.params)

    def accepts(self, values: tuple[Any, ...]) -> bool:
        """True when the values have the declared types, as far as upstream looks: of a list, at its first element."""
        if len(values) != len(self.params):
            return False
        for guard, value in zip(self.guards, values, strict=True):
            if guard is not None and not guard(value):
                return False
        return True


class Function:
    """All overloads of a name. `shared` carries out every overload and judges the values itself."""

    __slots__ = ("metered", "name", "overloads", "shared")

    def __init__(self, name: str) -> None:
        self.name = name
        self.overloads: list[Overload] = []
        self.shared: Implementation | None = None
        self.metered = False

    def metered_run(self, overloads: Sequence[Overload]) -> Metered:
        """What carries out a call for which these overloads fit, given the meter and the values."""
        run = self._run(overloads)
        return run if self.metered else lambda meter, *values: run(*values)

    def free_run(self, overloads: Sequence[Overload]) -> Implementation:
        """The same without a meter, for values whose sizes are bounded."""
        run = self._run(overloads)
        return partial(run, FREE) if self.metered else run

    def _run(self, overloads: Sequence[Overload]) -> Implementation:
        if self.shared is not None:
            return self.shared
        if len(overloads) == 1:
            return _guarded(overloads[0])
        return self._dispatch_metered if self.metered else self._dispatch

    def _dispatch(self, *values: Any) -> Any:
        """Carry out the first overload that accepts the values. Raises Fault when there is none."""
        for overload in self.overloads:
            if overload.run is not None and overload.accepts(values):
                return overload.run(*values)
        raise no_such_overload(self.name, values)

    def _dispatch_metered(self, meter: Meter, *values: Any) -> Any:
        for overload in self.overloads:
            if overload.run is not None and overload.accepts(values):
                return overload.run(meter, *values)
        raise no_such_overload(self.name, values)


class Library:
    """Some functions that belong together."""

    def __init__(self) -> None:
        self.overloads: list[Overload] = []
        self.shared: dict[str, tuple[Implementation, bool]] = {}

    def function(self, name: str, *signatures: str, metered: bool = False) -> Callable[[F], F]:
        """The decorated function carries out these overloads of the global function `name`."""
        return self._register(name, False, signatures, metered)

    def method(self, name: str, *signatures: str, metered: bool = False) -> Callable[[F], F]:
        """The decorated function carries out these overloads of the method `name`."""
        return self._register(name, True, signatures, metered)

    def _register(self, name: str, member: bool, signatures: tuple[str, ...], metered: bool) -> Callable[[F], F]:
        def register(run: F) -> F:
            self.overloads += [Overload(name, member, signature, run, metered) for signature in signatures]
            return run

        return register

    def declare(self, name: str, *signatures: str, member: bool = False) -> None:
        """Overloads that are carried out by the function's shared implementation, or by the interpreter itself."""
        self.overloads += [Overload(name, member, signature, None) for signature in signatures]

    def share(self, name: str, metered: bool = False) -> Callable[[F], F]:
        """The decorated function carries out all overloads of `name`."""

        def register(run: F) -> F:
            self.shared[name] = run, metered
            return run

        return register


class Declarations:
    """The functions of one environment, by name."""

    def __init__(self, libraries: Iterable[Library]) -> None:
        self.functions: dict[str, Function] = {}
        for library in libraries:
            for overload in library.overloads:
                function = self._function(overload.function)
                function.overloads.append(overload)
                function.metered = function.metered or overload.metered
            for name, (run, metered) in library.shared.items():
                function = self._function(name)
                function.shared, function.metered = run, metered
        for function in self.functions.values():
            if any(overload.metered is not function.metered for overload in function.overloads if overload.run):
                raise TypeError(f"either all overloads of {function.name} take a meter or none")

    def _function(self, name: str) -> Function:
        function = self.functions.get(name)
        if function is None:
            function = self.functions[name] = Function(name)
        return function


def _guarded(overload: Overload) -> Implementation:
    """The overload, for values that may be of any type. Raises Fault when they are of others than declared."""
    if overload.metered:
        return _guarded_metered(overload)
    name, run, accepts = overload.function, overload.run, overload.accepts
    if run is None:
        raise TypeError(f"nothing carries out {name}")
    implementation, guards = run, overload.guards
    first, second = guards if len(guards) == 2 else (None, None)
    if first is not None and second is not None:

        def run_two(left: Any, right: Any) -> Any:
            if first(left) and second(right):
                return implementation(left, right)
            raise no_such_overload(name, (left, right))

        return run_two

    def run_guarded(*values: Any) -> Any:
        if accepts(values):
            return implementation(*values)
        raise no_such_overload(name, values)

    return run_guarded


def _guarded_metered(overload: Overload) -> Implementation:
    name, run, accepts = overload.function, overload.run, overload.accepts
    if run is None:
        raise TypeError(f"nothing carries out {name}")
    implementation = run

    def run_guarded(meter: Meter, *values: Any) -> Any:
        if accepts(values):
            return implementation(meter, *values)
        raise no_such_overload(name, values)

    return run_guarded


def no_such_overload(name: str, values: Iterable[Any]) -> Fault:
    return Fault(f"no such overload: {name}({', '.join(map(type_name, values))})")


# --- Signatures -----------------------------------------------------------------------------------------------------


def _parse_signature(signature: str) -> tuple[tuple[Type, ...], Type]:
    params, _, result = signature.rpartition("->")
    return tuple(_parse_type(text) for text in _split(params)), _parse_type(result)


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, level, start = [], 0, 0
    for place, character in enumerate(text):
        level += (character == "(") - (character == ")")
        if character == "," and level == 0:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _parse_type(text: str) -> Type:
    text = text.strip()
    if len(text) == 1 and text.isupper():
        return types.param(text)
    known = _ALIASES.get(text) or types.NAMED.get(text)
    if known is not None:
        return known
    name, bracket, rest = text.partition("(")
    if not bracket or not rest.endswith(")"):
        raise ValueError(f"not a type: {text}")
    params = [_parse_type(part) for part in _split(rest[:-1])]
    match name, params:
        case "list", [element]:
            return types.list_of(element)
        case "map", [key, value]:
            return types.map_of(key, value)
        case "optional", [value]:
            return types.optional_of(value)
        case "type", [kind]:
            return types.type_of(kind)
    raise ValueError(f"not a type: {text}")


def _variables(kind: Type) -> Iterable[str]:
    if kind.kind == "param":
        yield kind.name
    for part in kind.params:
        yield from _variables(part)


# --- Guards ---------------------------------------------------------------------------------------------------------


def _guard(kind: Type) -> Guard | None:
    """A test whether a value is of a type; None when every value is (cel-go common/types, IsAssignableRuntimeType)."""
    if kind.is_dynamic or kind.kind == "param":
        return None
    if kind.kind == "list":
        return _list_guard(_guard(kind.params[0]))
    return _class_guard(kind.name)


def _class_guard(name: str) -> Guard:
    class_ = CLASSES.get(name)
    if class_ is not None:
        return lambda value: value.__class__ is class_
    return lambda value: type_name(value) == name


def _list_guard(element: Guard | None) -> Guard:
    if element is None:
        return lambda value: value.__class__ is list
    return lambda value: value.__class__ is list and (not value or element(value[0]))
