"""matchAttribute and distinctAttribute over the devices of a node view.

Promises: the state of a constraint is immutable, so the search undoes a device by going back to the earlier state. All
answers are masks: `allowed` of a state has exactly the devices that the constraint accepts next. A device is compared
with all covered devices, not only with the latest one of each request.

An attribute is a set of tokens: a scalar is one token, a list one per element (with list attributes on); tokens of
different types differ. matchAttribute keeps the tokens that all covered devices share; distinctAttribute wants disjoint
sets. A value of an unknown type (a list, when lists are off) is accepted for the first covered device only - except by
matchAttribute with lists on, which refuses it.

Rules: Kubernetes 1.36, structured/internal/incubating/{allocator_incubating,constraint}.go and
structured/internal/experimental/constraint.go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dra_extender.api.resource import AttributeValue, DeviceConstraint
from dra_extender.api.semver import VersionText
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.pools import NodeView

Token = tuple[str, Any]


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

    __slots__ = ("_islands", "disjoint", "groups", "known", "present", "tokens")

    def __init__(self, view: NodeView, name: str, lists: bool) -> None:
        numbers: dict[Token, int] = {}
        self.groups: list[int] = []
        self.tokens: list[tuple[int, ...]] = []
        self.present = self.known = 0
        for index, device in enumerate(view.devices):
            values = _tokens(device.model, name, lists)
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
        self._islands: list[int] | None = None

    @property
    def grouping_cost(self) -> int:
        """Units of work that the next look at `islands` costs at most."""
        return 1 if self.disjoint or self._islands is not None else 1 + len(self.groups) ** 2 // 8

    @property
    def islands(self) -> list[int]:
        """Disjoint masks: devices that have a token in common, directly or through others."""
        if self.disjoint:
            return self.groups
        if self._islands is None:
            self._islands = []
            for group in self.groups:
                touched = [island for island in self._islands if island & group]
                if touched:
                    self._islands = [island for island in self._islands if not island & group]
                    for island in touched:
                        group |= island
                self._islands.append(group)
        return self._islands

    def union(self, tokens: tuple[int, ...]) -> int:
        """The devices that have any of the tokens."""
        mask = 0
        for token in tokens:
            mask |= self.groups[token]
        return mask


def attribute_table(view: NodeView, name: str, lists: bool) -> AttributeTable:
    """The table of an attribute, remembered by the view."""
    key = "attribute", name, lists
    found: AttributeTable | None = view.masks.get(key)
    return found if found is not None else view.remember(key, AttributeTable(view, name, lists))


def _tokens(model: DeviceModel, name: str, lists: bool) -> tuple[Token, ...] | None:
    """None when the device does not have the attribute, nothing when its type is unknown."""
    key = "attribute", name, lists
    if key not in model.memo:
        attribute = model.traits.attribute(name)
        return model.remember(key, None if attribute is None else _split(attribute.value, lists))
    found: tuple[Token, ...] | None = model.memo[key]
    return found


def _split(value: AttributeValue | None, lists: bool) -> tuple[Token, ...]:
    if value is None:
        return ()
    if isinstance(value, tuple):
        return tuple(dict.fromkeys(_token(item) for item in value)) if lists else ()
    return (_token(value),)


def _token(value: Any) -> Token:
    return "version" if isinstance(value, VersionText) else type(value).__name__, value


class AttributeConstraint:
    """One constraint of a claim on a view. `start` is its state while it covers no device."""

    __slots__ = ("match", "start", "table")

    def __init__(self, view: NodeView, source: DeviceConstraint, lists: bool) -> None:
        self.match = source.match_attribute is not None
        name = source.match_attribute if source.match_attribute is not None else source.distinct_attribute
        self.table = attribute_table(view, name or "", lists)
        first = self.table.known if self.match and lists else self.table.present
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
