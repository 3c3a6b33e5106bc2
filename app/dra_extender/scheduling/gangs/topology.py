"""Where the pods of a gang may be together: on nodes with one value of a label.

Promises: pure. A required label is never given up: a preferred label counts within one value of the required one. Of
preferred labels the first one counts for which one value holds the gang. Of the values that hold the gang the one with
fewest free places is taken, so that whole domains stay whole. Once a member is bound, the others follow it.

Sources: annotations of this project and of Kueue on the pods or the PodGroup, and `spec.schedulingConstraints` of
PodGroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dra_extender.api.core import Node

REQUIRED: Final = "dra-extender.dev/topology-required"
PREFERRED: Final = "dra-extender.dev/topology-preferred"
KUEUE_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
ANNOTATIONS: Final = (REQUIRED, PREFERRED, KUEUE_REQUIRED, KUEUE_PREFERRED)

Level = tuple[str, ...]
"""Labels of each of which all members need one value."""
ANYWHERE: Final[Level] = ()
CHARACTERS_OF_LABEL: Final = 317
"""A longer key of a label does not exist. The reasons of all nodes quote it."""
MOST_LEVELS: Final = 4
MOST_DOMAINS: Final = 64


def levels(written: Mapping[str, str], required: str) -> tuple[Level, ...]:
    """What to try, the narrowest first, by these annotations. `required`: the label that the PodGroup requires, or
    empty.
    """
    must = (required or written.get(REQUIRED) or written.get(KUEUE_REQUIRED) or "")[:CHARACTERS_OF_LABEL]
    wishes = (written.get(PREFERRED) or written.get(KUEUE_PREFERRED) or "").split(",")[:MOST_LEVELS]
    wishes = list(dict.fromkeys(each.strip()[:CHARACTERS_OF_LABEL] for each in wishes))
    always = (must,) if must else ANYWHERE
    return *((*always, key) for key in wishes if key and key != must), always


def domains(
    level: Level, nodes: Mapping[str, Node], places: Mapping[str, int] | None, needed: int, bound: Iterable[str]
) -> Sequence[Sequence[str]]:
    """The names of the nodes with the same values, those of the best values first. Of more than `MOST_DOMAINS` values
    these are the ones with fewest and with most places. `places`: how many members fit on a node, where that is known:
    values with fewer than `needed` are left out. `bound`: the nodes of members that are bound, whose values are the
    only ones.
    """
    by_value: dict[Level, list[str]] = {}
    for name, node in nodes.items():
        if all(values := _values(level, node)):
            by_value.setdefault(values, []).append(name)
    taken = {_values(level, nodes[name]) for name in bound if name in nodes}
    if taken:
        return [found for values, found in by_value.items() if taken == {values}]
    if places is None:
        return list(by_value.values())[:MOST_DOMAINS]
    room = {values: sum(places.get(name, 0) for name in found) for values, found in by_value.items()}
    fitting = sorted((values for values in room if room[values] >= needed), key=room.__getitem__)
    if len(fitting) > MOST_DOMAINS:
        fitting = fitting[: MOST_DOMAINS // 2] + fitting[-MOST_DOMAINS // 2 :]
    return [by_value[values] for values in fitting]


def _values(level: Level, node: Node) -> tuple[str, ...]:
    return tuple(node.metadata.labels.get(key, "") for key in level)
