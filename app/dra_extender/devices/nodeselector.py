"""v1.NodeSelector: which nodes a slice or a device is for.

Promises: a selector is parsed as a whole before it is matched, so one bad term makes it an error even when another
term would match. Terms are ORed, the requirements of a term are ANDed, a term without requirements matches nothing. Of
selectors that were parsed so many are remembered as have `REMEMBERED` parts together: one may be a megabyte.

Rules: Kubernetes 1.36, component-helpers/scheduling/corev1/nodeaffinity and apimachinery/pkg/labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cachetools import LRUCache

from dra_extender.api.core import FIELD_NODE_NAME, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

Matcher = Callable[[str, Mapping[str, str]], bool]
"""(node name, node labels) -> whether the node matches."""

_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = range(-(2**63), 2**63)


REMEMBERED: Final = 20_000
"""Parts of selectors that are kept ready, as `size_of` counts them: some 20 MiB."""
_OVERHEAD: Final = 4
_VALUES: Final = 8
"""So many values take the memory of a requirement."""


class NodeSelectorError(ValueError):
    """A node selector that cannot be parsed; the text names the requirement and the problem."""


def matches(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the node matches. Raises NodeSelectorError."""
    return parse(selector)(name, labels)


class _Ready(NamedTuple):
    matcher: Matcher
    size: int


_ready: LRUCache[NodeSelector, _Ready] = LRUCache(REMEMBERED, getsizeof=lambda ready: ready.size)


def parse(selector: NodeSelector) -> Matcher:
    """The selector made ready for many nodes. Raises NodeSelectorError."""
    known = _ready.get(selector)
    if known is None:
        known = _Ready(_parsed(selector), _OVERHEAD + size_of(selector))
        if known.size <= REMEMBERED:
            _ready[selector] = known
    return known.matcher


def size_of(selector: NodeSelector) -> int:
    """How many parts a selector has that have to be looked at, or kept, one by one."""
    requirements = (
        found for term in selector.node_selector_terms for found in (*term.match_expressions, *term.match_fields)
    )
    return sum(1 + len(found.values) // _VALUES for found in requirements)


def _parsed(selector: NodeSelector) -> Matcher:
    only = _only_node(selector)
    if only is not None:
        return lambda name, _: name == only
    terms = [
        _term(index, term)
        for index, term in enumerate(selector.node_selector_terms)
        if term.match_expressions or term.match_fields
    ]
    return lambda name, labels: any(all(match(name, labels) for match in term) for term in terms)


def one_node(name: str) -> NodeSelector:
    """The selector that allocations carry when they are for one node."""
    requirement = NodeSelectorRequirement(FIELD_NODE_NAME, "In", (name,))
    return NodeSelector((NodeSelectorTerm(match_fields=(requirement,)),))


def _only_node(selector: NodeSelector) -> str | None:
    """The node's name when that is all the selector says; it is what most allocations say."""
    if len(selector.node_selector_terms) != 1 or len(selector.node_selector_terms[0].match_fields) != 1:
        return None
    field = selector.node_selector_terms[0].match_fields[0]
    return field.values[0] if len(field.values) == 1 and selector == one_node(field.values[0]) else None


def _term(index: int, term: NodeSelectorTerm) -> list[Matcher]:
    where = f"nodeSelectorTerms[{index}]"
    labels = [_label(f"{where}.matchExpressions[{i}]", r) for i, r in enumerate(term.match_expressions)]
    fields = [_field(f"{where}.matchFields[{i}]", r) for i, r in enumerate(term.match_fields)]
    return labels + fields


def _label(where: str, requirement: NodeSelectorRequirement) -> Matcher:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    _check_key(where, key)
    if operator in ("In", "NotIn"):
        if not values:
            raise NodeSelectorError(f"{where}: operator {operator} needs at least one value")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            raise NodeSelectorError(f"{where}: operator {operator} takes no values")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1 or _integer(values[0]) is None:
            raise NodeSelectorError(f"{where}: operator {operator} needs exactly one integer")
    else:
        raise NodeSelectorError(f"{where}: {operator!r} is not a valid operator for labels")
    for value in values:
        if _LABEL_VALUE.fullmatch(value) is None:
            raise NodeSelectorError(f"{where}: {value[:64]!r} is not a valid label value")
    wanted = frozenset(values)
    if operator == "In":
        return lambda _, labels: labels.get(key) in wanted
    if operator == "NotIn":
        return lambda _, labels: labels.get(key) not in wanted
    if operator == "Exists":
        return lambda _, labels: key in labels
    if operator == "DoesNotExist":
        return lambda _, labels: key not in labels
    return _comparison(key, operator, int(values[0]))


def _comparison(key: str, operator: str, limit: int) -> Matcher:
    def compare(_: str, labels: Mapping[str, str]) -> bool:
        value = _integer(labels.get(key, ""))
        return value is not None and (value > limit if operator == "Gt" else value < limit)

    return compare


def _field(where: str, requirement: NodeSelectorRequirement) -> Matcher:
    """metadata.name is the only field of a node; any other one is empty."""
    operator = requirement.operator
    if operator not in ("In", "NotIn"):
        raise NodeSelectorError(f"{where}: {operator!r} is not a valid operator for fields")
    if len(requirement.values) != 1:
        raise NodeSelectorError(f"{where}: operator {operator} needs exactly one value")
    value, wanted = requirement.values[0], operator == "In"
    if requirement.key == FIELD_NODE_NAME:
        return lambda name, _: (name == value) is wanted
    return lambda _name, _labels: (not value) is wanted


def _check_key(where: str, key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if _LABEL_NAME.fullmatch(name) is None:
        raise NodeSelectorError(f"{where}: {key[:64]!r} is not a valid label key")
    if slash and (len(prefix) > 253 or _SUBDOMAIN.fullmatch(prefix) is None):
        raise NodeSelectorError(f"{where}: {key[:64]!r} is not a valid label key")


def _integer(text: str) -> int | None:
    """As strconv.ParseInt(text, 10, 64): None when it is no int64."""
    if len(text) > 64 or _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if value in _INT64 else None
