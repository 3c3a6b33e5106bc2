"""Pieces of the Python function that stands for a selector, and what is known of their values.

Promises: the function made of them returns what the interpreter would, or raises NotFast. Anything else that it raises
is a bug, so every piece checks the class of a value before it relies on it; that goes for `==` and `<`, too, because to
Python True is 1. The text of a selector gets into the function only as the repr of its strings and numbers; everything
else there is of this module and `dra_extender.cel.generator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from dra_extender.api.semver import Semver
from dra_extender.cel.device import DeviceView
from dra_extender.cel.equality import equal
from dra_extender.cel.errors import Abort, Fault, NotFast
from dra_extender.cel.library.regexes import SHORT, scan, search
from dra_extender.cel.values import EMPTY

Fast = Callable[[DeviceView], bool]

_SURE: Final = {str: "str", int: "int", bool: "bool"}
SCALARS: Final = frozenset(_SURE.values())
"""Kinds that are names of Python classes: values of one such kind can be compared as they are."""


class Unsupported(Exception):
    """An expression has a part that only the interpreter knows."""


class Code(NamedTuple):
    """A Python expression, and what is known of its value: its kind ("" when nothing), and the value of a constant."""

    text: str
    kind: str = ""
    constant: Any = None

    @property
    def nano(self) -> str:
        """The nano units of a quantity, computed already if it is a constant."""
        return f"{self.text}.nano" if self.constant is None else str(self.constant.nano)


def _stop() -> Any:
    """Leave it to the interpreter."""
    raise NotFast


def _iterable(value: Any) -> Any:
    return value if value.__class__ is list else _stop()


def _entry(entries: dict[str, Any], key: str) -> Any:
    """The entry of a map that has no None in it."""
    found = entries.get(key)
    return _stop() if found is None else found


class Names:
    """What one function may refer to: global values and temporary variables."""

    def __init__(self) -> None:
        self._temporaries = 0
        self._values: dict[str, Any] = {
            "E": EMPTY,
            "equal": equal,
            "entry": _entry,
            "stop": _stop,
            "iterable": _iterable,
            "NotFast": NotFast,
            "Semver": Semver,
            "faults": (Fault, Abort),
            "scan": scan,
            "search": search,
        }

    def of(self, value: Any) -> str:
        """A global name for a value."""
        name = f"k{len(self._values)}"
        self._values[name] = value
        return name

    def temporary(self) -> str:
        """A variable of the function that nothing else uses."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    def compiled(self, text: str) -> Fast:
        """The function that returns this."""
        lines = ["def select(view):"]
        for name, source in (("a", "attribute_values"), ("c", "capacity_values")):
            if f"{name}[" in text or f"{name}.get(" in text or f"in {name}" in text:
                lines.append(f"    {name} = view.{source}")
        # The interpreter words the errors of the language, and knows which of them `&&` and `||` absorb.
        lines += ["    try:", f"        return {text}", "    except faults:", "        raise NotFast from None"]
        exec(compile("\n".join(lines), "<selector>", "exec"), self._values)
        fast: Fast = self._values["select"]
        return fast

    def checked(self, code: Code, class_: str, use: Callable[[str], str]) -> str:
        """What `use` makes of a value of this class; any other value stops."""
        if code.kind == class_.lower():
            return use(code.text)
        name = self.temporary()
        return f"({use(name)} if ({name} := {code.text}).__class__ is {class_} else stop())"

    # --- Values and comparisons ---------------------------------------------------------------------------------------

    def literal(self, value: Any) -> Code:
        kind = _SURE.get(value.__class__)
        if kind is not None:
            return Code(repr(value), kind, value)
        if value.__class__ is list or value.__class__ is float:
            return Code(self.of(value), value.__class__.__name__, value)
        raise Unsupported

    def condition(self, code: Code) -> str:
        """The value as a Python bool; anything else stops."""
        if code.kind == "bool":
            return code.text
        name = self.temporary()
        return f"(({name} := {code.text}) is True or ({name} is not False and stop()))"

    def equality(self, left: Code, right: Code) -> str:
        """`left == right`"""
        if left.kind == right.kind == "quantity":
            return f"({left.text}.nano == {right.nano})"
        if left.kind == right.kind and left.kind in SCALARS:
            return f"({left.text} == {right.text})"
        if right.kind == "semver" and right.constant is not None and left.kind == "":
            return f"({self.version_key(left)} == {self.of(right.constant.key)})"
        if left.kind == "" and right.kind in SCALARS:
            name = self.temporary()
            check = f"({name} := {left.text}).__class__ is {right.kind}"
            return f"({name} == {right.text} if {check} else equal({name}, {right.text}))"
        if left.kind == "str" and left.constant is not None and right.kind == "":
            return f"({left.text} == {right.text})"
        return f"equal({left.text}, {right.text})"

    def relation(self, left: Code, operator: str, right: Code, function: object) -> str:
        """`left < right` and the like; `function` is the language's own, for operands of which little is known."""
        if left.kind == right.kind and left.kind in SCALARS:
            return f"({left.text} {operator} {right.text})"
        if left.kind == "" and right.kind in ("int", "str"):
            name = self.temporary()
            check = f"({name} := {left.text}).__class__ is {right.kind}"
            return f"({name} {operator} {right.text} if {check} else stop())"
        return f"{self.of(function)}({left.text}, {right.text})"

    def ordered(self, left: Code, right: Code) -> tuple[str, str] | None:
        """What to compare instead of two quantities or versions; None when that is not known."""
        if left.kind == right.kind == "quantity":
            return f"{left.text}.nano", right.nano
        if left.kind in ("", "semver") and right.kind == "semver" and right.constant is not None:
            return self.version_key(left), self.of(right.constant.key)
        return None

    def matching(self, code: Code, regex: Code) -> str:
        """`code.matches(regex)`, where the pattern is a constant."""
        if len(regex.constant) > SHORT:
            return self.checked(code, "str", lambda text: f"scan({text}, {regex.text})")
        name = self.temporary()
        matched = f"(search if len({name}) <= {SHORT} else scan)({name}, {regex.text})"
        return f"({matched} if ({name} := {code.text}).__class__ is str else stop())"

    def version_key(self, code: Code) -> str:
        """What versions are compared by."""
        return self.checked(code, "Semver", lambda version: f"{version}.key")

    def one_of(self, value: Code, members: Sequence[Any]) -> str:
        """`value in [constants]`"""
        kinds = {member.__class__ for member in members}
        kind = _SURE.get(kinds.pop()) if len(kinds) == 1 else None
        if kind not in ("str", "int") or value.kind not in ("", kind):
            raise Unsupported
        found = self.of(frozenset(members))
        if value.kind == kind:
            return f"({value.text} in {found})"
        name = self.temporary()
        return f"({name} in {found} if ({name} := {value.text}).__class__ is {kind} else stop())"
