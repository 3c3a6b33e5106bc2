"""matchAttribute and distinctAttribute over the devices of a node view.

Promises: the state of a constraint is immutable, so the search undoes a device by going back to the earlier state. All
answers are masks: `allowed` of a state has exactly the devices that the constraint accepts next. A device is compared
with all covered devices, not only with the latest one of each request.

An attribute is a set of tokens: a scalar is one token, a list one per element (with list attributes on); tokens of
different types differ. A request can derive the attribute: its devices then have the computed value, or an error as
soon as the constraint looks at them. matchAttribute keeps the tokens that all covered devices share; distinctAttribute
wants disjoint sets. A value of an unknown type (a list, when lists are off) is accepted for the first covered device
only - except with lists on: then matchAttribute refuses it, and with the rules of 1.37 distinctAttribute as well.

Rules: Kubernetes 1.36, structured/internal/incubating/{allocator_incubating,constraint}.go and
structured/internal/experimental/constraint.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import AttributeValue, DeviceConstraint
from dra_extender.api.semver import VersionText
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.pools import NodeView

Token = tuple[str, Any]

Tokens = tuple[Token, ...]

Charge = Callable[[int], None]

Values = tuple[tuple[str, Token], ...]
"""Attributes, each with a value that devices have."""

MOST_GROUPS: Final = 512
"""A view keeps tables with at most this many values: more masks take more memory than the devices."""


class ConstraintState(msgspec.Struct, frozen=True):
    """`allowed`: the devices that would be accepted next. `tokens`: what all devices of a matchAttribute share so far;
    None before the first one.
    """

    allowed: int
    tokens: tuple[int, ...] | None = None


class AttributeTable:
    """The values of one attribute over a view: `groups[t]` is the mask of the devices that have token t.

    `present` have the attribute; `known` have it with a value of a known type. `tokens[i]` are those of device i.
    `disjoint`: no device has several tokens.
    """

    def __init__(self, rows: Iterable[Tokens | None]) -> None:
        """`rows`: the tokens of each device; None for a device that does not have the attribute."""
        numbers: dict[Token, int] = {}
        self.groups: list[int] = []
        self.tokens: list[tuple[int, ...]] = []
        self.present = self.known = 0
        for index, values in enumerate(rows):
            bit = 1 << index
            found: list[int] = []
            if values is not None:
                self.present |= bit
                for value in values:
                    number = numbers.setdefault(value, len(numbers))
                    if number == len(self.groups):
                        self.groups.append(0)
                    self.groups[number] |= bit
                    found.append(number)
                    self.known |= bit
            self.tokens.append(tuple(found))
        self.disjoint = all(len(tokens) < 2 for tokens in self.tokens)

    @property
    def grouping_cost(self) -> int:
        """Units of work that the next look at `islands` costs at most."""
        return 1 if self.disjoint or "islands" in self.__dict__ else 1 + len(self.groups) ** 2 // 8

    @cached_property
    def islands(self) -> list[int]:
        """Disjoint masks: devices that have a token in common, directly or through others."""
        if self.disjoint:
            return self.groups
        found: list[int] = []
        for group in self.groups:
            for island in [island for island in found if island & group]:
                found.remove(island)
                group |= island
            found.append(group)
        return found

    def union(self, tokens: tuple[int, ...]) -> int:
        mask = 0
        for token in tokens:
            mask |= self.groups[token]
        return mask


def attribute_table(view: NodeView, name: str, lists: bool, charge: Charge) -> AttributeTable:
    """The table of an attribute; the view keeps it unless it has many values or none: claims may name any attribute."""
    key = "attribute", name, lists
    found: AttributeTable | None = view.memo.get(key)
    if found is None:
        found = AttributeTable(tokens_of(device.model, name, lists, charge) for device in view.devices)
        if found.present and len(found.groups) <= MOST_GROUPS:
            view.remember(key, found)
    return found


def tokens_of(model: DeviceModel, name: str, lists: bool, charge: Charge = lambda units: None) -> Tokens | None:
    """None when the device does not have the attribute, nothing when its type is unknown. Lists are charged before."""
    attribute = model.traits.attribute(name)
    if attribute is not None and isinstance(attribute.value, tuple):
        charge(len(attribute.value))
    return None if attribute is None else split(attribute.value, lists)


def having(view: NodeView, values: Values, lists: bool) -> int:
    """The mask of the devices that have all of the values. Remembered by the view."""
    key = "having", values, lists
    found: int | None = view.memo.get(key)
    if found is None:
        found = 0
        for place, device in enumerate(view.devices):
            if all(token in (tokens_of(device.model, name, lists) or ()) for name, token in values):
                found |= 1 << place
        view.remember(key, found)
    return found


def split(value: AttributeValue | None, lists: bool) -> Tokens:
    """The tokens of a value."""
    if value is None:
        return ()
    if isinstance(value, tuple):
        return tuple(dict.fromkeys(_token(item) for item in value)) if lists else ()
    return (_token(value),)


def _token(value: Any) -> Token:
    return "version" if isinstance(value, VersionText) else type(value).__name__, value


class AttributeConstraint:
    """One constraint of a claim on a view. `start` is its state while it covers no device.

    Where requests derive the attribute, `derived` is set, and the table and masks have one part of the size of the view
    for each way to get it; `problems` are the errors, by place in the table, and `failing` is their mask.
    """

    def __init__(
        self,
        source: DeviceConstraint,
        table: AttributeTable,
        features: FeatureGates,
        problems: Mapping[int, str] | None = None,
    ) -> None:
        self.match = source.match_attribute is not None
        self.table = table
        self.derived = problems is not None
        self.problems = problems or {}
        self.failing = sum(1 << place for place in self.problems)
        strict = features.DRAListTypeAttributes and (self.match or features.is_1_37)
        first = self.table.known if strict else self.table.present
        self.start = ConstraintState(first)

    def add(self, state: ConstraintState, device: int) -> ConstraintState:
        """The state after covering the device, which must be allowed."""
        table, tokens = self.table, self.table.tokens[device]
        if not self.match:
            return ConstraintState(state.allowed & table.known & ~table.union(tokens))
        if state.tokens is not None:
            if state.tokens == tokens:
                return state
            tokens = tuple(token for token in state.tokens if token in tokens)
        return ConstraintState(table.union(tokens), tokens)


def in_any_part(places: int, size: int) -> int:
    """The devices with one of these places in the table of a constraint, which has parts of this size."""
    found = 0
    while places:
        found |= places
        places >>= max(size, 1)
    return found & (1 << size) - 1
