"""One evaluation: what it is about, its local variables, what it has cost and used, and selections in its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import Semver
from dra_extender.cel.cost import LIMIT
from dra_extender.cel.device import FIELDS, DeviceView
from dra_extender.cel.equality import describe
from dra_extender.cel.errors import Fault, too_costly
from dra_extender.cel.library.network import Cidr, Ip
from dra_extender.cel.library.urls import Url
from dra_extender.cel.syntax import Expr, Index, Select
from dra_extender.cel.values import NONE, Lost, Option, SumQuantity, TypeValue, UInt, find, type_name
from dra_extender.cel.work import Meter, Patterns, Work


class Frame(Meter):
    """One evaluation. `cost` is Kubernetes'; work and memory are those of the `Meter`."""

    __slots__ = ("cost", "values", "view")

    def __init__(self, view: DeviceView, variables: int, work: Work, patterns: Patterns) -> None:
        super().__init__(work, patterns)
        self.view = view
        self.values: list[Any] = [None] * variables
        self.cost = 0

    def add_cost(self, cost: int) -> None:
        """Raises Abort above the limit of costs."""
        self.cost += cost
        if self.cost > LIMIT:
            raise too_costly()


Evaluate = Callable[[Frame], Any]
"""A node, ready to be evaluated. Raises Fault and Abort."""


@dataclass(slots=True, eq=False)
class Lazy:
    """A `cel.bind` variable: evaluated when first used, even if that fails."""

    _evaluate: Evaluate | None
    _value: Any = None
    _fault: Fault | None = None

    def get(self, frame: Frame) -> Any:
        evaluate = self._evaluate
        if evaluate is not None:
            self._evaluate = None
            try:
                self._value = evaluate(frame)
            except Fault as fault:
                self._fault = fault.with_traceback(None)  # which would keep every value on the way alive
        if self._fault is not None:
            raise self._fault
        return self._value


#
# Rules: cel-go interpreter/attributes.go, v0.26.

Qualifier = tuple[Evaluate | None, Any, bool]
"""How to compute a key, or else the key; and whether it is optional."""


def tests_optional(node: Expr) -> bool:
    """True for `has()` of a chain with an optional part. As a branch of `?:` upstream takes it for the chain: it
    yields the optional, not whether there is something.
    """
    if not (isinstance(node, Select) and node.test):
        return False
    part: Expr = node
    while isinstance(part, Select | Index):
        if part.optional:
            return True
        part = part.operand
    return False


def device_read(qualifiers: tuple[Qualifier, ...]) -> Callable[[DeviceView], Any] | None:
    """How to read a field or an entry of the device, None for one that it does not have; None for other selections."""
    keys = [key for evaluate, key, optional in qualifiers if evaluate is None and not optional and key.__class__ is str]
    if len(keys) != len(qualifiers):
        return None
    if len(keys) == 1 and keys[0] in FIELDS:
        field = FIELDS[keys[0]].read
        return lambda view: field(view.published)
    if len(keys) == 3 and keys[0] in ("attributes", "capacity"):
        name = f"{keys[1]}/{keys[2]}"
        return (
            (lambda view: view.attributes.get(name))
            if keys[0] == "attributes"
            else (lambda view: view.capacity.get(name))
        )
    return None


def reading(read: Callable[[DeviceView], Any], cost: int, otherwise: Evaluate) -> Evaluate:
    """A read of the device in one step; `otherwise` words the error if there is nothing to read."""

    def evaluate(frame: Frame) -> Any:
        value = read(frame.view)
        if value is None:
            return otherwise(frame)
        frame.cost += cost
        return value

    return evaluate


def select(value: Any, key: Any) -> Any:
    """`value[key]`. Raises Fault."""
    found, present = look_up(value, key)
    if present:
        return found
    if value.__class__ is list:
        raise Fault(f"index out of bounds: {key}", "out of bounds")
    raise Fault(f"no such key: {describe(key)}", "missing key", key if key.__class__ is str else "")


def look_up(value: Any, key: Any) -> tuple[Any, bool]:
    """The entry of a map or list and whether there is one; nothing has an entry in anything else. Raises Fault."""
    if isinstance(value, dict):
        return find(value, key)
    if value.__class__ is not list:
        return None, False
    index = _index(key)
    return (value[index], True) if 0 <= index < len(value) else (None, False)


def _index(key: Any) -> int:
    kind = key.__class__
    if kind is int:
        return int(key)
    if kind is UInt:
        return int(key) if key <= 2**63 - 1 else -1
    if kind is float:
        if key.is_integer() and -(2.0**63) < key < 2.0**63:
            return int(key)
        raise Fault(f"unsupported index value {key} in list")
    raise Fault(f"unsupported index type '{type_name(key)}' in list")


_HASHED: Final = 256
"""How many characters of a key are hashed per unit of work."""

_KEYS: Final = (str, int, bool, UInt, float)
_CHANGING: Final = frozenset((Option, TypeValue, Quantity, SumQuantity, Semver, Ip, Cidr, Url))


def qualify(frame: Frame, value: Any, qualifiers: tuple[Qualifier, ...]) -> tuple[Any, bool]:
    """Follow selections; returns the result and whether it is to be wrapped as an optional."""
    optional = value.__class__ is Option
    if optional:
        if value is NONE:
            return NONE, False
        value = value.content
    for evaluate, key, is_optional in qualifiers:
        optional = optional or is_optional
        if evaluate is not None:
            key = evaluate(frame)
            if key.__class__ not in _KEYS:
                raise Fault(f"invalid qualifier type: {type_name(key)}")
            if key.__class__ is str:
                frame.charge(len(key) // _HASHED)
        if optional:
            value, present = look_up(value, key)
            if not present:
                return NONE, False
        else:
            value = select(value, key)
        frame.cost += 1
    return value, optional


def renewed(option: Option) -> Option:
    """An optional after upstream took the value out and put it in again, which happens to variables and branches.

    Values of extension types do not survive that, a type becomes its name, an optional in an optional loses one level.
    """
    value = option.value
    if option is NONE or value.__class__ not in _CHANGING:
        return option
    if value.__class__ is Option:
        return Option(None) if value is NONE else renewed(value)
    if value.__class__ is TypeValue:
        return Option(value.name)
    return Option(Lost(type_name(value)))


def renewed_if_optional(value: Any) -> Any:
    return renewed(value) if value.__class__ is Option else value
