"""Where slices and devices can be used: nodeName, allNodes or nodeSelector; the first that is set decides.

Promises: a selector is parsed as a whole before it is matched, so one bad term makes it an error even if another term
matches. Terms are ORed, the requirements of a term are ANDed, a term without requirements matches nothing. Nodes for
which every slice of a pool has the same visibility see the same pool.

Rules: Kubernetes 1.36, component-helpers/scheduling/corev1/nodeaffinity, apimachinery/pkg/labels and
structured/internal/incubating/pools_incubating.go.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from itertools import accumulate
from typing import Final

from dra_extender.api.core import FIELD_NODE_NAME, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dra_extender.api.resource import Device, ResourceSlice, ResourceSliceSpec
from dra_extender.devices.usage import PoolID
from dra_extender.limits import REQUIREMENTS_OF_NODE

Matcher = Callable[[str, Mapping[str, str]], bool]
"""(node name, node labels) -> whether the node matches."""

_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = range(-(2**63), 2**63)


class NodeSelectorError(ValueError):
    """A node selector that cannot be parsed; the text names the requirement and the problem."""


def parse(selector: NodeSelector) -> Matcher:
    """The selector in compiled form. Raises NodeSelectorError."""
    only = only_node(selector)
    if only is not None:
        return lambda name, _: name == only
    terms = [
        _term(index, term)
        for index, term in enumerate(selector.node_selector_terms)
        if term.match_expressions or term.match_fields
    ]
    return lambda name, labels: any(all(match(name, labels) for match in term) for term in terms)


def selector_text(selector: NodeSelector) -> str:
    """Such as "zone In (a, b), gpu Exists"; alternatives with "or"."""
    terms = [(*term.match_expressions, *term.match_fields) for term in selector.node_selector_terms]
    return " or ".join(", ".join(map(_requirement_text, term)) for term in terms)


def _requirement_text(found: NodeSelectorRequirement) -> str:
    return f"{found.key} {found.operator}" + (f" ({', '.join(found.values)})" if found.values else "")


def one_node(name: str) -> NodeSelector:
    """The selector of an allocation for one node."""
    requirement = NodeSelectorRequirement(FIELD_NODE_NAME, "In", (name,))
    return NodeSelector((NodeSelectorTerm(match_fields=(requirement,)),))


def only_node(selector: NodeSelector) -> str | None:
    """The name of the node, if the selector selects one node by name, as in most allocations."""
    if len(selector.node_selector_terms) != 1 or len(selector.node_selector_terms[0].match_fields) != 1:
        return None
    field = selector.node_selector_terms[0].match_fields[0]
    return field.values[0] if len(field.values) == 1 and selector == one_node(field.values[0]) else None


def _term(index: int, term: NodeSelectorTerm) -> list[Matcher]:
    found: list[Matcher] = []
    kinds = ("matchExpressions", term.match_expressions, _label), ("matchFields", term.match_fields, _field)
    for name, requirements, compiled in kinds:
        for number, requirement in enumerate(requirements):
            try:
                found.append(compiled(requirement))
            except NodeSelectorError as error:
                raise NodeSelectorError(f"nodeSelectorTerms[{index}].{name}[{number}]: {error}") from None
    return found


def _label(requirement: NodeSelectorRequirement) -> Matcher:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    prefix, slash, name = key.rpartition("/")
    if _LABEL_NAME.fullmatch(name) is None or (slash and (len(prefix) > 253 or _SUBDOMAIN.fullmatch(prefix) is None)):
        raise NodeSelectorError(f"{key[:64]!r} is not a valid label key")
    if operator in ("In", "NotIn"):
        if not values:
            raise NodeSelectorError(f"operator {operator} needs at least one value")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            raise NodeSelectorError(f"operator {operator} takes no values")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1 or _integer(values[0]) is None:
            raise NodeSelectorError(f"operator {operator} needs exactly one integer")
    else:
        raise NodeSelectorError(f"{operator!r} is not a valid operator for labels")
    for value in values:
        if _LABEL_VALUE.fullmatch(value) is None:
            raise NodeSelectorError(f"{value[:64]!r} is not a valid label value")
    wanted, positive = frozenset(values), operator in ("In", "Exists")
    if operator in ("In", "NotIn"):
        return lambda _, labels: (labels.get(key) in wanted) is positive
    if operator in ("Exists", "DoesNotExist"):
        return lambda _, labels: (key in labels) is positive
    return _comparison(key, operator, int(values[0]))


def _comparison(key: str, operator: str, limit: int) -> Matcher:
    def compare(_: str, labels: Mapping[str, str]) -> bool:
        value = _integer(labels.get(key, ""))
        return value is not None and (value > limit if operator == "Gt" else value < limit)

    return compare


def _field(requirement: NodeSelectorRequirement) -> Matcher:
    """metadata.name is the only field of a node; any other one is empty."""
    operator = requirement.operator
    if operator not in ("In", "NotIn"):
        raise NodeSelectorError(f"{operator!r} is not a valid operator for fields")
    if len(requirement.values) != 1:
        raise NodeSelectorError(f"operator {operator} needs exactly one value")
    value, wanted = requirement.values[0], operator == "In"
    if requirement.key == FIELD_NODE_NAME:
        return lambda name, _: (name == value) is wanted
    return lambda _name, _labels: (not value) is wanted


def _integer(text: str) -> int | None:
    """As strconv.ParseInt(text, 10, 64): None if it is not an int64."""
    if len(text) > 64 or _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if value in _INT64 else None


class NodeSelection:
    """The nodes that can use a device. The first field that is set decides. A selector is parsed once."""

    __slots__ = ("_parsed", "all_nodes", "node_name", "node_selector")

    def __init__(self, source: ResourceSliceSpec | Device) -> None:
        self.node_name: str = source.node_name or ""
        self.all_nodes: bool = source.all_nodes is True
        self.node_selector: NodeSelector | None = source.node_selector
        self._parsed: Matcher | str | None = None
        """The compiled form, or the problem. An exception would keep the frames of each time it is raised."""

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """Without the compiled form: workers get devices as pickles."""
        return None, {name: None if name == "_parsed" else getattr(self, name) for name in self.__slots__}

    def matcher(self) -> Matcher | None:
        """The selection in compiled form; None when no known field is set. Raises NodeSelectorError."""
        wanted = self.node_name
        if wanted:
            return lambda name, _: name == wanted
        if self.all_nodes:
            return lambda _name, _labels: True
        if self._parsed is None and self.node_selector is not None:
            try:
                self._parsed = parse(self.node_selector)
            except NodeSelectorError as error:
                self._parsed = str(error)
        if isinstance(self._parsed, str):
            raise NodeSelectorError(self._parsed)
        return self._parsed

    def matches(self, name: str, labels: Mapping[str, str]) -> bool | None:
        """Whether the node can use the device; None when no known field is set. Raises NodeSelectorError."""
        if self.node_name:
            return name == self.node_name
        matcher = self.matcher()
        return matcher(name, labels) if matcher is not None else None

    @property
    def has_many_terms(self) -> bool:
        """True if an allocation cannot combine the selection with the one of another device."""
        return self.node_selector is not None and len(self.node_selector.node_selector_terms) > 1


Visibility = Callable[[str, Mapping[str, str]], Hashable]
"""(node name, node labels) -> a value that decides what the node sees of a slice; falsy: the node does not see it."""


def visibility_size(item: ResourceSlice) -> int:
    """The cost of `visibility_of` for a node, in requirements."""
    devices = item.spec.devices if item.spec.per_device_node_selection else ()
    chosen: list[ResourceSliceSpec | Device] = [item.spec, *devices]
    return sum(each.node_selector.size for each in chosen if each.node_selector is not None)


def visibility_of(item: ResourceSlice, own: NodeSelection, selections: Iterable[NodeSelection]) -> Visibility:
    """Nodes with the same value see the same devices of the slice. `own`: its selection; `selections`: those of its
    devices. With the rules of Kubernetes 1.36, all nodes see a slice that defines counters.
    """
    spec = item.spec
    whole = _visibility(own)
    if spec.shared_counters:
        matches = whole or _never
        return lambda name, labels: (True, matches(name, labels))
    if not spec.per_device_node_selection:
        return whole or _never
    devices = [_visibility(selection) or _never for selection in selections]

    def each(name: str, labels: Mapping[str, str]) -> Hashable:
        matched = whole(name, labels) if whole is not None else None
        if matched is not None and matched is not True:
            return matched
        found = tuple(device(name, labels) for device in devices)
        return (matched, found) if matched or any(found) else False

    return each


def _visibility(selection: NodeSelection) -> Visibility | None:
    """It returns the text of the error if the selection is invalid. None when no field is set."""
    try:
        return selection.matcher()
    except NodeSelectorError as error:
        problem = str(error)
        return lambda _name, _labels: problem


def _never(_name: str, _labels: Mapping[str, str]) -> Hashable:
    return False


class NodeSelectorLimit:
    """`refused`: the pools that are invalid because each node would have to evaluate too many requirements.

    Promises: the pools whose slices are not for one node have at most `REQUIREMENTS_OF_NODE` requirements together;
    those with most are refused first. Drivers share the limit, because a driver can have any name. A change of a pool
    looks at no other, unless there are too many requirements.
    """

    def __init__(self) -> None:
        self.refused: frozenset[PoolID] = frozenset()
        self._sizes: dict[PoolID, int] = {}
        """The requirements of each pool that has some."""
        self._ordered: list[tuple[int, PoolID]] = []
        self._total = 0

    def change(self, pool: PoolID, size: int) -> Set[PoolID]:
        """The pool has this many requirements now. Returns the pools that are refused because of it, or no longer."""
        known, before = self._sizes.pop(pool, 0), self.refused
        if size:
            self._sizes[pool] = size
        if size == known:
            return frozenset()
        if known:
            del self._ordered[bisect_left(self._ordered, (known, pool))]
        if size:
            insort(self._ordered, (size, pool))
        self._total += size - known
        kept = len(self._ordered)
        if self._total > REQUIREMENTS_OF_NODE:
            kept = bisect_right(list(accumulate(size for size, _ in self._ordered)), REQUIREMENTS_OF_NODE)
        self.refused = frozenset(id for _, id in self._ordered[kept:])
        return before ^ self.refused
