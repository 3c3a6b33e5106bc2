"""Where the pods of a gang may be together: on nodes with one value of a label.

Promises: pure. A required label always counts: a preferred label is tried within one value of the required one. The
first preferred label counts of which one value has room for the gang. Of the values with room, the one with fewest free
places is taken, so that large domains stay free. Once a member is bound, the others follow it.

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
"""Labels. All members are on nodes with one value of each."""
ANYWHERE: Final[Level] = ()
CHARACTERS_OF_LABEL: Final = 317
"""The API server accepts no longer label key. The reason of every node quotes it."""
MOST_LEVELS: Final = 4
MOST_DOMAINS: Final = 64


def levels(written: Mapping[str, str], required: str) -> tuple[Level, ...]:
    """The levels to try, narrowest first. `written`: annotations; `required`: the label that the PodGroup requires."""
    must = (required or written.get(REQUIRED) or written.get(KUEUE_REQUIRED) or "")[:CHARACTERS_OF_LABEL]
    preferred = (written.get(PREFERRED) or written.get(KUEUE_PREFERRED) or "").split(",")[:MOST_LEVELS]
    preferred = list(dict.fromkeys(each.strip()[:CHARACTERS_OF_LABEL] for each in preferred))
    always = (must,) if must else ANYWHERE
    return *((*always, key) for key in preferred if key and key != must), always


def domains(
    level: Level, nodes: Mapping[str, Node], capacities: Mapping[str, int] | None, needed: int, bound: Iterable[str]
) -> Sequence[Sequence[str]]:
    """The domains (names of nodes with the same values), best first, without those with room for fewer than `needed`
    members. Of more than `MOST_DOMAINS`, those with least and with most room. `capacities`: how many members fit on a
    node; None when unknown. `bound`: the nodes of bound members, which fix the domain.
    """
    by_value: dict[Level, list[str]] = {}
    for name, node in nodes.items():
        if all(values := _values(level, node)):
            by_value.setdefault(values, []).append(name)
    taken = {_values(level, nodes[name]) for name in bound if name in nodes}
    if taken:
        return [found for values, found in by_value.items() if taken == {values}]
    if capacities is None:
        return list(by_value.values())[:MOST_DOMAINS]
    room = {values: sum(capacities.get(name, 0) for name in found) for values, found in by_value.items()}
    fitting = sorted((values for values in room if room[values] >= needed), key=room.__getitem__)
    if len(fitting) > MOST_DOMAINS:
        fitting = fitting[: MOST_DOMAINS // 2] + fitting[-MOST_DOMAINS // 2 :]
    return [by_value[values] for values in fitting]


def _values(level: Level, node: Node) -> tuple[str, ...]:
    return tuple(node.metadata.labels.get(key, "") for key in level)
