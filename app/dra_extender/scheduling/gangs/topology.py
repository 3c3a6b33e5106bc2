"""Where the pods of a gang may be together: on nodes with one value of a label.

Promises: pure. A required label is never given up; of preferred labels the first one counts for which one value holds
the gang. Of the values that hold the gang the one with fewest free places is taken, so that whole domains stay whole.
Once a member is bound, the others follow it.

Sources: annotations of this project and of Kueue on the pods, and `spec.schedulingConstraints` of PodGroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dra_extender.api.core import Node, Pod

REQUIRED: Final = "dra-extender.dev/topology-required"
PREFERRED: Final = "dra-extender.dev/topology-preferred"
KUEUE_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
ANNOTATIONS: Final = (REQUIRED, PREFERRED, KUEUE_REQUIRED, KUEUE_PREFERRED)

ANYWHERE: Final = ""
MOST_LEVELS: Final = 4


def levels(pod: Pod, required: str) -> tuple[str, ...]:
    """The labels of which all members need one value, the narrowest first; `ANYWHERE` last where none is required.
    `required`: the label that the PodGroup requires, or empty.
    """
    written = pod.metadata.annotations
    must = required or written.get(REQUIRED) or written.get(KUEUE_REQUIRED) or ""
    wishes = (written.get(PREFERRED) or written.get(KUEUE_PREFERRED) or "").split(",")[:MOST_LEVELS]
    preferred = [key for each in wishes if (key := each.strip()) and key != must]
    return *preferred, must or ANYWHERE


def domains(
    key: str, names: Sequence[str], nodes: Mapping[str, Node], places: Mapping[str, int], bound: Iterable[str]
) -> list[Sequence[str]]:
    """The nodes of each value of the label, those of the best value first. `places`: how many members fit on a node;
    `bound`: the nodes of members that are bound, whose value is the only one.
    """
    if key == ANYWHERE:
        return [names]
    by_value: dict[str, list[str]] = {}
    for name in names:
        if name in nodes and (value := nodes[name].metadata.labels.get(key)):
            by_value.setdefault(value, []).append(name)
    taken = {nodes[name].metadata.labels.get(key, "") for name in bound if name in nodes}
    if taken:
        return [found for value, found in by_value.items() if taken == {value}]
    return sorted(by_value.values(), key=lambda found: sum(places.get(name, 0) for name in found))
